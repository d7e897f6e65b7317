"""Batches that come in several transactions: seen and worked on once all their jobs are there, else gone."""

from sqlalchemy import Connection, delete, select, update

from voicejobs.errors import WrongState
from voicejobs.store.database import Database, now_s
from voicejobs.store.jobs import DRAFT
from voicejobs.store.schema import batches, jobs
from voicejobs.store.states import BatchState

CHUNK_JOBS = 500
DRAFT_LIFE_S = 3600.0
"""A draft that is older was left behind by a process that died."""


def release(connection: Connection, batch_id: str) -> None:
    """Make a batch of a draft, to which no further jobs will come.

    Raises:
        WrongState: it was cancelled or removed meanwhile.
    """
    statement = (
        update(batches)
        .where(batches.c.id == batch_id, batches.c.kind == DRAFT, batches.c.state == BatchState.VALIDATING)
        .values(kind="batch", state=BatchState.IN_PROGRESS, sealed_at=now_s())
    )
    if not connection.execute(statement).rowcount:
        raise WrongState(f"The batch {batch_id} was cancelled before all its jobs were there", retry=True)


def discard(database: Database, batch_id: str) -> None:
    """Remove a draft with its jobs, some at a time; what is no draft stays."""
    some = (
        select(jobs.c.id)
        .join(batches, batches.c.id == jobs.c.batch_id)
        .where(batches.c.id == batch_id, batches.c.kind == DRAFT)
        .order_by(jobs.c.id)
        .limit(CHUNK_JOBS)
    )
    statement = delete(jobs).where(jobs.c.id.in_(some))
    while database.run(lambda connection: connection.execute(statement).rowcount):
        pass
    empty = delete(batches).where(batches.c.id == batch_id, batches.c.kind == DRAFT)
    database.run(lambda connection: connection.execute(empty))


def expire(database: Database) -> int:
    """Remove the drafts that nobody works on any more; return how many there were."""
    old = select(batches.c.id).where(
        batches.c.finished_at.is_(None), batches.c.kind == DRAFT, batches.c.created_at < now_s() - DRAFT_LIFE_S
    )
    with database.read() as connection:
        found = list(connection.execute(old).scalars())
    for batch_id in found:
        discard(database, batch_id)
    return len(found)
