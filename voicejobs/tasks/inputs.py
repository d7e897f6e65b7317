"""Look at an input before it is opened: it must be there, readable, and the one that was submitted.

The source of a job names a file by its path, which may change under us, or a blob, which cannot.
"""

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voicejobs.errors import EmptyFile, InputChanged, InputError, NotAudio, NotFound, Unreadable
from voicejobs.store.blobs import BlobStore
from voicejobs.store.paths import BLOB, decode_path, display_name


def opened_path(blobs: BlobStore, source: Mapping[str, Any]) -> str:
    """Return where the bytes of a source can be read on this machine, after a look at them.

    Raises:
        NotFound, Unreadable, NotAudio, EmptyFile, InputChanged: as their names say.
    """
    digest = source.get(BLOB)
    if not digest:
        path = decode_path(source)
        check_unchanged(path, source)
        return path
    if not source["size"]:
        raise EmptyFile(f"{source['name']} holds no bytes")
    try:
        return str(blobs.raw_path(str(digest)))
    except NotFound as error:
        raise NotFound(f"{source['name']} was deleted", hint="Upload it again.") from error


def name_of(source: Mapping[str, Any]) -> str:
    """Return how messages call a source: a blob by its name, whatever its place; empty for a file by its path."""
    return str(source["name"]) if source.get(BLOB) else ""


def check_unchanged(path: str, source: Mapping[str, Any]) -> None:
    """Do nothing where the file at `path` has the size and time that were noted at submission.

    Raises:
        NotFound, Unreadable, NotAudio, EmptyFile, InputChanged: as their names say.
    """
    name = display_name(path)
    try:
        status = Path(path).stat()
    except OSError as error:
        raise unreadable(name, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise NotAudio(f"{name} is not a regular file", hint="Name a file that holds a recording.")
    if status.st_size == 0:
        raise EmptyFile(f"{name} holds no bytes")
    if status.st_size != source["size"] or status.st_mtime_ns != source["mtime_ns"]:
        raise InputChanged(f"{name} was changed after it was submitted")


def check_not_replaced(path: str, source: Mapping[str, Any]) -> None:
    """Do nothing where the file that was just read is still the one that was submitted, or is gone by now.

    Raises:
        InputChanged: it was written to or replaced meanwhile, so that nobody knows what was read.
    """
    if source.get(BLOB):
        return
    try:
        status = Path(path).stat()
    except OSError:
        return  # what was opened stays readable; a later step does not need it
    if status.st_size != source["size"] or status.st_mtime_ns != source["mtime_ns"]:
        raise InputChanged(f"{display_name(path)} was changed while it was read")


def unreadable(name: str, error: OSError) -> InputError:
    """Return our error for an input that the operating system does not give us."""
    if isinstance(error, FileNotFoundError):
        return NotFound(f"{name} is not there")
    return Unreadable(f"{name} cannot be read: {error.strerror}")
