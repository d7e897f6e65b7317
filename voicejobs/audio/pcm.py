"""Our own decoded audio on disk: headerless PCM, int16 little-endian, 16 kHz, mono."""

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
_ON_DISK = np.dtype("<i2")


class PcmWriter:
    """Write PCM blocks to a file as they come; counts samples and hashes the bytes on the way.

    Use as a context manager. The file is complete once the block ends without an error; a file that a crash or an
    error left behind is the caller's to remove (write to a temporary name, then rename).

    Args:
        path: file to create or replace.
        fsync: whether the bytes must be on the disk when `close` returns.

    Raises:
        DiskFull: the disk is full.
        OutputUnwritable: the file cannot be created or written.
    """

    def __init__(self, path: str | os.PathLike[str], *, fsync: bool = False) -> None:
        self._path = os.fspath(path)
        self._fsync = fsync
        self._hash = hashlib.sha256()
        self.samples = 0
        try:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _write_error(self._path, error) from error

    def write(self, block: Pcm) -> None:
        """Append a block of samples."""
        data = np.ascontiguousarray(block, dtype=_ON_DISK).view(np.uint8).data
        try:
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            raise _write_error(self._path, error) from error
        self._hash.update(data)
        self.samples += len(block)

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the bytes so far, in hex."""
        return self._hash.hexdigest()

    def close(self) -> None:
        """Close the file, and wait for the disk first where `fsync` is set; a second call does nothing."""
        if self._fd < 0:
            return
        try:
            if self._fsync:
                os.fsync(self._fd)
        except OSError as error:
            raise _write_error(self._path, error) from error
        finally:
            os.close(self._fd)
            self._fd = -1

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
