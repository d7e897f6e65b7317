"""Cancelling and taking up again, on both kinds of database."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests import rows
from voicejobs import canvas, control, queries
from voicejobs.canvas import Done
from voicejobs.errors import Damaged, LeaseLost, NoSuchRecord, NotFound, OutputExists, WrongState
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store import commits, leases
from voicejobs.store import jobs as store
from voicejobs.store.commits import Outcome
from voicejobs.store.database import Database
from voicejobs.store.leases import Claimer, Ending, Lease
from voicejobs.store.outbox import open_batches, unsent
from voicejobs.store.states import JobState, StepState


def prepare(database: Database, job_id: str, shards: int) -> None:
    """Run the first step of a job, which fans out."""
    lease = rows.hold(database, rows.steps(database, job_id)["prepare"].id)
    output = {"shards": [{"first": number} for number in range(shards)]}
    with database.begin() as connection:
        leases.succeed(connection, lease, output, owner=rows.OWNER)
        canvas.release(connection, TRANSCRIBE, Done(job_id, "prepare", is_only=True), output)


def recognise(database: Database, lease: Lease) -> list[canvas.Missing]:
    """Commit one shard, and return what that released."""
    with database.begin() as connection:
        leases.succeed(connection, lease, {"shard": lease.shard}, owner=rows.OWNER)
        return canvas.release(
            connection, TRANSCRIBE, Done(lease.job_id, "recognise", is_only=lease.inputs["of"] == 1), {}
        )


def fail(database: Database, lease: Lease, error: Any) -> None:
    """End a step run and its job with an error."""
    with database.begin() as connection:
        ending = Ending(StepState.FAILED, "failed", is_failure=True, error=error)
        leases.end(connection, lease, ending, owner=rows.OWNER)
        store.finish_job(connection, lease.job_id, JobState.FAILED, error=error)
        store.complete_batches(connection)


def known_job(database: Database, batch_id: str = "", **fields: Any) -> str:
    """Insert a job whose input has been hashed."""
    return rows.add_job(database, batch_id, input_sha256="0" * 64, **fields)


def test_a_failed_job_runs_again_from_its_beginning(database: Database) -> None:
    """Its steps wait as in a new job, its batch is open, it is in the outbox, and its story goes on."""
    batch_id = rows.add_batch(database)
    job_id = known_job(database, batch_id)
    first = rows.steps(database, job_id)["prepare"].id
    fail(database, rows.hold(database, first), Damaged("odd"))
    assert rows.batch(database, batch_id).state == "completed"

    assert control.retry_jobs(database, [job_id]) == control.Retried([job_id])

    job, steps = rows.job(database, job_id), rows.steps(database, job_id)
    assert (job.state, job.error, job.error_code, job.finished_at, job.sent_at) == ("queued", None, None, None, None)
    assert {name: row.state for name, row in steps.items()} == {"prepare": "queued", "deliver": "blocked"}
    assert (rows.batch(database, batch_id).state, rows.batch(database, batch_id).finished_at) == ("in_progress", None)
    with database.read() as connection:
        assert [one.id for one in open_batches(connection)] == [batch_id]
        assert [one.id for one in unsent(connection, batch_id, 9)] == [job_id]
    lease = rows.hold(database, first)
    assert (lease.fence, lease.failures) == (2, 0)
    fail(database, lease, Damaged("odd still"))
    assert rows.story(database, first) == [(1, "failed"), (2, "failed")]


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_shards_come_back_with_their_stories(database: Database, shards: int) -> None:
    """Decoded audio is gone, so all is recognised anew; also where there are fewer or more shards than before."""
    job_id = known_job(database)
    prepare(database, job_id, 2)
    done, broken = (rows.hold(database, rows.steps(database, job_id)[f"recognise{n}"].id) for n in range(2))
    recognise(database, done)
    fail(database, broken, Damaged("odd"))

    control.retry_jobs(database, [job_id])
    assert {name: row.state for name, row in rows.steps(database, job_id).items()} == {
        "prepare": "queued", "deliver": "blocked", "recognise0": "skipped", "recognise1": "skipped",
    }  # fmt: skip
    prepare(database, job_id, shards)
    released: list[canvas.Missing] = []
    for number in range(shards):
        assert not [one for one in released if one.is_ready]
        lease = rows.hold(database, store.step_run_id(job_id, "recognise", number))
        assert lease.inputs == {"first": number, "of": shards}
        released = recognise(database, lease)
    assert [one.node for one in released if one.is_ready] == ["deliver"]
    assert rows.story(database, broken.step_run_id)[0] == (1, "failed")
    final = rows.hold(database, rows.steps(database, job_id)["deliver"].id)
    assert [json.loads(text) for text in final.upstream["recognise"]] == [{"shard": n} for n in range(shards)]


def test_a_shard_comes_back_claimed_where_it_follows_in_line(database: Database) -> None:
    """The commit that runs on without a message finds the row of the attempt before, and goes on with its fence."""
    who = Claimer(rows.OWNER, 60.0, "tester", "cpu")
    job_id = known_job(database)
    prepare(database, job_id, 1)
    fail(database, rows.hold(database, rows.steps(database, job_id)["recognise"].id), Damaged("odd"))
    control.retry_jobs(database, [job_id])
    lease = rows.hold(database, rows.steps(database, job_id)["prepare"].id)
    output = {"shards": [{"first": 7}]}
    following = canvas.in_line(TRANSCRIBE, Done(job_id, "prepare", is_only=True), output)
    assert following is not None
    onward = commits.go_on(database, lease, Outcome(output), following, who, durable=True)
    assert onward is not None
    assert (onward.node, onward.fence, onward.failures, onward.inputs) == ("recognise", 2, 0, {"first": 7, "of": 1})
    assert rows.steps(database, job_id)["recognise"].state == StepState.RUNNING
    assert rows.story(database, onward.step_run_id) == [(1, "failed")]


def test_a_job_that_could_not_write_its_files_only_writes_them(database: Database) -> None:
    """What was recognised is not recognised again."""
    job_id = known_job(database)
    prepare(database, job_id, 1)
    recognise(database, rows.hold(database, rows.steps(database, job_id)["recognise"].id))
    fail(database, rows.hold(database, rows.steps(database, job_id)["deliver"].id), OutputExists("in the way"))
    control.retry_jobs(database, [job_id])
    assert {name: row.state for name, row in rows.steps(database, job_id).items()} == {
        "prepare": "succeeded", "recognise": "succeeded", "deliver": "queued",
    }  # fmt: skip


def test_a_step_run_that_is_still_at_work_loses_its_lease(database: Database) -> None:
    """The job failed by one shard while another ran: that one's commit comes too late, and the story says so."""
    job_id = known_job(database)
    prepare(database, job_id, 2)
    slow, broken = (rows.hold(database, rows.steps(database, job_id)[f"recognise{n}"].id) for n in range(2))
    fail(database, broken, Damaged("odd"))
    control.retry_jobs(database, [job_id])
    with pytest.raises(LeaseLost):
        recognise(database, slow)
    assert rows.story(database, slow.step_run_id) == [(1, "cancelled")]
    prepare(database, job_id, 2)
    assert rows.hold(database, slow.step_run_id).fence == 3


def test_cancelled_jobs_can_be_taken_up_again(database: Database) -> None:
    """A cancelled job is queued again, and can be cancelled again."""
    job_id = known_job(database)
    for _ in range(2):
        assert control.cancel_jobs(database, [job_id]) == [job_id]
        assert rows.job(database, job_id).state == JobState.CANCELLED
        assert control.cancel_jobs(database, [job_id]) == []
        assert control.retry_jobs(database, [job_id]).queued == [job_id]
        assert rows.job(database, job_id).state == JobState.QUEUED


def test_many_at_once_take_a_job_up_once(database: Database) -> None:
    """Of several who retry the same batch at the same moment, one wins each job."""
    batch_id = rows.add_batch(database)
    ids = [known_job(database, batch_id, seq=seq) for seq in range(5)]
    for job_id in ids:
        fail(database, rows.hold(database, rows.steps(database, job_id)["prepare"].id), Damaged("odd"))
    outcomes = rows.at_once(4, lambda number: control.retry_batch(database, batch_id))
    assert sorted(job_id for one in outcomes for job_id in one.queued) == sorted(ids)
    assert not [one.refused for one in outcomes if one.refused]


def test_only_failed_jobs_of_a_batch_unless_told_otherwise(database: Database) -> None:
    """`retry_batch` takes the states that are named; succeeded jobs never."""
    batch_id = rows.add_batch(database)
    failed, cancelled, succeeded = (known_job(database, batch_id, seq=seq) for seq in range(3))
    fail(database, rows.hold(database, rows.steps(database, failed)["prepare"].id), Damaged("odd"))
    control.cancel_jobs(database, [cancelled])
    rows.set_job(database, succeeded, state="succeeded", finished_at=1.0)
    assert control.retry_batch(database, batch_id).queued == [failed]
    assert control.retry_batch(database, batch_id, ["failed", "cancelled"]).queued == [cancelled]
    assert rows.job(database, succeeded).state == "succeeded"


@pytest.mark.parametrize("state", ["queued", "running", "cancelling", "succeeded"])
def test_a_job_that_has_not_failed_is_not_taken_up(database: Database, state: str) -> None:
    """It is refused by name, and so are the others of the call."""
    job_id, other = known_job(database), known_job(database)
    rows.set_job(database, job_id, state=state)
    rows.set_job(database, other, state="failed")
    with pytest.raises(WrongState, match=job_id):
        control.retry_jobs(database, [other, job_id])
    assert rows.job(database, other).state == "failed"


def test_finished_jobs_cannot_be_cancelled(database: Database) -> None:
    """Nothing of the call is cancelled then."""
    ended, live = known_job(database), known_job(database)
    rows.set_job(database, ended, state="succeeded")
    with pytest.raises(WrongState, match=ended):
        control.cancel_jobs(database, [live, ended])
    assert rows.job(database, live).state == "queued"


def test_ids_that_do_not_exist(database: Database) -> None:
    """They are named."""
    for call in (control.cancel_jobs, control.retry_jobs):
        with pytest.raises(NoSuchRecord, match="job_none"):
            call(database, ["job_none"])
    with pytest.raises(NoSuchRecord, match="batch_none"):
        control.retry_batch(database, "batch_none")


def test_a_file_that_was_refused_is_read_anew(database: Database, tmp_path: Path) -> None:
    """What could not be read at submission is refused again, or becomes a job like any other once it can be."""
    path = tmp_path / "late.wav"
    job_id = rows.add_job(
        database,
        source={"path": str(path), "name": "late.wav", "size": 0, "mtime_ns": 0},
        source_name="late.wav",
        step_runs=(),
        target=str(tmp_path / "out" / "late"),
        error=NotFound("late.wav is not there"),
    )
    refused = control.retry_jobs(database, [job_id]).refused
    assert refused[job_id].code == "not_found"
    assert rows.job(database, job_id).state == "failed"
    path.write_bytes(b"RIFF")
    assert control.retry_jobs(database, [job_id]).queued == [job_id]
    job = rows.job(database, job_id)
    assert json.loads(job.source)["size"] == 4
    assert json.loads(job.options)["deliver"]["target"] == {"path": str(tmp_path / "out" / "late")}
    assert job.done_key == TRANSCRIBE.key(job.input_sha256, json.loads(job.options))
    assert {name: row.state for name, row in rows.steps(database, job_id).items()} == {
        "prepare": "queued", "deliver": "blocked",
    }  # fmt: skip


def test_a_file_that_was_mended_is_taken_as_it_is_now(database: Database, tmp_path: Path) -> None:
    """A changed file is hashed anew and recognised from the beginning; one that is as it was keeps its hash."""
    path = tmp_path / "talk.wav"
    path.write_bytes(b"damaged")
    status = path.stat()
    source = {"path": str(path), "name": "talk.wav", "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    job_id = known_job(database, source=source, source_name="talk.wav")
    prepare(database, job_id, 1)
    recognise(database, rows.hold(database, rows.steps(database, job_id)["recognise"].id))
    fail(database, rows.hold(database, rows.steps(database, job_id)["deliver"].id), OutputExists("in the way"))
    control.retry_jobs(database, [job_id])
    assert rows.job(database, job_id).input_sha256 == "0" * 64
    fail(database, rows.hold(database, rows.steps(database, job_id)["deliver"].id), OutputExists("in the way"))
    path.write_bytes(b"mended, and longer")
    control.retry_jobs(database, [job_id])
    job = rows.job(database, job_id)
    assert job.input_sha256 == sha256(b"mended, and longer").hexdigest()
    assert json.loads(job.source)["size"] == path.stat().st_size
    assert job.done_key == TRANSCRIBE.key(job.input_sha256, json.loads(job.options))
    assert {name: row.state for name, row in rows.steps(database, job_id).items()} == {
        "prepare": "queued", "deliver": "blocked", "recognise": "skipped",
    }  # fmt: skip


def test_lists_are_filtered_and_paged(database: Database) -> None:
    """By part of a name, special characters being themselves, by error code, and after the last one of a page."""
    batch_id = rows.add_batch(database)
    names = ("a_b.wav", "axb.wav", "100%.wav")
    ids = [rows.add_job(database, batch_id, seq=seq, source_name=name) for seq, name in enumerate(names)]
    fail(database, rows.hold(database, rows.steps(database, ids[1])["prepare"].id), Damaged("odd"))
    newest = ids[::-1]

    def listed(**filters: Any) -> list[str]:
        return [one["id"] for one in queries.list_jobs(database, batch_id=batch_id, **filters)]

    assert listed() == newest
    assert listed(matches={"name": "a_b"}) == [ids[0]]
    assert listed(matches={"name": "%"}) == [ids[2]]
    assert listed(matches={"error_code": "damaged"}) == [ids[1]]
    assert listed(after=newest[0], limit=1) == [newest[1]]
    assert queries.newest_ids(database, "jobs", "job_", 2) == newest[:2]
    assert queries.newest_ids(database, "batches", batch_id[:-1], 9) == [batch_id]
    assert queries.live_jobs(database, [batch_id]) == 2
    assert queries.live_jobs(database, [batch_id], frozenset(ids[:2])) == 1
    assert queries.batches_of(database, ids) == dict.fromkeys(ids, batch_id)
    assert [one["id"] for one in queries.list_batches(database, state="in_progress", after="z")] == [batch_id]
    assert queries.list_batches(database, after=batch_id) == []
