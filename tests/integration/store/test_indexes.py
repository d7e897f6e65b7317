"""The queries that run for every job use their partial indexes, so that a long queue costs no more than a short one."""

from collections.abc import Iterator

import pytest
from sqlalchemy import event, text

from voicejobs.store import figures, outbox
from voicejobs.store.database import Database
from voicejobs.store.expiry import expire_jobs
from voicejobs.store.jobs import complete_batches, end_cancelled


@pytest.fixture
def database(sqlite_url: str) -> Iterator[Database]:
    """Give a migrated SQLite store."""
    store = Database(sqlite_url)
    yield store
    store.close()


@pytest.mark.parametrize(
    ("call", "index"),
    [
        ("open_batches", "ix_jobs_sent"),
        ("unsent", "ix_jobs_unsent"),
        ("heartbeat", "sqlite_autoindex_step_runs_1"),
        ("stopped_jobs", "ix_step_runs_running"),
        ("running_owners", "ix_step_runs_running"),
        ("free_expired", "ix_step_runs_running"),
        ("waiting", "ix_jobs_sent"),
        ("end_cancelled", "ix_jobs_cancelling"),
        ("complete_batches", "ix_jobs_finished"),
        ("expire_jobs", "ix_jobs_expiring"),
        ("waiting_jobs", "ix_jobs_unsent"),
        ("sent_jobs", "ix_jobs_sent"),
        ("queues", "ix_jobs_sent"),
        ("running_steps", "ix_step_runs_running"),
        ("open_batches_by_lane", "ix_batches_open"),
        ("owed_deliveries", "ix_deliveries_due"),
    ],
)
def test_a_frequent_query_uses_its_index(database: Database, call: str, index: str) -> None:
    """SQLite plans the query with the index that was made for it, and scans no whole table of jobs or step runs."""
    calls = {
        "open_batches": outbox.open_batches,
        "unsent": lambda connection: outbox.unsent(connection, "batch", 5),
        "heartbeat": lambda connection: outbox.heartbeat(connection, "owner", 60.0, ["run"]),
        "stopped_jobs": lambda connection: outbox.stopped_jobs(connection, "owner"),
        "running_owners": outbox.running_owners,
        "free_expired": lambda connection: outbox.free_expired(connection, grace_s=0.0),
        "waiting": outbox.waiting,
        "end_cancelled": end_cancelled,
        "complete_batches": complete_batches,
        "expire_jobs": expire_jobs,
        "waiting_jobs": figures.waiting_jobs,
        "sent_jobs": figures.sent_jobs,
        "queues": figures.queues,
        "running_steps": figures.running_steps,
        "open_batches_by_lane": figures.open_batches,
        "owed_deliveries": figures.owed_deliveries,
    }
    statements: list[tuple[str, object]] = []

    @event.listens_for(database.engine, "before_cursor_execute")
    def note(connection: object, cursor: object, statement: str, parameters: object, *rest: object) -> None:
        statements.append((statement, parameters))

    with database.begin() as connection:
        calls[call](connection)
        statement, parameters = next(one for one in statements if one[0].lstrip().startswith(("SELECT", "UPDATE")))
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()  # type: ignore[arg-type]
    lines = [str(row[3]) for row in plan]
    assert any(index in line for line in lines), lines
    assert not [line for line in lines if line in {"SCAN jobs", "SCAN step_runs"}], lines


def test_every_partial_index_exists(database: Database) -> None:
    """The migration makes the partial indexes with the predicates that the queries repeat."""
    with database.read() as connection:
        found = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE sql LIKE '%WHERE%'")).all()
    assert {row.name for row in found} == {
        "ix_batches_open",
        "ix_batches_tenant",
        "ix_deliveries_due",
        "ix_deliveries_leased",
        "ix_jobs_cancelling",
        "ix_jobs_expiring",
        "ix_jobs_sent",
        "ix_jobs_unsent",
        "ix_step_runs_running",
    }
