"""Which of many jobs that were submitted alone goes to the workers next."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event

from tests import rows
from voicejobs import dispatch
from voicejobs.store import jobs as store
from voicejobs.store import outbox
from voicejobs.store.database import Database

WINDOW_JOBS = 4


def add_alone(connection: Connection, priority: int, tenant: str = "default") -> str:
    """Insert a job with a batch for itself."""
    new = store.NewBatch("bulk", "alone", {}, tenant=tenant, kind="single", watched=True)
    batch_id = store.insert_batch(connection, new)
    job = rows.new_job(priority=priority, watched=True)
    store.insert_jobs(connection, batch_id, [job], tenant=tenant)
    store.seal_batch(connection, batch_id)
    return job.id


@contextmanager
def counted(connection: Connection) -> Iterator[list[str]]:
    """Note the statements of a block."""
    seen: list[str] = []

    def note(*words: Any) -> None:
        seen.append(words[2])

    event.listen(connection, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(connection, "before_cursor_execute", note)


def test_jobs_alone_go_by_priority_and_tenants_in_turn(database: Database) -> None:
    """Tenants take turns; of one tenant's jobs the least priority is next, the oldest first among equals."""
    with database.begin() as connection:
        late, early, soon = (add_alone(connection, priority) for priority in (100, 100, 5))
        other = add_alone(connection, 900, "other")
        found = dispatch._next_of_lane(connection, outbox.open_batches(connection), WINDOW_JOBS)
    assert [row.id for row in found] == [soon, other, late, early]


def test_only_those_that_are_taken_are_asked_for(database: Database) -> None:
    """However many batches are open, choosing takes one statement for each job that is chosen, and one for all."""
    with database.begin() as connection:
        for _ in range(50):
            add_alone(connection, 100)
        with counted(connection) as seen:
            found = dispatch._next_of_lane(connection, outbox.open_batches(connection), WINDOW_JOBS)
    assert len(found) == WINDOW_JOBS
    assert len(seen) == WINDOW_JOBS + 1
