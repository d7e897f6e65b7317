"""Read an input for its hash: what is in a file now, or why it cannot be read."""

import os
import stat
from dataclasses import dataclass
from hashlib import file_digest

from voicejobs.errors import EmptyFile, InputChanged, InputError, NotAudio, Unreadable
from voicejobs.tasks.inputs import unreadable

HASH_NAME = "sha256"


@dataclass(frozen=True, slots=True)
class Content:
    """Tell what was read of a file: SHA-256 in hexadecimal, size in bytes, time of the last change in nanoseconds."""

    sha256: str
    size: int
    mtime_ns: int

    def is_that_of(self, status: os.stat_result) -> bool:
        """Tell whether a file still has the size and the time that it had when it was read."""
        return (status.st_size, status.st_mtime_ns) == (self.size, self.mtime_ns)


def read_content(path: str, name: str) -> Content:
    """Return what is in a file, which errors call `name`.

    Raises:
        NotFound, Unreadable, NotAudio, EmptyFile, InputChanged: as their names say.
    """
    try:
        # O_NONBLOCK: what is a file now may have become a pipe, and opening one would wait for its writer for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            _demand_content(name, status)
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                digest = file_digest(stream, HASH_NAME).hexdigest()
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except InputError:
        raise
    except OSError as error:
        raise unreadable(name, error) from error
    content = Content(digest, status.st_size, status.st_mtime_ns)
    if not content.is_that_of(after):
        raise still_written(name)
    return content


def still_written(name: str) -> InputChanged:
    """Return the error for a file that changes under us."""
    return InputChanged(
        f"{name} is still being written: it changed while it was read",
        hint="Run the command again once whatever writes the file is done.",
    )


def _demand_content(name: str, status: os.stat_result) -> None:
    """Refuse what is no file with something in it.

    Raises:
        Unreadable, NotAudio, EmptyFile: it is a folder, a pipe or a device, or empty.
    """
    if stat.S_ISDIR(status.st_mode):
        raise Unreadable(f"{name} is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise NotAudio(f"{name} is not a regular file", hint="Name a file that holds a recording.")
    if status.st_size == 0:
        raise EmptyFile(f"{name} holds no bytes")
