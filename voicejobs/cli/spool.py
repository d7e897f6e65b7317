"""Private files for the time of a command: standard input, which jobs need under a path, and outputs for a pipe.

Each command holds the lock of its folder. What a killed command has left is removed by the next one that spools.
"""

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from voicejobs.cli.inputs import Found
from voicejobs.embedded.stack import make_state_dir
from voicejobs.errors import BadOption
from voicejobs.settings import Settings
from voicejobs.store.blobs import map_os_error

DEFAULT_NAME = "stdin"
_LOCK = "lock"
_CHUNK_BYTES = 1 << 20


@contextmanager
def spool_folder(settings: Settings) -> Iterator[Path]:
    """Make a private folder that is gone after the block.

    Raises:
        DiskFull, OutputUnwritable: it cannot be made.
    """
    parent = spool_parent(settings)
    try:
        make_state_dir(settings)
        parent.mkdir(exist_ok=True, mode=0o700)
        folder, lock = _make(parent)
    except OSError as error:
        raise map_os_error(error, parent) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def spool_parent(settings: Settings) -> Path:
    """Return the folder of all private folders."""
    return settings.state_dir / "spool"


def _make(parent: Path) -> tuple[Path, int]:
    """Sweep, then make a folder and lock it; one command at a time, so that nobody sweeps what is not locked yet."""
    door = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(door, fcntl.LOCK_EX)
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(dir=parent))
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return folder, lock
    finally:
        os.close(door)


def _sweep(parent: Path) -> None:
    """Remove the folders of commands that were killed: nobody holds their lock."""
    for folder in parent.iterdir():
        with contextlib.suppress(OSError):
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def name_of_stdin(given: str | None) -> str:
    """Return the name under which standard input is known.

    Raises:
        BadOption: it is no name of a file.
    """
    name = DEFAULT_NAME if given is None else given
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise BadOption(f"--stdin-name {name!r} is no name of a file", hint="Give a name without folders: talk.mp3.")
    return name


def spool_stdin(folder: Path, name: str) -> Found:
    """Copy standard input into a private file, under its ending: some formats are known by that alone.

    Raises:
        BadOption: it is a terminal.
        DiskFull, OutputUnwritable: as their names say.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise BadOption(
            "Standard input is a terminal", hint="`-` reads a recording from a pipe: cat talk.mp3 | voicejobs ..."
        )
    suffix = os.path.splitext(name)[1][:32]  # noqa: PTH122 - as names of outputs are cut
    path = folder / f"input{suffix}"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            shutil.copyfileobj(sys.stdin.buffer, stream, _CHUNK_BYTES)
    except OSError as error:
        raise map_os_error(error, path) from error
    return Found(os.fspath(path), name)
