"""Blobs that several machines share: on an object store, with a bounded cache in the local folder; and which store."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from voicejobs.errors import BadOption, BlobsRefused, BlobsUnavailable, NotFound, OutputUnwritable
from voicejobs.settings import Settings
from voicejobs.store.blobs import FRESH_BLOB_S, SHA256_DIGITS, BlobStore, Stored
from voicejobs.store.ids import new_id
from voicejobs.store.object_store import SCHEME, ObjectStore

logger = logging.getLogger(__name__)

IN_USE_S = 600.0
"""A cached blob that was asked for within this time stays, whatever the cache holds: somebody may be opening it."""

TRIM_SHARE = 8
"""The cache is looked through each time that this part of it is new."""

STALE_MARK_S = 60.0
PUBLISH_TRIES = 50
PUBLISH_PAUSE_S = 0.2
MOST_JOBS_KNOWN = 10_000

FILE_SCHEME = "file://"


def blob_store(settings: Settings, *, memory: bool = False) -> BlobStore:
    """Return the blob store that the settings name.

    Args:
        settings: the settings.
        memory: whether short decoded audio may lie in memory; workers ask for that.

    Raises:
        BadOption: the address is none.
    """
    in_memory = settings.memory_dir if memory else None
    url = settings.blobs_url
    if url.startswith(SCHEME):
        return RemoteBlobStore(
            ObjectStore(settings),
            settings.blobs_dir,
            in_memory,
            floor_bytes=settings.disk_floor_bytes,
            cache_bytes=settings.blobs_cache_bytes,
        )
    if url and not url.removeprefix(FILE_SCHEME).startswith("/"):
        raise BadOption(
            f"VOICEJOBS_BLOBS_URL={url!r} is no place for blobs",
            hint="It is s3://bucket/prefix, or the absolute path of a folder that all machines see.",
        )
    return BlobStore(settings.blobs_dir, in_memory, floor_bytes=settings.disk_floor_bytes, is_shared=bool(url))


class RemoteBlobStore(BlobStore):
    """Keep blobs on an object store: `blobs/<2 digits>/<62 digits>`, `parts/<part id>`, `scratch/<file>`.

    What was written or read on this machine stays in its folder as a cache. Decoded audio is shared where another
    machine may go on with it (`share_scratch`), and read from there window by window.

    Args:
        remote: the object store.
        root: the local folder.
        memory: as for `BlobStore`.
        floor_bytes: as for `BlobStore`.
        cache_bytes: size of the blobs that stay in the local folder.
    """

    def __init__(
        self,
        remote: ObjectStore,
        root: Path,
        memory: Path | None = None,
        *,
        floor_bytes: int = 0,
        cache_bytes: int = 10_000_000_000,
    ) -> None:
        super().__init__(root, memory, floor_bytes=floor_bytes, is_shared=True)
        self.remote = remote
        self._cache_bytes = cache_bytes
        self._lock = threading.Lock()
        self._new_bytes = cache_bytes  # what processes before this one have left is looked through at once
        self._jobs_there: dict[str, None] = {}

    def adopt(self, path: Path, stored: Stored) -> None:
        """Make a whole and synced file a blob, here and there."""
        super().adopt(path, stored)
        self._publish(stored.sha256)
        self._trim(stored.size_bytes)

    def _published(self, digest: str) -> None:
        """Write a blob that is in the local folder to the store."""
        self._publish(digest)
        self._trim(super().size_bytes(digest))

    def _publish(self, digest: str) -> None:
        """Write a blob to the store, so that no pruning which had found it old takes it away.

        Whoever prunes marks a blob before the last look at its age. So if there is no mark after we have written, and
        the blob is there, whoever marks it later finds it fresh.
        """
        name = _blob(digest)
        for _ in range(PUBLISH_TRIES):
            self.remote.put(name, self._path(digest))
            mark = self.remote.look(_mark(digest))
            if mark is not None and mark.age_s > STALE_MARK_S:  # whoever set it has died
                self.remote.remove(mark.name)
                mark = None
            if mark is None and self.remote.look(name) is not None:
                return
            time.sleep(PUBLISH_PAUSE_S)
        raise BlobsUnavailable(f"The blob {digest} is being removed by somebody else")

    def has(self, digest: str) -> bool:
        """Tell whether a blob is there."""
        return self.remote.look(_blob(digest)) is not None

    def size_bytes(self, digest: str) -> int:
        """Return the size of a blob, 0 where it is not there."""
        found = self.remote.look(_blob(digest))
        return 0 if found is None else found.size_bytes

    def raw_path(self, digest: str) -> Path:
        """Return where the bytes of a blob can be read on this machine, once they have been fetched.

        Raises:
            NotFound: there is no such blob.
            DiskFull: there is no room for it.
            BlobsUnavailable, BlobsRefused: as their names say.
            OutputUnwritable: what came is not what it should be.
        """
        path = self._path(digest)
        with contextlib.suppress(FileNotFoundError):
            os.utime(path)
            return path
        with self.writer(taken_in=True) as writer:
            try:
                writer.write_all(self.remote.chunks(_blob(digest)))
            except NotFound as error:
                raise NotFound(f"The blob {digest} is not there") from error
            if writer.sha256 != digest:
                raise OutputUnwritable(f"The blob {digest} is damaged", hint="Run the command again with --force.")
            stored = writer.commit(into=super().adopt)
        self._trim(stored.size_bytes)
        return path

    def probe(self) -> str:
        """Write something, read it back and remove it; return the place of the blobs."""
        super().probe()
        name = new_id("probe")
        self.remote.mark(name)
        self.remote.look(name)
        list(self.remote.entries(name))
        self.remote.remove(name)
        return f"{self.remote.place}, cached in {self.root}"

    def digests(self) -> Iterator[str]:
        """Yield the names of all blobs."""
        for entry in self.remote.entries("blobs/"):
            digest = entry.name.removeprefix("blobs/").replace("/", "")
            if len(digest) == SHA256_DIGITS:
                yield digest

    def remove(self, digest: str) -> int | None:
        """Remove a blob that no row names; return its size, or None where it stays, see `BlobStore.remove`."""
        name = _blob(digest)
        found = self.remote.look(name)
        if found is None or found.age_s < FRESH_BLOB_S:
            return None
        self.remote.mark(_mark(digest))
        try:
            found = self.remote.look(name)
            if found is None or found.age_s < FRESH_BLOB_S:
                return None
            self.remote.remove(name)
        finally:
            self.remote.remove(_mark(digest))
        super().remove(digest)  # unless somebody here has just written it, and is about to publish it
        return found.size_bytes

    def keep_part(self, path: Path, part_id: str) -> None:
        """Write a whole file to the store as a part; it is gone from here afterwards."""
        self.remote.put(_part(part_id), path)
        path.unlink()

    def read_part(self, part_id: str) -> Iterator[bytes]:
        """Yield the bytes of a part.

        Raises:
            NotFound: it is not there.
        """
        return self.remote.chunks(_part(part_id))

    def remove_part(self, part_id: str) -> int:
        """Remove a part; return its size, 0 where it is not there."""
        found = self.remote.look(_part(part_id))
        if found is None:
            return 0
        self.remote.remove(found.name)
        return found.size_bytes

    def parts(self, *, older_than_s: float = FRESH_BLOB_S) -> Iterator[tuple[str, int]]:
        """Yield id and size of the parts that were written more than `older_than_s` seconds ago."""
        for entry in self.remote.entries("parts/"):
            if entry.age_s > older_than_s:
                yield entry.name.removeprefix("parts/"), entry.size_bytes

    def share_scratch(self, path: str) -> None:
        """Write a file of decoded audio to the store, where a step on another machine reads it.

        One that is not on this machine was shared by another.
        """
        name = os.path.basename(path)  # noqa: PTH119 - a string, as audio/pcm has it
        self._note(name)
        here = self.scratch_path(name)
        if here is not None:
            self.remote.put(_scratch(name), here)

    def has_scratch(self, name: str) -> bool:
        """Tell whether a file of decoded audio can be read on this machine."""
        return super().has_scratch(name) or self.remote.look(_scratch(name)) is not None

    def read_scratch(self, name: str, start: int, size_bytes: int) -> bytes:
        """Return bytes of a file of decoded audio that another machine has shared.

        Raises:
            NotFound: it is not there.
            BlobsUnavailable, BlobsRefused: as their names say.
        """
        self._note(name)
        return self.remote.read(_scratch(name), start, size_bytes)

    def remove_scratch(self, job_id: str) -> None:
        """Remove whatever decoded audio a job has, here and, as far as this process knows of any, there."""
        super().remove_scratch(job_id)
        with self._lock:
            known = job_id in self._jobs_there
            self._jobs_there.pop(job_id, None)
        if not known:
            return
        try:
            self.remote.remove(*[entry.name for entry in self.remote.entries(_scratch(f"{job_id}."))])
        except (BlobsUnavailable, BlobsRefused) as error:  # the job has ended; whoever sweeps finds it later
            logger.info("decoded audio stays in the blob store for now", extra={"error": error.message})

    def jobs_in_scratch(self, *, older_than_s: float) -> set[str]:
        """Return the ids of the jobs whose decoded audio has lain untouched for `older_than_s` seconds."""
        jobs = super().jobs_in_scratch(older_than_s=older_than_s)
        for entry in self.remote.entries("scratch/"):
            if entry.age_s >= older_than_s:
                name = entry.name.removeprefix("scratch/")
                self._note(name)
                jobs.add(name.partition(".")[0])
        return jobs

    def _note(self, name: str) -> None:
        """Remember that the job of a file has decoded audio in the store."""
        with self._lock:
            self._jobs_there[name.partition(".")[0]] = None
            while len(self._jobs_there) > MOST_JOBS_KNOWN:
                del self._jobs_there[next(iter(self._jobs_there))]

    def _trim(self, new_bytes: int) -> None:
        """Remove from the local folder what was not asked for longest, where it holds more than it should."""
        with self._lock:
            self._new_bytes += new_bytes
            if self._new_bytes < self._cache_bytes // TRIM_SHARE:
                return
            self._new_bytes = 0
        self.trim()

    def trim(self, *, in_use_s: float = IN_USE_S) -> int:
        """Do what `_trim` says now, except to what was used in the last `in_use_s` seconds; return the bytes freed."""
        found = []
        for path in chain.from_iterable(folder.iterdir() for folder in self.root.glob("[0-9a-f][0-9a-f]")):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in found)
        freed, before = 0, time.time() - in_use_s
        for used_at, size, path in sorted(found):
            if total - freed <= self._cache_bytes or used_at > before:
                break
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                freed += size
        return freed


def _blob(digest: str) -> str:
    """Return the name of a blob's object."""
    return f"blobs/{digest[:2]}/{digest[2:]}"


def _mark(digest: str) -> str:
    """Return the name of the mark that says that a blob is about to be removed."""
    return f"removing/{digest}"


def _part(part_id: str) -> str:
    """Return the name of the object of an upload's part."""
    return f"parts/{part_id}"


def _scratch(name: str) -> str:
    """Return the name of the object of a file of decoded audio."""
    return f"scratch/{name}"
