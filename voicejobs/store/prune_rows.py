"""Remove rows of the service that are past their time, and tell what else names a blob.

What somebody still has to read stays: an event that a reader has not come to, a delivery that is owed.
"""

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, or_, select, tuple_

from voicejobs.store.database import Database, now_s
from voicejobs.store.events import past as past_events
from voicejobs.store.files import PENDING
from voicejobs.store.paths import BLOB
from voicejobs.store.schema import artifacts, deliveries, events, files, idempotency_keys, jobs, uploads
from voicejobs.store.states import JobState

CHUNK_ROWS = 5_000
ANSWERS_KEPT_S = 24 * 3600.0
"""Answers to requests with a key are kept for so long, however long all else is."""

_NAMES_BLOB = jobs.c.source.like(f'%"{BLOB}"%')


def past_their_time(older_than_s: float, *, keep_failed: bool) -> dict[str, tuple[Table, ColumnElement[bool]]]:
    """Return tables of the service, by what is counted, with the condition under which a row of theirs goes."""
    before = now_s() - older_than_s
    ended = ("delivered", "dropped") if keep_failed else ("delivered", "dropped", "failed")
    return {
        "events": (events, past_events(before)),
        "deliveries": (deliveries, and_(deliveries.c.state.in_(ended), deliveries.c.finished_at < before)),
        "keys": (idempotency_keys, idempotency_keys.c.created_at < now_s() - ANSWERS_KEPT_S),
        "uploads": (uploads, and_(uploads.c.state != PENDING, uploads.c.created_at < before)),
    }


def count_rows(database: Database, older_than_s: float, *, keep_failed: bool) -> Counter[str]:
    """Return how many rows would go, and how many files and uploads would end, since their time is over."""
    late = {"files": (files, files.c.expires_at < now_s())}
    with database.read() as connection:
        return Counter(
            {
                name: int(connection.execute(select(func.count()).select_from(table).where(condition)).scalar_one())
                for name, (table, condition) in {
                    **past_their_time(older_than_s, keep_failed=keep_failed),
                    **late,
                }.items()
            }
        )


def remove_rows(database: Database, older_than_s: float, *, keep_failed: bool) -> Counter[str]:
    """Remove what is past its time, some at a time, and return how many rows of each kind."""
    removed: Counter[str] = Counter()
    for name, (table, condition) in past_their_time(older_than_s, keep_failed=keep_failed).items():
        key = tuple(table.primary_key.columns)
        some = select(*key).where(condition).limit(CHUNK_ROWS)
        statement = delete(table).where(tuple_(*key).in_(some))
        while True:
            with database.begin() as connection:
                count = int(connection.execute(statement).rowcount)
            removed[name] += count
            if count < CHUNK_ROWS:
                break
    return removed


def owned(connection: Connection, digests: Sequence[str]) -> set[str]:
    """Return those of the blobs that an artifact, a file, or a job that may still run is made of.

    Jobs are looked through only for what is left: their inputs have no index.
    """
    found: set[str] = set()
    for column in (artifacts.c.sha256, files.c.sha256):
        found.update(connection.execute(select(column).where(column.in_(digests))).scalars())
    left = [digest for digest in digests if digest not in found]
    if left:
        found.update(connection.execute(select(jobs.c.input_sha256).where(_needs(left))).scalars())
    return found


def owners(connection: Connection, digests: Sequence[str]) -> Counter[str]:
    """Return how many rows name each of the blobs, without the files whose time is over."""
    found: Counter[str] = Counter()
    current = or_(files.c.expires_at.is_(None), files.c.expires_at > now_s())
    for column, condition in (
        (artifacts.c.sha256, artifacts.c.sha256.in_(digests)),
        (files.c.sha256, and_(files.c.sha256.in_(digests), current)),
        (jobs.c.input_sha256, _needs(digests)),
    ):
        counted = select(column, func.count()).where(condition).group_by(column)
        found.update({str(digest): int(times) for digest, times in connection.execute(counted)})
    return found


def sources_of(connection: Connection, job_ids: Sequence[str]) -> list[str]:
    """Return the blobs that jobs would need to run again, one as often as a job names it."""
    query = select(jobs.c.input_sha256).where(jobs.c.id.in_(job_ids), jobs.c.state != JobState.SUCCEEDED, _NAMES_BLOB)
    return [str(digest) for digest in connection.execute(query).scalars()]


def _needs(digests: Sequence[str]) -> ColumnElement[bool]:
    """Return the condition that a job has one of these blobs as its input, and has not succeeded: it may run again."""
    return and_(jobs.c.input_sha256.in_(digests), jobs.c.state != JobState.SUCCEEDED, _NAMES_BLOB)
