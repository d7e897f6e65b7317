"""Blobs: immutable bytes named by their SHA-256, the parts of uploads, and the scratch folders of decoded audio."""

import contextlib
import errno
import os
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from hashlib import file_digest, sha256
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

from voicejobs.errors import DiskFull, NotFound, OutputUnwritable, TooLarge
from voicejobs.store.ids import new_id
from voicejobs.store.jobs import NewArtifact

INLINE_LIMIT_BYTES = 32_768
"""Compressed artifacts up to this size live in their row: one file less, and one fsync."""

FRESH_BLOB_S = 3600.0
"""Age below which a blob without a row may belong to a commit that is still to come."""

SHA256_DIGITS = 64

ENCODING, PACKED = "encoding", "deflate"
"""What the meta of an artifact says whose bytes are packed; one that does not is kept as it is."""

COPY_BYTES = 1 << 20
"""How much of a blob is in memory at once."""

SPACE_EVERY_BYTES = 16 << 20
"""Bytes written between two looks at how much of the disk is free."""


class Stored(NamedTuple):
    """Name what was written: SHA-256 in hexadecimal, and bytes."""

    sha256: str
    size_bytes: int


class BlobStore:
    """Keep blobs in a local folder, `<sha256[:2]>/<sha256[2:]>`, and decoded audio as `scratch/<job id>.*`.

    Artifacts are blobs that are packed (`store`, `load`); all others are raw: their name is the hash of their content.

    Args:
        root: the folder.
        memory: folder in memory that outlives processes, for short decoded audio; None for none.
        floor_bytes: free bytes of its disk below which nothing is taken in from outside.
        is_shared: whether other machines use it too; what is in the memory of this one they do not see.
    """

    def __init__(
        self, root: Path, memory: Path | None = None, *, floor_bytes: int = 0, is_shared: bool = False
    ) -> None:
        self.root = root
        self.memory = memory
        self.floor_bytes = floor_bytes
        self.is_shared = is_shared

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

    def scratch_path(self, name: str) -> Path | None:
        """Return where a file of decoded audio lies on this machine; None where it does not."""
        for folder in self._scratch_folders():
            path = folder / name
            if path.is_file():
                return path
        return None

    def has_scratch(self, name: str) -> bool:
        """Tell whether a file of decoded audio can be read on this machine."""
        return self.scratch_path(name) is not None

    def share_scratch(self, path: str) -> None:
        """Let steps on other machines read a file of decoded audio, if there are any: here they see the folder."""

    def read_scratch(self, name: str, start: int, size_bytes: int) -> bytes:
        """Return bytes of a file of decoded audio that lies on no disk of this machine.

        Raises:
            NotFound: it is not there.
        """
        raise NotFound(f"{name}: the decoded audio is not there")

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
            self._published(digest)
        return NewArtifact(
            kind=kind,
            sha256=digest,
            size_bytes=len(packed),
            data=packed if inline else None,
            meta={**meta, ENCODING: PACKED},
        )

    def _published(self, digest: str) -> None:
        """Do what remains to be done once a blob is in the folder: nothing here."""

    def load(self, digest: str, data: bytes | None) -> bytes:
        """Return what `store` was given.

        Raises:
            OutputUnwritable: the blob is damaged.
            NotFound: it is not there.
        """
        packed = self.raw_path(digest).read_bytes() if data is None else bytes(data)
        if sha256(packed).hexdigest() != digest:
            raise OutputUnwritable(f"The blob {digest} is damaged", hint="Run the command again with --force.")
        return zlib.decompress(packed)

    def writer(self, *, limit_bytes: int | None = None, taken_in: bool = False) -> "BlobWriter":
        """Return what a raw blob is written with, piece by piece.

        Args:
            limit_bytes: most bytes that it may have.
            taken_in: whether it comes from outside: then the disk must keep its floor.
        """
        return BlobWriter(self, limit_bytes=limit_bytes, floor_bytes=self.floor_bytes if taken_in else 0)

    def put_stream(
        self, source: BinaryIO | Iterable[bytes], *, limit_bytes: int | None = None, taken_in: bool = False
    ) -> Stored:
        """Keep what a file, or an iterable of bytes, holds as a raw blob, in flat memory.

        Raises:
            DiskFull: there is no space left, or would be none for the work.
            TooLarge: it has more than `limit_bytes`.
        """
        with self.writer(limit_bytes=limit_bytes, taken_in=taken_in) as writer:
            writer.write_all(source)
            return writer.commit()

    def put_file(self, path: Path, *, move: bool = False) -> Stored:
        """Keep the content of a file as a raw blob.

        Args:
            path: the file.
            move: whether the file itself may become the blob, where it lies on the same disk.

        Raises:
            DiskFull, OutputUnwritable: as their names say.
        """
        if not move:
            with path.open("rb") as file:
                return self.put_stream(file)
        try:
            with path.open("rb") as file:
                stored = Stored(file_digest(file, "sha256").hexdigest(), file.tell())
                os.fsync(file.fileno())
            self.adopt(path, stored)
        except OSError as error:
            raise map_blob_error(error) from error
        return stored

    def adopt(self, path: Path, stored: Stored) -> None:
        """Give a file that is whole and synced, and lies on the same disk, the name of its blob."""
        place = self._path(stored.sha256)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.utime(path)  # it is fresh from now on, however long it took to write
        path.replace(place)
        sync_folder(place.parent)

    def has(self, digest: str) -> bool:
        """Tell whether a blob is there."""
        return self._path(digest).is_file()

    def raw_path(self, digest: str) -> Path:
        """Return where the bytes of a blob can be read on this machine.

        Raises:
            NotFound: there is no such blob.
        """
        path = self._path(digest)
        if not path.is_file():
            raise NotFound(f"The blob {digest} is not there")
        return path

    def open_raw(self, digest: str) -> BinaryIO:
        """Open the bytes of a blob as a file that can be sought in.

        Raises:
            NotFound: there is no such blob.
        """
        try:
            return self.raw_path(digest).open("rb")
        except FileNotFoundError as error:
            raise NotFound(f"The blob {digest} is not there") from error

    def store_raw(self, path: Path, kind: str, meta: dict[str, object]) -> NewArtifact:
        """Keep a finished file of ours as it is, in the row where it is small and else as a raw blob, and describe it.

        The file is gone afterwards.

        Raises:
            DiskFull, OutputUnwritable: as their names say.
        """
        try:
            if path.stat().st_size <= INLINE_LIMIT_BYTES:
                data = path.read_bytes()
                path.unlink()
                return self.store_plain(data, kind, meta)
        except OSError as error:
            raise map_blob_error(error) from error
        return _described(self.put_file(path, move=True), kind, meta)

    def store_plain(self, data: bytes, kind: str, meta: dict[str, object]) -> NewArtifact:
        """Keep `data` as it is, in the row where it is small and else as a raw blob, and describe it.

        Raises:
            DiskFull, OutputUnwritable: as their names say.
        """
        if len(data) > INLINE_LIMIT_BYTES:
            return _described(self.put_stream([data]), kind, meta)
        return _described(Stored(sha256(data).hexdigest(), len(data)), kind, meta, data)

    def open_artifact(self, digest: str, data: bytes | None, *, packed: bool) -> BinaryIO:
        """Open the content of an artifact as a file that can be sought in: raw or, where it was packed, unpacked.

        Raises:
            NotFound: its blob is not there.
            OutputUnwritable: it is damaged.
        """
        if packed:
            return BytesIO(self.load(digest, data))
        return self.open_raw(digest) if data is None else BytesIO(bytes(data))

    def work_file(self) -> Path:
        """Make an empty file on the disk of the blobs, for what becomes one; whoever asks removes it."""
        self.incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(dir=self.incoming)
        os.close(descriptor)
        return Path(name)

    def probe(self) -> str:
        """Write something, read it back and remove it; return the place of the blobs.

        Raises:
            DiskFull, OutputUnwritable, BlobsUnavailable, BlobsRefused: as their names say.
        """
        try:
            path = self.work_file()
            path.write_bytes(b"probe")
            path.read_bytes()
            path.unlink()
        except OSError as error:
            raise map_os_error(error, self.root) from error
        return str(self.root)

    @property
    def incoming(self) -> Path:
        """Return the folder of what is being written."""
        return self.root / "incoming"

    def keep_part(self, path: Path, part_id: str) -> None:
        """Give a whole and synced file the name of a part."""
        place = self._part(part_id)
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.replace(place)
        sync_folder(place.parent)

    def read_part(self, part_id: str) -> Iterator[bytes]:
        """Yield the bytes of a part.

        Raises:
            NotFound: it is not there.
        """
        try:
            with self._part(part_id).open("rb") as file:
                yield from chunks_of(file)
        except FileNotFoundError as error:
            raise NotFound(f"The part {part_id} is not there") from error

    def remove_part(self, part_id: str) -> int:
        """Remove a part; return its size, 0 where it is not there."""
        try:
            size = self._part(part_id).stat().st_size
            self._part(part_id).unlink()
        except FileNotFoundError:
            return 0
        return size

    def parts(self, *, older_than_s: float = FRESH_BLOB_S) -> Iterator[tuple[str, int]]:
        """Yield id and size of the parts that were written more than `older_than_s` seconds ago."""
        yield from _old_files(self.root / "parts", older_than_s)

    def remove_leftovers(self) -> int:
        """Remove what processes that died while they wrote have left; return how many bytes."""
        size_bytes = 0
        for name, size in _old_files(self.incoming, FRESH_BLOB_S):
            with contextlib.suppress(FileNotFoundError):
                (self.incoming / name).unlink()
                size_bytes += size
        return size_bytes

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
        return status.st_size  # its folder stays, though it be empty: somebody may be about to write into it

    def _path(self, digest: str) -> Path:
        """Return where a blob lies."""
        return self.root / digest[:2] / digest[2:]

    def _part(self, part_id: str) -> Path:
        """Return where the part of an upload lies."""
        return self.root / "parts" / part_id


class BlobWriter:
    """Write a raw blob, or a part of an upload, as its bytes come; use as a context manager.

    Bytes are counted and hashed on the way. Nothing has the name of a blob before it is whole and on the disk; what
    was not committed when the block ends is removed.

    Args:
        blobs: where it goes.
        limit_bytes: most bytes that it may have; None for any number.
        floor_bytes: free bytes that the disk must keep.
    """

    def __init__(self, blobs: BlobStore, *, limit_bytes: int | None = None, floor_bytes: int = 0) -> None:
        self._blobs = blobs
        self._limit_bytes = limit_bytes
        self._floor_bytes = floor_bytes
        self._hash = sha256()
        self.size_bytes = 0
        self._looked_at = 0
        try:
            self._path: Path | None = blobs.work_file()
            self._file = self._path.open("wb", buffering=0)
        except OSError as error:
            raise map_blob_error(error) from error
        self._demand_space()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes.

        Raises:
            DiskFull: there is no space left, or the disk would fall below its floor.
            TooLarge: there are more than the limit.
        """
        self.size_bytes += len(data)
        if self._limit_bytes is not None and self.size_bytes > self._limit_bytes:
            raise TooLarge(f"There are more than {self._limit_bytes} bytes", limit_bytes=self._limit_bytes)
        self._hash.update(data)
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) or 0 :]
        except OSError as error:
            raise map_blob_error(error) from error
        if self.size_bytes - self._looked_at >= SPACE_EVERY_BYTES:
            self._looked_at = self.size_bytes
            self._demand_space()

    def write_all(self, source: BinaryIO | Iterable[bytes]) -> None:
        """Append what a file, or an iterable of bytes, holds."""
        for chunk in chunks_of(source):
            self.write(chunk)

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the bytes so far, in hexadecimal."""
        return self._hash.hexdigest()

    def commit(self, *, part_id: str = "", into: Callable[[Path, Stored], None] | None = None) -> Stored:
        """Make the blob durable under its name, or that of a part; return what it is.

        Args:
            part_id: id of the part that it is; empty for a blob.
            into: gives the file its name in another way than `BlobStore.adopt`.
        """
        if self._path is None:
            raise ValueError("the blob is written already")
        stored = Stored(self._hash.hexdigest(), self.size_bytes)
        try:
            with self._file:
                os.fsync(self._file.fileno())
            if part_id:
                self._blobs.keep_part(self._path, part_id)
            else:
                (into or self._blobs.adopt)(self._path, stored)
        except OSError as error:
            raise map_blob_error(error) from error
        self._path = None
        return stored

    def discard(self) -> None:
        """Remove what was not committed; a second call does nothing."""
        self._file.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._path = None

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove what was not committed."""
        self.discard()

    def _demand_space(self) -> None:
        """Stop before the disk is so full that work stops."""
        if not self._floor_bytes:
            return
        free_bytes = shutil.disk_usage(self._blobs.incoming).free
        if free_bytes < self._floor_bytes:
            self.discard()
            raise DiskFull(
                f"{free_bytes / 1e9:.1f} GB are free, below the floor of {self._floor_bytes / 1e9:.1f} GB "
                "(VOICEJOBS_DISK_FLOOR_BYTES): nothing is taken in",
                hint="Free some space, then send it again.",
            )


def _described(stored: Stored, kind: str, meta: dict[str, object], data: bytes | None = None) -> NewArtifact:
    """Return what the row of an artifact says of a raw blob, or of bytes that lie in the row itself."""
    return NewArtifact(
        kind=kind, sha256=stored.sha256, size_bytes=stored.size_bytes, data=data, meta=meta, id=new_id("art")
    )


def chunks_of(source: BinaryIO | Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file, or of an iterable of bytes, some at a time."""
    read = getattr(source, "read", None)
    yield from source if read is None else iter(lambda: read(COPY_BYTES), b"")


def map_blob_error(error: OSError) -> DiskFull | OutputUnwritable:
    """Return our error for a blob that cannot be written; who sends one from outside learns no path."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFull("No space is left for blobs")
    return OutputUnwritable(f"A blob cannot be written: {error.strerror}")


def _old_files(folder: Path, older_than_s: float) -> Iterator[tuple[str, int]]:
    """Yield name and size of the files of a folder that have lain untouched for so long."""
    before = time.time() - older_than_s
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        with contextlib.suppress(FileNotFoundError):
            status = entry.stat(follow_symlinks=False)
            if status.st_mtime < before:
                yield entry.name, status.st_size


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
