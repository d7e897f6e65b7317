"""Our own decoded audio on disk: headerless PCM, int16 little-endian, 16 kHz, mono."""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from voicejobs.audio.types import Pcm, Span
from voicejobs.errors import DiskFull, Internal, NotFound, OutputUnwritable

BYTES_PER_SAMPLE = 2
BLOCK_SAMPLES = 160_000
SMALL_BYTES = 1 << 20
"""Half a minute of PCM: recordings up to this length need no file on a disk."""
_ON_DISK = np.dtype("<i2")


def _private(path: str, flags: int) -> int:
    """Open a file that only our user can read."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class PcmWriter:
    """Write PCM blocks to a file as they come; counts samples and hashes the bytes on the way.

    Use as a context manager. The file is complete once the block ends without an error; a file that a crash or an
    error left behind is the caller's to remove (write to a temporary name, then rename).

    Args:
        path: file to create or replace.
        fsync: whether the bytes must be on the disk when `close` returns.
        small_path: where a recording of up to `SMALL_BYTES` goes instead, unsynced, if there is room: memory that
            outlives the process. `path` of the writer tells which it was.

    Raises:
        DiskFull: the disk is full.
        OutputUnwritable: the file cannot be created or written.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, fsync: bool = False, small_path: str | os.PathLike[str] | None = None
    ) -> None:
        self.path = os.fspath(path)
        self._small_path = None if small_path is None else os.fspath(small_path)
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._fsync = fsync
        self._hash = hashlib.sha256()
        self.samples = 0
        self._fd = -1
        self._is_closed = False
        if self._small_path is None:
            self._open()

    def _open(self) -> None:
        """Create the file, with what was held back until now."""
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _write_error(self.path, error) from error
        held, self._held = self._held, []
        for data in held:
            self._append(data)

    def write(self, block: Pcm) -> None:
        """Append a block of samples."""
        data = np.ascontiguousarray(block, dtype=_ON_DISK).view(np.uint8).data
        self._hash.update(data)
        self.samples += len(block)
        if self._fd < 0:
            self._held.append(bytes(data))
            self._held_bytes += len(data)
            if self._held_bytes > SMALL_BYTES:
                self._open()
        else:
            self._append(data)

    def _append(self, data: bytes | memoryview) -> None:
        """Write bytes to the file."""
        try:
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            raise _write_error(self.path, error) from error

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the bytes so far, in hex."""
        return self._hash.hexdigest()

    def close(self) -> None:
        """Close the file, and wait for the disk first where `fsync` is set; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._fd < 0 and self._small_path is not None:
            if self._kept_small(self._small_path):
                return
            self._open()
        try:
            if self._fsync:
                os.fsync(self._fd)
        except OSError as error:
            raise _write_error(self.path, error) from error
        finally:
            os.close(self._fd)
            self._fd = -1

    def _kept_small(self, path: str) -> bool:
        """Write what is held to `path` in one go; False where that cannot be done."""
        try:
            with open(path, "wb", buffering=0, opener=_private) as file:
                file.write(b"".join(self._held))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - a string, as everywhere in this class
            return False
        self.path, self._held = path, []
        return True

    def release(self) -> None:
        """Close the writer after an error, and leave what it has written; what it only held is lost."""
        self._is_closed = True
        self._held = []
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def discard(self) -> None:
        """Close the writer and remove what it has written, after an error."""
        self.release()
        with contextlib.suppress(OSError):
            os.unlink(self.path)  # noqa: PTH108 - see above

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()


def read_window(path: str | os.PathLike[str], span: Span) -> Pcm:
    """Return the samples of `span` from one of our PCM files, by `pread` alone: no mapping, no shared position.

    Raises:
        NotFound: the file is not there.
        Internal: the file is shorter than `span` asks for.
    """
    fd = _open_for_reading(path)
    try:
        return _read_samples(fd, path, span)
    finally:
        os.close(fd)


def read_blocks(path: str | os.PathLike[str], block_samples: int = BLOCK_SAMPLES) -> Iterator[Pcm]:
    """Yield a PCM file from its start in blocks of `block_samples`; the last may be shorter."""
    fd = _open_for_reading(path)
    try:
        total_samples = os.fstat(fd).st_size // BYTES_PER_SAMPLE
        for start in range(0, total_samples, block_samples):
            yield _read_samples(fd, path, Span(start, min(start + block_samples, total_samples)))
    finally:
        os.close(fd)


def count_samples(path: str | os.PathLike[str]) -> int:
    """Return how many samples a PCM file holds."""
    try:
        return Path(path).stat().st_size // BYTES_PER_SAMPLE
    except FileNotFoundError as error:
        raise NotFound(f"{os.fspath(path)}: the decoded audio is not there") from error


def _open_for_reading(path: str | os.PathLike[str]) -> int:
    """Open a PCM file."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFound(f"{os.fspath(path)}: the decoded audio is not there") from error


def _read_samples(fd: int, path: str | os.PathLike[str], span: Span) -> Pcm:
    """Read exactly the samples of `span`."""
    samples = np.empty(span.length_samples, dtype=_ON_DISK)
    data = samples.view(np.uint8).data
    done = 0
    while done < len(data):
        count = os.preadv(fd, [data[done:]], span.start_samples * BYTES_PER_SAMPLE + done)
        if count == 0:
            raise Internal(
                f"{os.fspath(path)}: the decoded audio ends before sample {span.end_samples}",
                start_samples=span.start_samples,
                end_samples=span.end_samples,
            )
        done += count
    return samples.astype(np.int16, copy=False)


def _write_error(path: str, error: OSError) -> DiskFull | OutputUnwritable:
    """Return the error of the tree for a failed write."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFull(f"{path}: no space left for the decoded audio")
    return OutputUnwritable(f"{path}: the decoded audio cannot be written ({error.strerror})")
