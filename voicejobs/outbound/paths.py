"""Sources by path: only files below the folders that the operator has named, and what was checked is what is read."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import PurePosixPath

from voicejobs.errors import AddressRefused, BadOption, EmptyFile, InputChanged, InputError, NotFound, Unreadable
from voicejobs.settings import PREFIX

CHUNK_BYTES = 1 << 20
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""O_NONBLOCK: opening a pipe would wait for its writer for ever."""
_HINT = f"{PREFIX}SOURCE_PATH_ROOTS names the folders whose files may be named."


def roots_of(setting: str) -> list[PurePosixPath]:
    """Return the folders of the setting, commas between them.

    Raises:
        BadOption: one is not absolute, or not in its plain form.
    """
    roots = [PurePosixPath(word.strip()) for word in setting.split(",") if word.strip()]
    for root in roots:
        if not root.is_absolute() or ".." in root.parts or str(root).startswith("//"):
            raise BadOption(f"{PREFIX}SOURCE_PATH_ROOTS names {str(root)!r}", hint="Name folders by absolute paths.")
    return roots


def check_path(roots: Sequence[PurePosixPath], path: str) -> tuple[PurePosixPath, tuple[str, ...]]:
    """Return the root that a path lies below, and its parts from there; the file system is not asked.

    Raises:
        AddressRefused: it lies below none, or is not written in its plain form.
    """
    words = path.split("/")
    plain = path.startswith("/") and "\0" not in path and not {"", ".", ".."} & set(words[1:])
    for root in roots if plain else ():
        begin = len(root.parts)
        parts = PurePosixPath(path).parts
        if parts[:begin] == root.parts and len(parts) > begin:
            return root, parts[begin:]
    raise AddressRefused("The path does not lie in a folder whose files may be named", hint=_HINT)


def read_beneath(
    roots: Sequence[PurePosixPath], path: str, name: str, check: Callable[[], None] = lambda: None
) -> Iterator[bytes]:
    """Yield the bytes of a regular file below one of `roots`, which errors call `name`.

    Each folder on the way is opened from the one before, and no link is followed: who renames files meanwhile gets no
    other file read. A file that has further names is refused, since one of them may lie outside.

    Args:
        roots: the folders.
        path: the file.
        name: how people know it.
        check: called between two chunks, to stop.

    Raises:
        AddressRefused: it may not be read.
        NotFound, Unreadable, EmptyFile, InputChanged: as their names say.
    """
    root, parts = check_path(roots, path)
    descriptor = _open(root, parts, name)
    try:
        before = os.fstat(descriptor)
        _demand_file(before, name)
        while chunk := os.read(descriptor, CHUNK_BYTES):
            check()
            yield chunk
        after = os.fstat(descriptor)
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise InputChanged(f"{name} changed while it was read")
    except OSError as error:
        raise Unreadable(f"{name} cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _open(root: PurePosixPath, parts: Sequence[str], name: str) -> int:
    """Open a file, folder by folder.

    Raises:
        AddressRefused: there is a link on the way, or a file where a folder should be.
        NotFound, Unreadable: it is not there, or the operating system does not give it.
    """
    folder = -1
    try:
        # The root itself may be a link: it is the operator's word.
        folder = os.open(root, _FOLDER_FLAGS & ~os.O_NOFOLLOW)
        for part in parts[:-1]:
            inner = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(parts[-1], _FILE_FLAGS, dir_fd=folder)
    except OSError as error:
        raise _unopened(error, name) from error
    finally:
        if folder >= 0:
            with suppress(OSError):
                os.close(folder)


def _unopened(error: OSError, name: str) -> InputError:
    """Return our error for a file that could not be opened."""
    if isinstance(error, FileNotFoundError):
        return NotFound(f"{name} is not there")
    if isinstance(error, PermissionError):
        return Unreadable(f"{name} cannot be read: {error.strerror}")
    # ELOOP, ENOTDIR: a link; ENXIO: a socket; ENAMETOOLONG and the like cannot be a file that is there.
    return AddressRefused(f"{name} is no regular file, or lies behind a link", hint=_HINT)


def _demand_file(status: os.stat_result, name: str) -> None:
    """Refuse what is no plain file with something in it.

    Raises:
        AddressRefused, EmptyFile: it is something else, has further names, or is empty.
    """
    if not stat.S_ISREG(status.st_mode):
        raise AddressRefused(f"{name} is no regular file", hint=_HINT)
    if status.st_nlink != 1:
        raise AddressRefused(f"{name} has further names (hard links), which may lie elsewhere", hint="Copy the file.")
    if status.st_size == 0:
        raise EmptyFile(f"{name} holds no bytes")
