"""Bring files to a service: in parts, each of which is sent once, also by the command that runs after a kill.

What the service has is asked of the service. All that is remembered here, in the state folder, is under which id it
knows a content: `uploads/<hash>.json`, by the address of the service and the SHA-256 of the content.
"""

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from voicejobs.client.service import Service
from voicejobs.errors import (
    DiskFull,
    InputChanged,
    NoSuchRecord,
    NotFound,
    OutputUnwritable,
    Unreadable,
    VoicejobsError,
    WrongState,
)

PART_BYTES = 8 << 20
"""Smaller parts would cost a request each for little; of a larger one more is lost with the line."""
PURPOSE = "user_data"
MEDIA_TYPE = "application/octet-stream"
LIFE_S = 30 * 86_400
"""Time for which the service keeps a file by itself; jobs keep what they need."""
MAX_NAME_CHARS = 200
PENDING, COMPLETED = "pending", "completed"

Sent = Callable[[int], None]
"""Called with the number of bytes that the service has got, or had, since the last call; less than 0 takes back."""


@dataclass(frozen=True, slots=True)
class Upload:
    """Name a file that a service is to have: where it lies, what people call it, and what is in it."""

    path: str
    name: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Notes:
    """Remember under which ids a service knows what was brought there.

    Args:
        folder: where the notes lie, one file each.
        url: address of the service.
    """

    folder: Path
    url: str

    def read(self, digest: str) -> dict[str, Any]:
        """Return what is known of a content; empty for nothing, or for a note that a kill has cut off."""
        try:
            found = json.loads(self._path(digest).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, digest: str, **values: Any) -> None:
        """Remember something of a content in place of what was known.

        Raises:
            DiskFull, OutputUnwritable: as their names say.
        """
        path = self._path(digest)
        with self._writing():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}.part")
            part.write_text(json.dumps({"url": self.url, "sha256": digest, **values}))
            part.replace(path)

    def forget(self, digest: str) -> None:
        """Forget a content.

        Raises:
            DiskFull, OutputUnwritable: as their names say.
        """
        with self._writing():
            self._path(digest).unlink(missing_ok=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Name the folder where it cannot be written."""
        try:
            yield
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise DiskFull(f"No space is left to note what is uploaded, in {self.folder}") from error
            raise OutputUnwritable(
                f"What is known of uploads cannot be noted in {self.folder}: {error.strerror}",
                hint="VOICEJOBS_STATE_DIR names a folder that you can write.",
            ) from error

    def _path(self, digest: str) -> Path:
        """Return the place of a note."""
        return self.folder / f"{sha256(f'{self.url} {digest}'.encode()).hexdigest()[:32]}.json"


def bring(service: Service, notes: Notes, upload: Upload, sent: Sent = lambda count: None) -> str:
    """Return the id under which the service has the file, once it has it whole.

    Raises:
        InputChanged: the file is not what it was when it was hashed.
        NotFound, Unreadable: as their names say.
        ServerUnreachable, VoicejobsError: as `Service.send` raises them.
    """
    known = notes.read(upload.sha256)
    if "file" in known:
        try:
            service.get(f"/v1/files/{known['file']}")
        except NoSuchRecord:
            notes.forget(upload.sha256)
        else:
            sent(upload.size)
            return str(known["file"])
    if upload.size <= PART_BYTES:
        file_id = _send_whole(service, upload)
        sent(upload.size)
    else:
        file_id = _send_large(service, notes, upload, sent)
    notes.write(upload.sha256, file=file_id)
    return file_id


def _send_whole(service: Service, upload: Upload) -> str:
    """Send a small file at once."""
    with _opened(upload) as file:
        data = file.read(upload.size + 1)  # one that has grown without end is not read whole
    _demand_same(upload, sha256(data).hexdigest())
    answer = service.send(
        "POST",
        "/v1/files",
        data={"purpose": PURPOSE, "expires_after[anchor]": "created_at", "expires_after[seconds]": str(LIFE_S)},
        files={"file": (_name(upload), data, MEDIA_TYPE)},
    )
    return str(service.read(answer)["id"])


def _send_large(service: Service, notes: Notes, upload: Upload, sent: Sent) -> str:
    """Send a large file; where its upload ends under us, its time being over, another one is begun, once."""
    told = 0

    def count(more: int) -> None:
        nonlocal told
        told += more
        sent(more)

    try:
        return _send_parts(service, notes, upload, count)
    except (NoSuchRecord, WrongState):
        notes.forget(upload.sha256)
        sent(-told)
        return _send_parts(service, notes, upload, sent)


def _send_parts(service: Service, notes: Notes, upload: Upload, sent: Sent) -> str:
    """Send a file part by part; parts that the service has from before are not sent."""
    begun = _begun(service, notes, upload)
    if begun.get("file"):  # we were ended before we could note that all was there
        sent(upload.size)
        return str(begun["file"]["id"])
    upload_id = str(begun.get("id", ""))
    if not upload_id:
        wish = {
            "filename": _name(upload),
            "purpose": PURPOSE,
            "bytes": upload.size,
            "mime_type": MEDIA_TYPE,
            "expires_after": {"anchor": "created_at", "seconds": LIFE_S},
        }
        upload_id = str(service.post("/v1/uploads", wish)["id"])
        notes.write(upload.sha256, upload=upload_id)
    try:
        part_ids = _send_missing(service, upload_id, upload, sent)
    except InputChanged:  # among its parts are now some that no file wants
        notes.forget(upload.sha256)
        with suppress(VoicejobsError):
            service.post(f"/v1/uploads/{upload_id}/cancel")
        raise
    done = service.post(f"/v1/uploads/{upload_id}/complete", {"part_ids": part_ids})
    return str(done["file"]["id"])


def _send_missing(service: Service, upload_id: str, upload: Upload, sent: Sent) -> list[str]:
    """Send the parts that the service does not have, and return the ids of all, in order.

    Raises:
        InputChanged: the file is not what it was when it was hashed.
    """
    there = parts_there(service, upload_id)
    whole = sha256()
    part_ids = []
    with _opened(upload) as file:
        for data in _parts(file, upload.size):
            whole.update(data)
            digest = sha256(data).hexdigest()
            if digest not in there:
                there[digest] = [_send_part(service, upload_id, data, digest)]
            # Two parts of the same content are two parts: a name may stand only once.
            part_ids.append(there[digest].pop())
            if not there[digest]:
                del there[digest]
            sent(len(data))
        whole.update(file.read(1))  # nothing, unless it has grown
    _demand_same(upload, whole.hexdigest())
    return part_ids


def _name(upload: Upload) -> str:
    """Return the name under which the service lists the file; the path that jobs are known by goes with the batch."""
    return Path(upload.name).name[-MAX_NAME_CHARS:]


def _begun(service: Service, notes: Notes, upload: Upload) -> dict[str, Any]:
    """Return the upload of this content that was begun before, and can be gone on with or is done; empty for none."""
    known = str(notes.read(upload.sha256).get("upload", ""))
    if not known:
        return {}
    try:
        found: dict[str, Any] = service.get(f"/v1/uploads/{known}")
    except (NoSuchRecord, WrongState):
        return {}
    is_of_use = found["status"] == PENDING or (found["status"] == COMPLETED and found.get("file"))
    return found if is_of_use and found["bytes"] == upload.size else {}


def parts_there(service: Service, upload_id: str) -> dict[str, list[str]]:
    """Return the ids of the parts that a service has of an upload, by the SHA-256 of the part."""
    found: dict[str, list[str]] = {}
    for part in service.get(f"/v1/uploads/{upload_id}").get("parts", ()):
        found.setdefault(part["sha256"], []).append(part["id"])
    return found


def _send_part(service: Service, upload_id: str, data: bytes, digest: str) -> str:
    """Send one part, and return its id."""
    answer = service.send(
        "POST",
        f"/v1/uploads/{upload_id}/parts",
        data={"sha256": digest},
        files={"data": ("part", data, MEDIA_TYPE)},
    )
    return str(service.read(answer)["id"])


def _parts(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of a file in parts."""
    while size and (data := file.read(min(PART_BYTES, size))):
        size -= len(data)
        yield data


@contextmanager
def _opened(upload: Upload) -> Iterator[BinaryIO]:
    """Open a file to read it.

    Raises:
        NotFound, Unreadable: as their names say.
    """
    try:
        with Path(upload.path).open("rb") as file:
            yield file
    except FileNotFoundError as error:
        raise NotFound(f"{upload.name} is not there any more") from error
    except OSError as error:
        raise Unreadable(f"{upload.name} cannot be read: {error.strerror}") from error


def _demand_same(upload: Upload, digest: str) -> None:
    """Refuse a file that has changed.

    Raises:
        InputChanged: it has.
    """
    if digest != upload.sha256:
        raise InputChanged(f"{upload.name} has changed while it was uploaded")
