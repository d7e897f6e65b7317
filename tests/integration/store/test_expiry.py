"""Jobs that were not done in time."""

from celery import Celery

from tests import rows
from voicejobs import queries
from voicejobs.dispatch import Upkeep
from voicejobs.store import outbox
from voicejobs.store.database import Database
from voicejobs.store.expiry import expire_jobs


def late(database: Database, job_id: str) -> None:
    """Let the time of a job be over."""
    rows.set_job(database, job_id, expires_at=rows.job(database, job_id).created_at - 1)


def test_a_job_that_waits_expires_alone(database: Database) -> None:
    """It ends with its code, nothing of it will run, and jobs that still have time are left alone."""
    old, young, timeless = (rows.add_job(database) for _ in range(3))
    late(database, old)
    rows.set_job(database, young, expires_at=rows.job(database, young).created_at + 3600)
    with database.begin() as connection:
        assert expire_jobs(connection) == 1
        assert expire_jobs(connection) == 0
    told = queries.show_job(database, old)
    assert (told["state"], told["error_code"]) == ("expired", "expired")
    assert {step["state"] for step in told["steps"]} == {"skipped"}
    assert {rows.job(database, one).state for one in (young, timeless)} == {"queued"}


def test_a_job_that_runs_expires_too(database: Database) -> None:
    """Its worker hears of it as it hears of a cancelled one, and the upkeep of any worker does it."""
    job_id = rows.add_job(database)
    lease = rows.hold(database, rows.steps(database, job_id)["prepare"].id)
    late(database, job_id)
    app = Celery("upkeep", set_as_current=False)
    Upkeep(database, app, 60.0).tick()
    app.close()
    assert rows.job(database, job_id).state == "expired"
    with database.read() as connection:
        assert outbox.stopped_jobs(connection, rows.OWNER) == [(lease.step_run_id, "expired")]


def test_a_job_that_is_late_is_not_begun(database: Database) -> None:
    """Until upkeep ends it the dispatcher passes it over."""
    batch_id = rows.add_batch(database)
    old, young = (rows.add_job(database, batch_id, expires_after_s=seconds) for seconds in (-1.0, 3600.0))
    with database.read() as connection:
        assert [row.id for row in outbox.unsent(connection, batch_id, 10)] == [young]
    assert rows.job(database, old).state == "queued"
