"""Blobs: immutable bytes named by their SHA-256, and the scratch folders of decoded audio."""

import contextlib
import errno
import os
import stat
import tempfile
import time
import zlib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from voicejobs.errors import DiskFull, OutputUnwritable
from voicejobs.store.jobs import NewArtifact

INLINE_LIMIT_BYTES = 32_768
"""Compressed artifacts up to this size live in their row: one file less, and one fsync."""

FRESH_BLOB_S = 3600.0
"""Age below which a blob without a row may belong to a commit that is still to come."""

SHA256_DIGITS = 64


class BlobStore:
    """Keep blobs in a local folder, `<sha256[:2]>/<sha256[2:]>`, and decoded audio as `scratch/<job id>.*`.

    Args:
        root: the folder.
        memory: folder in memory that outlives processes, for short decoded audio; None for none.
    """

    def __init__(self, root: Path, memory: Path | None = None) -> None:
        self.root = root
        self.memory = memory

    @property
    def scratch(self) -> Path:
        """Return the folder of decoded audio; the names in it begin with the id of their job."""
        return self.root / "scratch"

    def make_folders(self) -> None:
        """Make the folders, once for each process."""
        self.scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.memory is not None and not _is_private(self.memory):
            self.memory = None

    def _scratch_folders(self) -> list[Path]:
        """Return the folders in which decoded audio may lie."""
        return [self.scratch] if self.memory is None else [self.memory, self.scratch]

    def remove_scratch(self, job_id: str) -> None:
        """Remove whatever decoded audio a job has, as far as that can be done: its job has been committed by now."""
        prefix = f"{job_id}."
        for folder in self._scratch_folders():
            with contextlib.suppress(OSError):
                for name in os.listdir(folder):  # noqa: PTH208 - once for each job: pathlib costs ten times as much
                    if name.startswith(prefix):
                        (folder / name).unlink(missing_ok=True)

    def jobs_in_scratch(self, *, older_than_s: float) -> set[str]:
        """Return the ids of the jobs whose decoded audio has lain untouched for `older_than_s` seconds."""
        before = time.time() - older_than_s
        jobs = set()
        for folder in self._scratch_folders():
            for path in folder.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_mtime < before:
                        jobs.add(path.name.partition(".")[0])
        return jobs

    def store(self, data: bytes, kind: str, meta: dict[str, object]) -> NewArtifact:
        """Keep `data` compressed, in the row where it is small and else as a blob, and describe it.

        Raises:
            DiskFull: there is no space left.
        """
        packed = zlib.compress(data, 6)
        digest = sha256(packed).hexdigest()
        inline = len(packed) <= INLINE_LIMIT_BYTES
        if not inline:
            write_atomic(self._path(digest), packed)
        return NewArtifact(
            kind=kind,
            sha256=digest,
            size_bytes=len(packed),
            data=packed if inline else None,
            meta={**meta, "encoding": "deflate"},
        )

    def load(self, digest: str, data: bytes | None) -> bytes:
        """Return what `store` was given.

        Raises:
            OutputUnwritable: the blob is damaged.
        """
        packed = self._path(digest).read_bytes() if data is None else bytes(data)
        if sha256(packed).hexdigest() != digest:
            raise OutputUnwritable(f"The blob {digest} is damaged", hint="Run the command again with --force.")
        return zlib.decompress(packed)

    def digests(self) -> Iterator[str]:
        """Yield the names of all blobs."""
        for folder in self.root.glob("[0-9a-f][0-9a-f]"):
            for path in folder.iterdir():
                digest = folder.name + path.name
                if len(digest) == SHA256_DIGITS:
                    yield digest

    def size_bytes(self, digest: str) -> int:
        """Return the size of a blob, 0 where it is not there."""
        try:
            return self._path(digest).stat().st_size
        except FileNotFoundError:
            return 0

    def remove(self, digest: str) -> int | None:
        """Remove a blob that no row names; return its size, or None where it stays.

        One written within the last hour stays: its row may be about to be committed. To look and to remove are one
        step for whoever writes the same bytes meanwhile: the file is put aside, looked at, and put back if it is fresh.
        """
        path = self._path(digest)
        aside = path.with_name(f".{path.name}.aside")
        try:
            if time.time() - path.stat().st_mtime < FRESH_BLOB_S:
                return None
            path.replace(aside)
            status = aside.stat()
            if time.time() - status.st_mtime < FRESH_BLOB_S:
                aside.replace(path)
                return None
            aside.unlink()
        except FileNotFoundError:
            return None
        with contextlib.suppress(OSError):
            path.parent.rmdir()  # only where it is empty
        return status.st_size

    def _path(self, digest: str) -> Path:
        """Return where a blob lies."""
        return self.root / digest[:2] / digest[2:]


def _is_private(folder: Path) -> bool:
    """Make a folder that only our user can open, in a place where others may write; False where that fails."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def write_atomic(path: Path, data: bytes, *, mode: int = 0o600, part: Path | None = None) -> None:
    """Write `data` so that `path` holds all of it or what it held before, also after a power cut.

    Args:
        path: the file.
        data: its new content.
        mode: its permissions.
        part: name of the temporary file beside it, for callers that clean up after a crash; a fresh one if left out.

    Raises:
        DiskFull: there is no space left.
        OutputUnwritable: the folder cannot be written.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if part is None:
            descriptor, temporary = tempfile.mkstemp(prefix=".voicejobs-", suffix=".part", dir=path.parent)
        else:
            temporary = str(part)
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(temporary).replace(path)
        temporary = None
        sync_folder(path.parent)
    except OSError as error:
        raise map_os_error(error, path) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def map_os_error(error: OSError, path: Path) -> DiskFull | OutputUnwritable:
    """Return our error for a failed write."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFull(f"No space is left to write {str(path)!r}")
    return OutputUnwritable(f"Cannot write {str(path)!r}: {error.strerror}")
