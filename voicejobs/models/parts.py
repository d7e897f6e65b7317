"""A model file on its way to this machine: hashed while it is written, renamed only when it is right."""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

from voicejobs.errors import BadOption, DiskFull, ModelCorrupt, ModelUnavailable
from voicejobs.models.catalogue import ModelFile
from voicejobs.models.installed import CHUNK_BYTES

SPARE_BYTES = 64 << 20
"""What a pull leaves free on the disk."""


@dataclass(frozen=True, slots=True)
class PullEvent:
    """Tell how far a pull is.

    Args:
        model: catalogue name.
        text: what is going on, for people.
        done: bytes so far of what `text` names.
        total: bytes to come to; 0 where nobody knows.
    """

    model: str
    text: str
    done: int = 0
    total: int = 0


_NO_FOLDER = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
"""What the operating system says where no other attempt can help."""

Progress = Callable[[PullEvent], None]


@dataclass(slots=True)
class Job:
    """Carry what every source needs to know of one pull.

    Args:
        model: catalogue name.
        folder: folder that the files go to.
        progress: called with each event.
    """

    model: str
    folder: Path
    progress: Progress
    _last: tuple[str, int] = field(default=("", 0), init=False)

    def tell(self, text: str, done: int = 0, total: int = 0) -> None:
        """Report an event; the same one is not told twice."""
        if (text, done) != self._last:
            self._last = (text, done)
            self.progress(PullEvent(self.model, text, done, total))


class PartFile:
    """Write `<name>.part` beside its destination; what is there from an earlier, cut-off pull can be kept.

    A context manager: leaving the block closes the file and keeps what was written, for the next pull to go on.
    """

    def __init__(self, folder: Path, file: ModelFile) -> None:
        self.file = file
        self.destination = folder / file.name
        self.path = folder / f"{file.name}.part"
        self.size = 0
        self._digest = sha256()
        self._stream = self.path.open("ab")

    def __enter__(self) -> Self:
        """Return the part itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file; the bytes stay."""
        self._stream.close()

    def resume(self) -> int:
        """Take over the bytes of an earlier pull and return their number."""
        self._stream.flush()
        self._digest, self.size = sha256(), 0
        with self.path.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                self._digest.update(chunk)
                self.size += len(chunk)
        if self.size > self.file.bytes:
            self.restart()
        return self.size

    def restart(self) -> None:
        """Forget all bytes."""
        self._stream.truncate(0)
        self._digest, self.size = sha256(), 0

    def write(self, chunk: bytes) -> None:
        """Append bytes.

        Raises:
            ModelCorrupt: the content is longer than the catalogue says; nothing past that is written.
        """
        if self.size + len(chunk) > self.file.bytes:
            self.restart()
            raise ModelCorrupt(f"{self.file.name} is longer than the {self.file.bytes} bytes of the catalogue")
        self._stream.write(chunk)
        self._digest.update(chunk)
        self.size += len(chunk)

    def commit(self) -> None:
        """Put the file in its place if it is complete and right.

        Raises:
            ModelCorrupt: it is not the file of the catalogue; the bytes are dropped.
        """
        found = self._digest.hexdigest()
        if found != self.file.sha256:
            self.restart()
            raise ModelCorrupt(f"{self.file.name} has SHA-256 {found}, the catalogue names {self.file.sha256}")
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self.path.replace(self.destination)
        sync_folder(self.destination.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_space(folder: Path, needed: int) -> None:
    """Check that the disk has room before anything is fetched.

    Raises:
        DiskFull: it has not.
    """
    free = shutil.disk_usage(folder).free
    if free < needed + SPARE_BYTES:
        raise DiskFull(
            f"{folder} has {free / 1e6:.0f} MB free, and the pull needs {(needed + SPARE_BYTES) / 1e6:.0f} MB",
            hint="Free some space, or set VOICEJOBS_MODELS_DIR to a folder on a larger disk.",
            free=free,
            needed=needed + SPARE_BYTES,
        )


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn what the operating system says about the models folder into our errors.

    Raises:
        DiskFull: no space, or no quota.
        BadOption: the folder cannot be made or written.
        ModelUnavailable: something else went wrong on the disk.
    """
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise DiskFull(f"no space left for model files in {folder}") from error
        if error.errno in _NO_FOLDER:
            raise BadOption(
                f"The models folder {folder} cannot be written: {error.strerror}",
                hint="Set VOICEJOBS_MODELS_DIR to a folder that you can write.",
            ) from error
        raise ModelUnavailable(
            f"the pull into the models folder {folder} failed: {error}",
            hint="Run the command again; if that fails too, set VOICEJOBS_MODELS_DIR to a folder on another disk.",
        ) from error


def remove_quietly(path: Path) -> None:
    """Remove a file or a folder with all in it, if it is there and can be removed."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
