"""How many jobs of a batch are out at once, what a failure does to the rest, and the word for what was cancelled."""

from typing import Any

import pytest

from tests import rows
from voicejobs import dispatch
from voicejobs.errors import Internal
from voicejobs.store import jobs as store
from voicejobs.store import outbox
from voicejobs.store.database import Database
from voicejobs.store.states import JobState, OnError
from voicejobs.submit import cancel_batch

WINDOW_JOBS = 8


def add_batch(database: Database, count: int, **terms: Any) -> tuple[str, list[str]]:
    """Insert a batch, and return its id and those of its jobs."""
    with database.begin() as connection:
        batch_id = store.insert_batch(connection, store.NewBatch("bulk", "test", {}, **terms))
        made = [rows.new_job(number) for number in range(1, count + 1)]
        store.insert_jobs(connection, batch_id, made)
        store.seal_batch(connection, batch_id)
    return batch_id, [job.id for job in made]


def send(database: Database) -> list[str]:
    """Note as sent what the dispatcher would send, and return it."""
    with database.begin() as connection:
        chosen = dispatch._choose(connection, outbox.open_batches(connection), WINDOW_JOBS)
        outbox.mark_sent(connection, chosen)
    return chosen


def end(database: Database, job_id: str, state: JobState) -> None:
    """End a job."""
    error = Internal("It broke") if state is JobState.FAILED else None
    database.run(lambda connection: store.finish_job(connection, job_id, state, error=error))


def states(database: Database, job_ids: list[str]) -> list[str]:
    """Return the states of jobs."""
    return [str(rows.job(database, job_id).state) for job_id in job_ids]


def test_no_more_than_so_many_jobs_of_a_batch_are_out(database: Database) -> None:
    """The next goes when one has ended; what the batch leaves of the window others have."""
    _, narrow = add_batch(database, 5, concurrency=2)
    _, wide = add_batch(database, 10)
    first = send(database)
    assert sorted(first) == sorted([*narrow[:2], *wide[:6]])
    assert send(database) == []
    end(database, narrow[0], JobState.SUCCEEDED)
    end(database, wide[0], JobState.SUCCEEDED)
    assert sorted(send(database)) == sorted([narrow[2], wide[6]])


def test_the_first_failure_stops_a_batch_that_wants_so(database: Database) -> None:
    """None of its jobs is sent any more, the upkeep cancels the rest, and the batch is cancelled; others go on."""
    stopping, jobs = add_batch(database, 4, on_error=OnError.STOP, concurrency=1)
    going, others = add_batch(database, 2, concurrency=1)
    send(database)
    end(database, jobs[0], JobState.FAILED)
    end(database, others[0], JobState.FAILED)
    assert rows.batch(database, stopping).state == "cancelling"
    assert send(database) == others[1:]
    assert database.run(store.cancel_rest) == 3
    database.run(store.complete_batches)
    assert states(database, jobs) == ["failed", "cancelled", "cancelled", "cancelled"]
    assert rows.batch(database, stopping).state == "cancelled"
    assert rows.batch(database, going).state == "in_progress"


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.CANCELLED, JobState.FAILED])
def test_what_leaves_nothing_to_cancel_stops_nothing(database: Database, state: JobState) -> None:
    """A batch all of whose jobs have ended is completed, also where the last one has failed."""
    batch_id, jobs = add_batch(database, 2, on_error=OnError.STOP)
    end(database, jobs[0], JobState.SUCCEEDED)
    end(database, jobs[1], state)
    database.run(store.complete_batches)
    assert rows.batch(database, batch_id).state == "completed"


def test_only_the_batch_of_a_job_is_looked_at(database: Database) -> None:
    """Whoever has ended a job with a failure cancels the rest of its batch, and nothing of another."""
    _, jobs = add_batch(database, 2, on_error=OnError.STOP)
    _, others = add_batch(database, 2, on_error=OnError.STOP)
    for failed in (jobs[0], others[0]):
        end(database, failed, JobState.FAILED)
    assert database.run(lambda connection: store.cancel_rest(connection, jobs[0])) == 1
    assert states(database, [jobs[1], others[1]]) == ["cancelled", "queued"]


def test_a_batch_that_was_cancelled_says_so(database: Database) -> None:
    """It is cancelling while a worker has one of its jobs, then cancelled; one that had ended stays completed."""
    batch_id, jobs = add_batch(database, 2)
    rows.hold(database, store.step_run_id(jobs[0], "prepare"))
    assert cancel_batch(database, batch_id) == 2
    assert rows.batch(database, batch_id).state == "cancelling"
    end(database, jobs[0], JobState.CANCELLED)
    database.run(store.complete_batches)
    assert rows.batch(database, batch_id).state == "cancelled"
    idle, _ = add_batch(database, 1)
    cancel_batch(database, idle)
    assert rows.batch(database, idle).state == "cancelled"
    done, finished = add_batch(database, 1)
    end(database, finished[0], JobState.SUCCEEDED)
    database.run(store.complete_batches)
    assert cancel_batch(database, done) == 0
    assert rows.batch(database, done).state == "completed"
