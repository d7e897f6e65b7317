"""An object store that speaks S3: bytes under names, in one bucket, below one prefix.

What goes wrong there is transient for whoever works with it: the network, the store, or its settings may be mended.
"""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from voicejobs.errors import BadOption, BlobsRefused, BlobsUnavailable, ExtraMissing, NotFound
from voicejobs.settings import Settings

SCHEME = "s3://"
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 60
TRIES = 4
PART_BYTES = 8 << 20
"""Larger objects are written in parts of this size, two at once."""

READ_BYTES = 1 << 20
_ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})
_DENIED = frozenset(
    {"403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NoSuchBucket", "ExpiredToken"}
)


@dataclass(frozen=True, slots=True)
class Entry:
    """Tell of an object: its name, its bytes, and how many seconds ago it was written, by the clock of the store."""

    name: str
    size_bytes: int
    age_s: float


class ObjectStore:
    """Keep bytes under names below `s3://bucket/prefix`; thread-safe.

    Args:
        settings: `blobs_url` and the settings of S3.
    """

    def __init__(self, settings: Settings) -> None:
        parts = urlsplit(settings.blobs_url)
        if not parts.netloc:
            raise BadOption(
                f"VOICEJOBS_BLOBS_URL={settings.blobs_url!r} names no bucket",
                hint="It has the form s3://bucket/prefix.",
            )
        self._settings = settings
        self._bucket = parts.netloc
        prefix = parts.path.strip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        """Return bucket and prefix, as people know them."""
        return f"{SCHEME}{self._bucket}/{self._prefix}"

    @cached_property
    def _client(self) -> Any:
        """Return the client of this process, made at its first use: to load boto3 takes a third of a second.

        Raises:
            ExtraMissing: boto3 is not installed.
        """
        try:
            from boto3.session import Session  # noqa: PLC0415 - an extra
            from botocore.config import Config  # noqa: PLC0415
        except ImportError as error:
            raise ExtraMissing(
                "Blobs are on S3, and boto3 is not installed", hint="pip install 'voicejobs[s3]'"
            ) from error
        settings = self._settings
        with _mapped(""):
            # What is not set is found where AWS's own tools find it: environment, files, the role of the machine.
            return Session(
                aws_access_key_id=settings.s3_key_id or None,
                aws_secret_access_key=settings.s3_secret or None,
                region_name=settings.s3_region or None,
            ).client(
                "s3",
                endpoint_url=settings.s3_endpoint_url or None,
                config=Config(
                    connect_timeout=CONNECT_TIMEOUT_S,
                    read_timeout=READ_TIMEOUT_S,
                    retries={"total_max_attempts": TRIES, "mode": "standard"},
                    max_pool_connections=32,
                    s3={"addressing_style": "path"} if settings.s3_endpoint_url else None,
                    # Servers that only look like S3 stumble over checksums that nobody asked for. We hash blobs.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                ),
            )

    def _s3(self) -> Any:
        """Return the client; threads that come first together make one."""
        with self._lock:
            return self._client

    def put(self, name: str, path: Path) -> None:
        """Write the content of a file as an object, whole or not at all.

        Raises:
            BlobsUnavailable, BlobsRefused: as their names say.
        """
        from boto3.s3.transfer import TransferConfig  # noqa: PLC0415 - an extra

        how = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=2)
        with _mapped(name):
            self._s3().upload_file(str(path), self._bucket, self._prefix + name, Config=how)

    def mark(self, name: str) -> None:
        """Write an empty object."""
        with _mapped(name):
            self._s3().put_object(Bucket=self._bucket, Key=self._prefix + name, Body=b"")

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of an object.

        Raises:
            NotFound: there is none of this name.
            BlobsUnavailable, BlobsRefused: as their names say.
        """
        with _mapped(name):
            body = self._s3().get_object(Bucket=self._bucket, Key=self._prefix + name)["Body"]
            with contextlib.closing(body):
                yield from body.iter_chunks(READ_BYTES)

    def read(self, name: str, start: int, size_bytes: int) -> bytes:
        """Return `size_bytes` from the place `start` on of an object, fewer where it ends before.

        Raises:
            NotFound: there is none of this name, or it ends before `start`.
            BlobsUnavailable, BlobsRefused: as their names say.
        """
        if not size_bytes:
            return b""
        with _mapped(name):
            found = self._s3().get_object(
                Bucket=self._bucket, Key=self._prefix + name, Range=f"bytes={start}-{start + size_bytes - 1}"
            )
            with contextlib.closing(found["Body"]) as body:
                return bytes(body.read())

    def look(self, name: str) -> Entry | None:
        """Return what there is to know of an object; None where there is none of this name."""
        try:
            with _mapped(name):
                found = self._s3().head_object(Bucket=self._bucket, Key=self._prefix + name)
        except NotFound:
            return None
        return Entry(name, int(found["ContentLength"]), _age_s(found, found["LastModified"]))

    def remove(self, *names: str) -> None:
        """Remove objects; those that are not there are no fault."""
        for name in names:
            with _mapped(name):
                self._s3().delete_object(Bucket=self._bucket, Key=self._prefix + name)

    def entries(self, prefix: str) -> Iterator[Entry]:
        """Yield the objects whose names begin with `prefix`, in the order of their names."""
        with _mapped(prefix):
            pages = self._s3().get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix):
                for one in page.get("Contents", ()):
                    name = str(one["Key"]).removeprefix(self._prefix)
                    yield Entry(name, int(one["Size"]), _age_s(page, one["LastModified"]))


def _age_s(answer: Any, modified: Any) -> float:
    """Return how long ago something was written, by the clock of the store: ours may be wrong."""
    now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    return float((now - modified).total_seconds())


@contextlib.contextmanager
def _mapped(name: str) -> Iterator[None]:
    """Turn errors of the store into ours.

    Raises:
        NotFound, BlobsRefused, BlobsUnavailable: as their names say.
    """
    from boto3.exceptions import Boto3Error  # noqa: PLC0415 - an extra
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - what the body of an answer breaks with

    try:
        yield
    except ClientError as error:
        told = error.response.get("Error", {})
        code, status = str(told.get("Code", "")), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if code in _ABSENT or code == "InvalidRange":
            raise NotFound(f"The object {name} is not in the blob store") from error
        if code in _DENIED or status in {401, 403}:
            raise BlobsRefused(f"The blob store refuses {name or 'us'}: {code}") from error
        raise BlobsUnavailable(f"The blob store cannot serve {name or 'us'}: {code or error}") from error
    except NoCredentialsError as error:
        raise BlobsRefused("There are no credentials for the blob store") from error
    except Boto3Error as error:  # an upload that failed: the reason is inside
        if isinstance(error.__context__, ClientError):
            with _mapped(name):
                raise error.__context__ from error
        raise BlobsUnavailable(f"The blob store did not take {name}: {error}") from error
    except (BotoCoreError, HTTPError, OSError) as error:
        raise BlobsUnavailable(f"The blob store cannot be reached: {error}") from error
