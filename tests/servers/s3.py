"""A server that speaks S3, for tests: moto's, in threads of the process that asks for it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import boto3
from moto.server import ThreadedMotoServer

from voicejobs.settings import Settings

KEY_ID, SECRET, REGION = "tester", "of no value", "us-east-1"


@dataclass(frozen=True)
class S3:
    """Name a server and a bucket of it that is empty."""

    endpoint_url: str
    bucket: str

    @property
    def variables(self) -> dict[str, str]:
        """Return the settings that lead here."""
        return {
            "blobs_url": f"s3://{self.bucket}/some/prefix",
            "s3_endpoint_url": self.endpoint_url,
            "s3_region": REGION,
            "s3_key_id": KEY_ID,
            "s3_secret": SECRET,
        }

    def settings(self, settings: Settings) -> Settings:
        """Return settings that lead here."""
        return replace(settings, **self.variables)  # type: ignore[arg-type]

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of all objects below our prefix that begin with this one."""
        start = "some/prefix/"
        found = client(self.endpoint_url).list_objects_v2(Bucket=self.bucket, Prefix=start + prefix)
        return [one["Key"].removeprefix(start) for one in found.get("Contents", ())]


def client(endpoint_url: str) -> Any:
    """Return a client of the server."""
    return boto3.client(
        "s3", endpoint_url=endpoint_url, region_name=REGION, aws_access_key_id=KEY_ID, aws_secret_access_key=SECRET
    )


@contextmanager
def serving() -> Iterator[str]:
    """Run a server for the time of a block, and yield its address."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def new_bucket(endpoint_url: str) -> S3:
    """Make an empty bucket."""
    bucket = f"test-{uuid4().hex[:12]}"
    client(endpoint_url).create_bucket(Bucket=bucket)
    return S3(endpoint_url, bucket)
