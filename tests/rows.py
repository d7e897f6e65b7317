"""Rows for tests of the store: batches, jobs and their step runs, and what became of them."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any, TypeVar

from sqlalchemy import select, text, update

from tests.waiting import wait_until
from voicejobs import canvas
from voicejobs.pipelines.pipeline import TRANSCRIBE, Pipeline
from voicejobs.store import jobs as rows
from voicejobs.store import leases
from voicejobs.store.database import Database
from voicejobs.store.ids import new_id
from voicejobs.store.jobs import NewJob
from voicejobs.store.leases import Lease
from voicejobs.store.schema import attempts, batches, jobs, step_runs

T = TypeVar("T")

OWNER = "host/boot/1/1"


@contextmanager
def opened(url: str) -> Iterator[Database]:
    """Open a database for the time of a test."""
    database = Database(url, pool_size=24)
    try:
        yield database
    finally:
        database.close()


def new_job(seq: int = 1, pipeline: Pipeline = TRANSCRIBE, **fields: Any) -> NewJob:
    """Return a job of `pipeline` that only the store will see."""
    given: dict[str, Any] = {
        "id": new_id("job"),
        "seq": seq,
        "pipeline": pipeline.name,
        "pipeline_version": pipeline.version,
        "options": pipeline.options({}),
        "source": {"path": "/nowhere.wav"},
        "source_name": "nowhere.wav",
        "step_runs": canvas.first_rows(pipeline),
    }
    return NewJob(**{**given, **fields})


def add_batch(database: Database, *, lane: str = "bulk", sealed: bool = True) -> str:
    """Insert a batch."""
    with database.begin() as connection:
        batch_id = rows.insert_batch(connection, rows.NewBatch(lane, "test", {}))
        if sealed:
            rows.seal_batch(connection, batch_id)
    return batch_id


def add_job(database: Database, batch_id: str = "", *, seq: int = 1, **fields: Any) -> str:
    """Insert a job and return its id."""
    job = new_job(seq, **fields)
    batch_id = batch_id or add_batch(database)
    with database.begin() as connection:
        rows.insert_jobs(connection, batch_id, [job])
    return job.id


def steps(database: Database, job_id: str) -> dict[str, Any]:
    """Return the step runs of a job by node, a fan-out node's by `<node><shard>`."""
    query = select(step_runs).where(step_runs.c.job_id == job_id)
    with database.read() as connection:
        found = connection.execute(query).all()
    counts = {row.node: sum(other.node == row.node for other in found) for row in found}
    return {row.node if counts[row.node] == 1 else f"{row.node}{row.shard}": row for row in found}


def job(database: Database, job_id: str) -> Any:
    """Return the row of a job."""
    with database.read() as connection:
        return connection.execute(select(jobs).where(jobs.c.id == job_id)).one()


def batch(database: Database, batch_id: str) -> Any:
    """Return the row of a batch."""
    with database.read() as connection:
        return connection.execute(select(batches).where(batches.c.id == batch_id)).one()


def story(database: Database, step_run_id: str) -> list[tuple[int, str]]:
    """Return (fencing number, outcome) of the attempts at a step run, in their order."""
    query = select(attempts.c.fence, attempts.c.outcome).where(attempts.c.step_run_id == step_run_id)
    with database.read() as connection:
        return [(row.fence, row.outcome) for row in connection.execute(query.order_by(attempts.c.fence))]


def set_job(database: Database, job_id: str, **values: Any) -> None:
    """Overwrite columns of a job."""
    with database.begin() as connection:
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))


def set_step(database: Database, step_run_id: str, **values: Any) -> None:
    """Overwrite columns of a step run."""
    with database.begin() as connection:
        connection.execute(update(step_runs).where(step_runs.c.id == step_run_id).values(**values))


def claim(database: Database, step_run_id: str, owner: str = OWNER, *, lease_s: float = 60.0) -> Lease | None:
    """Try to take a lease."""
    return leases.claim(database, step_run_id, leases.Claimer(owner, lease_s, "tester", "cpu"))


def hold(database: Database, step_run_id: str, owner: str = OWNER, *, lease_s: float = 60.0) -> Lease:
    """Take a lease that must be free."""
    lease = claim(database, step_run_id, owner, lease_s=lease_s)
    assert lease is not None
    return lease


def succeed(database: Database, lease: Lease, output: Mapping[str, Any] | None = None) -> None:
    """Commit the output of a lease."""
    with database.begin() as connection:
        leases.succeed(connection, lease, output or {}, owner=OWNER)


def at_once(count: int, act: Callable[[int], T]) -> list[T]:
    """Call `act(0)` ... `act(count - 1)` in threads that all begin at the same moment."""
    barrier = Barrier(count)

    def begin(number: int) -> T:
        barrier.wait(30)
        return act(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def _listeners(database: Database) -> list[int]:
    """Return the processes of Postgres that listen here."""
    query = text("SELECT pid FROM pg_stat_activity WHERE application_name = 'voicejobs wakes'"
                 " AND datname = current_database() AND query LIKE 'LISTEN%'")  # fmt: skip
    with database.read() as connection:
        return list(connection.execute(query).scalars())


def cut_listeners(database: Database) -> None:
    """End the connections that listen."""
    cut_off = set(_listeners(database))
    for pid in cut_off:
        with database.begin() as connection:
            connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
    wait_until(lambda: not cut_off & set(_listeners(database)))
