"""Remove jobs that ended long ago with all that belongs to them, and what nobody owns, safely beside running work.

A job whose transcript another, live job is to deliver stays. A blob goes once no artifact, no file and no job that may
still run is made of it, and nobody has written it within the last hour. What a submission in the same moment may still
find is taken out of its sight first, and removed only when no transaction is left that has seen it.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from sqlalchemy import Connection, delete, exists, func, literal, select, text

from voicejobs.store import files
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database, now_s
from voicejobs.store.prune_rows import count_rows, owned, owners, remove_rows, sources_of
from voicejobs.store.schema import artifacts, batches, jobs, results, step_runs
from voicejobs.store.states import FINAL_JOB, JobState, StepState

CHUNK_JOBS = 500
SNAPSHOT_POLL_S = 0.05
SNAPSHOT_WAIT_S = 60.0
_OPEN_STEPS = (StepState.BLOCKED, StepState.QUEUED, StepState.RUNNING)


@dataclass(slots=True)
class Pruned:
    """Count what was removed, or would be.

    Args:
        jobs: jobs with their step runs, attempts and results.
        batches: batches that have no job left.
        blobs: blobs and parts of uploads, also those that belonged to nothing.
        blob_bytes: their size.
        kept: jobs past their time whose transcript a live job still needs.
        files: files and uploads whose time was over.
        uploads: uploads that ended long ago.
        events: what happened long ago, and all have read who must.
        deliveries: messages to webhooks that were delivered, or given up, long ago.
        keys: answers to requests with a key that nobody may repeat any more.
    """

    jobs: int = 0
    batches: int = 0
    blobs: int = 0
    blob_bytes: int = 0
    kept: int = 0
    files: int = 0
    uploads: int = 0
    events: int = 0
    deliveries: int = 0
    keys: int = 0

    def count(self, rows: Mapping[str, int]) -> None:
        """Add numbers of rows, by name."""
        for name, number in rows.items():
            setattr(self, name, getattr(self, name) + number)


@dataclass(frozen=True, slots=True)
class Rules:
    """Say what goes: jobs that ended more than `older_than_s` seconds ago; failed ones only where so told."""

    older_than_s: float
    keep_failed: bool = False
    dry_run: bool = False


def prune(database: Database, blobs: BlobStore, rules: Rules) -> Pruned:
    """Remove old jobs, their blobs and the batches that they leave empty; the disk's space is free when it returns."""
    if rules.dry_run:
        return _planned(database, blobs, rules)
    pruned = Pruned(files=files.expire(database, blobs))
    after = ""
    while True:
        with database.read() as connection:
            chunk = _old_jobs(connection, rules, after)
            needed = _needed(connection)
        if not chunk:
            break
        after = chunk[-1]
        _prune_jobs(database, blobs, chunk, needed, pruned)
    with database.begin() as connection:
        pruned.batches = _empty_batches(connection)
    pruned.count(remove_rows(database, rules.older_than_s, keep_failed=rules.keep_failed))
    for some in _in_chunks(blobs.digests()):  # also those of workers that died before their commit
        _remove_blobs(database, blobs, some, pruned)
    for part_id, size_bytes in _parts_of_nothing(database, blobs):
        blobs.remove_part(part_id)
        pruned.blobs += 1
        pruned.blob_bytes += size_bytes
    pruned.blob_bytes += blobs.remove_leftovers()
    return pruned


def _planned(database: Database, blobs: BlobStore, rules: Rules) -> Pruned:
    """Count what a real run would remove, and change nothing."""
    pruned = Pruned()
    from_batches: Counter[str] = Counter()
    from_blobs: Counter[str] = Counter()
    after = ""
    while True:
        with database.read() as connection:
            chunk = _old_jobs(connection, rules, after)
            free = _unneeded(connection, chunk, _needed(connection))
            from_batches.update(
                connection.execute(select(jobs.c.batch_id).where(jobs.c.id.in_(free), jobs.c.batch_id.is_not(None)))
                .scalars()
                .all()
            )
            from_blobs.update(_blobs_of(connection, free))
            from_blobs.update(sources_of(connection, free))
        if not chunk:
            break
        after = chunk[-1]
        pruned.jobs += len(free)
        pruned.kept += len(chunk) - len(free)
    with database.read() as connection:
        sizes = select(batches.c.id, func.count(jobs.c.id)).outerjoin(jobs, jobs.c.batch_id == batches.c.id)
        found = connection.execute(sizes.where(batches.c.finished_at.is_not(None)).group_by(batches.c.id))
        pruned.batches = sum(size == from_batches[batch_id] for batch_id, size in found)
    freed = (digest for some in _in_chunks(blobs.digests()) for digest in _freed(database, some, from_blobs))
    for size_bytes in chain(
        (blobs.size_bytes(digest) for digest in freed),
        (size_bytes for _, size_bytes in _parts_of_nothing(database, blobs)),
    ):
        pruned.blobs += 1
        pruned.blob_bytes += size_bytes
    pruned.count(count_rows(database, rules.older_than_s, keep_failed=rules.keep_failed))
    return pruned


def _blobs_of(connection: Connection, job_ids: Sequence[str]) -> list[str]:
    """Return the blobs of the artifacts of some jobs, one as often as an artifact names it."""
    of_jobs = select(artifacts.c.sha256).where(artifacts.c.job_id.in_(job_ids), artifacts.c.data.is_(None))
    return list(connection.execute(of_jobs).scalars())


def _freed(database: Database, digests: Sequence[str], going: Counter[str]) -> list[str]:
    """Return those of the blobs that nothing names but what goes."""
    with database.read() as connection:
        times = owners(connection, digests)
    return [digest for digest in digests if times[digest] == going[digest]]


def _old_jobs(connection: Connection, rules: Rules, after: str) -> list[str]:
    """Return the next jobs that are past their time, by id."""
    states = [state for state in FINAL_JOB if not (rules.keep_failed and state == JobState.FAILED)]
    return list(
        connection.execute(
            select(jobs.c.id)
            .where(jobs.c.id > after, jobs.c.state.in_(states), jobs.c.finished_at < now_s() - rules.older_than_s)
            .order_by(jobs.c.id)
            .limit(CHUNK_JOBS)
        ).scalars()
    )


def _needed(connection: Connection) -> set[str]:
    """Return the artifacts that step runs which have not ended take as inputs."""
    found = connection.execute(
        select(step_runs.c.inputs).where(step_runs.c.state.in_(_OPEN_STEPS), step_runs.c.inputs.like('%"transcript"%'))
    ).scalars()
    return {str(json.loads(inputs).get("transcript")) for inputs in found}


def remove_job(database: Database, blobs: BlobStore, job_id: str, *, wait_s: float = 5.0) -> bool:
    """Remove one job that has ended; False where it stays, since another needs what it has left, or may have seen it.

    Args:
        database: the store.
        blobs: what it has left, as far as nothing else names it, goes too.
        job_id: the job.
        wait_s: how long to wait for transactions that began before.
    """
    removed = Pruned()
    with database.read() as connection:
        needed = _needed(connection)
    _prune_jobs(database, blobs, [job_id], needed, removed, wait_s=wait_s)
    return removed.jobs == 1


def _prune_jobs(
    database: Database,
    blobs: BlobStore,
    chunk: Sequence[str],
    needed: set[str],
    pruned: Pruned,
    *,
    wait_s: float = SNAPSHOT_WAIT_S,
) -> None:
    """Remove some jobs."""
    with database.begin() as connection:
        connection.execute(delete(results).where(results.c.job_id.in_(_unneeded(connection, chunk, needed))))
        mark = None if database.is_sqlite else connection.execute(text("SELECT pg_current_xact_id()::text")).scalar()
    if mark is not None and not _all_have_seen(database, int(mark), wait_s):
        return  # a transaction that began before us is still open: the next run finds these jobs again
    with database.begin() as connection:
        free = _unneeded(connection, chunk, _needed(connection))
        candidates = sorted(set(_blobs_of(connection, free)))
        # One that somebody has taken up again meanwhile stays.
        gone = connection.execute(delete(jobs).where(jobs.c.id.in_(free), jobs.c.state.in_(FINAL_JOB))).rowcount
    pruned.jobs += gone
    pruned.kept += len(chunk) - gone
    _remove_blobs(database, blobs, candidates, pruned)


def _unneeded(connection: Connection, chunk: Sequence[str], needed: set[str]) -> list[str]:
    """Return those of the jobs none of whose artifacts is needed."""
    found = connection.execute(
        select(artifacts.c.job_id).where(artifacts.c.job_id.in_(chunk), artifacts.c.id.in_(sorted(needed)))
    ).scalars()
    busy = set(found)
    return [job_id for job_id in chunk if job_id not in busy]


def _all_have_seen(database: Database, mark: int, wait_s: float) -> bool:
    """Wait until no transaction is open that began before transaction `mark` was committed; False after `wait_s`."""
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        with database.read() as connection:
            oldest = connection.execute(text("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")).scalar_one()
        if int(oldest) > mark:
            return True
        time.sleep(SNAPSHOT_POLL_S)
    return False


def _empty_batches(connection: Connection) -> int:
    """Remove the ended batches without a job; return how many."""
    has_jobs = exists(select(literal(1)).where(jobs.c.batch_id == batches.c.id))
    return int(connection.execute(delete(batches).where(batches.c.finished_at.is_not(None), ~has_jobs)).rowcount)


def _in_chunks(names: Iterator[str]) -> Iterator[list[str]]:
    """Cut a long list."""
    chunk: list[str] = []
    for name in names:
        chunk.append(name)
        if len(chunk) == CHUNK_JOBS:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _unowned(database: Database, digests: Sequence[str]) -> list[str]:
    """Return those of the blobs that nothing names."""
    with database.read() as connection:
        named = owned(connection, digests)
    return [digest for digest in digests if digest not in named]


def _parts_of_nothing(database: Database, blobs: BlobStore) -> Iterator[tuple[str, int]]:
    """Yield id and size of the parts that no upload names: whoever wrote them died before their row."""
    sizes = dict(blobs.parts())
    for some in _in_chunks(iter(sizes)):
        with database.read() as connection:
            living = files.living_parts(connection, some)
        yield from ((part_id, sizes[part_id]) for part_id in some if part_id not in living)


def _remove_blobs(database: Database, blobs: BlobStore, digests: Sequence[str], pruned: Pruned) -> None:
    """Remove those of the blobs that nothing names and that nobody has just written."""
    for digest in _unowned(database, digests):
        size = blobs.remove(digest)
        if size is not None:
            pruned.blobs += 1
            pruned.blob_bytes += size
