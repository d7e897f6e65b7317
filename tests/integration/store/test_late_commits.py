"""Jobs that end while something of them still runs, and that are taken up again afterwards."""

from typing import Any

from sqlalchemy import func, select

from tests import rows
from voicejobs import canvas, control
from voicejobs.canvas import Done
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store import commits, leases
from voicejobs.store import jobs as store
from voicejobs.store.commits import Outcome
from voicejobs.store.database import Database
from voicejobs.store.expiry import expire_jobs
from voicejobs.store.jobs import NewArtifact, NewResult
from voicejobs.store.leases import Claimer, Lease
from voicejobs.store.retry import begin_anew
from voicejobs.store.schema import results
from voicejobs.store.states import JobState, StepState

SHARDS = {"shards": [{"first": 0}, {"first": 1}]}
WHO = Claimer(rows.OWNER, 60.0, "tester", "cpu")


def known_job(database: Database) -> str:
    """Insert a job whose input has been hashed, and that can expire."""
    return rows.add_job(database, input_sha256="0" * 64, expires_after_s=3600.0)


def expire(database: Database, job_id: str) -> None:
    """Let the time of a job be over."""
    rows.set_job(database, job_id, expires_at=1.0)
    with database.begin() as connection:
        assert expire_jobs(connection) == 1


def commit(database: Database, lease: Lease, output: dict[str, Any]) -> None:
    """Commit a step run, and release what waits for it."""
    with database.begin() as connection:
        leases.succeed(connection, lease, output, owner=rows.OWNER)
        is_only = lease.inputs.get("of", 1) == 1
        canvas.release(connection, TRANSCRIBE, Done(lease.job_id, lease.node, is_only=is_only), output)


def deliver(database: Database, lease: Lease) -> None:
    """Commit the last step run with a transcript."""
    artifact = NewArtifact("transcript", "0" * 64, 4, b"text", {})
    result = NewResult("key", "", "en", 1.0, 1, "word")
    commits.finish(database, lease, Outcome({}, artifacts=[artifact], result=result, files=[]), owner=rows.OWNER)


def until_deliver(database: Database, job_id: str) -> Lease:
    """Run a job of one shard up to its last step, and hold that."""
    commit(database, rows.hold(database, store.step_run_id(job_id, "prepare")), {"shards": [{"first": 0}]})
    commit(database, rows.hold(database, store.step_run_id(job_id, "recognise")), {})
    return rows.hold(database, store.step_run_id(job_id, "deliver"))


def states(database: Database, job_id: str) -> dict[str, str]:
    """Return the states of a job's step runs."""
    return {name: row.state for name, row in rows.steps(database, job_id).items()}


def test_shards_of_a_job_that_has_ended_are_skipped(database: Database) -> None:
    """The first step commits after its job has expired: what it creates does not wait for ever."""
    job_id = known_job(database)
    lease = rows.hold(database, store.step_run_id(job_id, "prepare"))
    expire(database, job_id)
    commit(database, lease, SHARDS)
    assert states(database, job_id) == {
        "prepare": "succeeded", "recognise0": "skipped", "recognise1": "skipped", "deliver": "skipped",
    }  # fmt: skip


def test_a_job_that_has_ended_does_not_begin_anew(database: Database) -> None:
    """Its decoded audio is gone since it has ended: its step runs stay as they are."""
    job_id = known_job(database)
    lease = rows.hold(database, store.step_run_id(job_id, "prepare"))
    expire(database, job_id)
    with database.begin() as connection:
        ending = leases.Ending(StepState.QUEUED, "released")
        leases.end(connection, lease, ending, owner=rows.OWNER)
        assert begin_anew(connection, job_id, canvas.first_rows(TRANSCRIBE)) == 0
    assert states(database, job_id) == {"prepare": "skipped", "deliver": "skipped"}


def test_a_job_that_expired_is_not_taken_up_only_to_expire(database: Database) -> None:
    """Taken up again it has no end of its time: the old one has passed."""
    job_id = known_job(database)
    expire(database, job_id)
    assert control.retry_jobs(database, [job_id]).queued == [job_id]
    with database.begin() as connection:
        assert expire_jobs(connection) == 0
    assert rows.job(database, job_id).state == JobState.QUEUED


def test_a_last_commit_after_the_end_does_not_stand_in_the_way(database: Database) -> None:
    """The job expired while its last step wrote the files: taken up again it delivers once more, with one result."""
    job_id = known_job(database)
    lease = until_deliver(database, job_id)
    expire(database, job_id)
    deliver(database, lease)
    assert rows.job(database, job_id).state == JobState.EXPIRED
    assert control.retry_jobs(database, [job_id]).queued == [job_id]
    deliver(database, rows.hold(database, lease.step_run_id))
    assert rows.job(database, job_id).state == JobState.SUCCEEDED
    with database.read() as connection:
        assert connection.execute(select(func.count()).select_from(results)).scalar_one() == 1


def test_a_job_that_only_delivers_runs_while_it_does(database: Database) -> None:
    """Taken up again at its last step it is running once that is claimed: a cancellation must reach the worker."""
    job_id = known_job(database)
    commit(database, until_deliver(database, job_id), {})
    rows.set_job(database, job_id, state="failed", finished_at=1.0)
    control.retry_jobs(database, [job_id])
    lease = rows.hold(database, store.step_run_id(job_id, "deliver"))
    assert set(lease.upstream) == {"prepare", "recognise"}
    assert rows.job(database, job_id).state == JobState.RUNNING
    assert rows.job(database, job_id).started_at is not None


def test_a_job_cancelled_before_its_shards_were_made_begins_anew(database: Database) -> None:
    """The first step ran on in line and found its job cancelled: there is nothing to deliver."""
    job_id = known_job(database)
    lease = rows.hold(database, store.step_run_id(job_id, "prepare"))
    control.cancel_jobs(database, [job_id])
    output = {"shards": [{"first": 0}]}
    following = canvas.in_line(TRANSCRIBE, Done(job_id, "prepare", is_only=True), output)
    assert following is not None
    assert commits.go_on(database, lease, Outcome(output), following, WHO, durable=True) is None
    with database.begin() as connection:
        store.end_cancelled(connection)
    assert states(database, job_id) == {"prepare": "succeeded", "deliver": "cancelled"}
    control.retry_jobs(database, [job_id])
    assert states(database, job_id) == {"prepare": "queued", "deliver": "blocked"}
