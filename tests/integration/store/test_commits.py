"""The commits that claim what follows, and that of a job's last step: all or nothing, on both databases."""

from typing import Any

import pytest

from tests import rows
from voicejobs import canvas
from voicejobs.errors import LeaseLost
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store import commits, leases
from voicejobs.store.commits import Following, Outcome
from voicejobs.store.database import Database
from voicejobs.store.jobs import NewArtifact, NewResult, cancel_jobs
from voicejobs.store.leases import Claimer, Lease

WHO = Claimer(rows.OWNER, 60.0, "tester", "cpu")
OUTPUTS: dict[str, dict[str, Any]] = {"prepare": {"shards": [{"first": 0}], "samples": 7}, "recognise": {"results": []}}


def begin(database: Database) -> Lease:
    """Return the lease on the first step of a new job."""
    lease = leases.claim(database, rows.steps(database, rows.add_job(database))["prepare"].id, WHO)
    assert lease is not None
    return lease


def following(lease: Lease) -> Following:
    """Return what follows in line on a step run."""
    found = canvas.in_line(TRANSCRIBE, canvas.Done(lease.job_id, lease.node, is_only=True), OUTPUTS[lease.node])
    assert found is not None
    return found


def go_on(database: Database, lease: Lease, audio_s: float | None = None) -> Lease | None:
    """Commit a step run and claim the one behind it."""
    outcome = Outcome(OUTPUTS[lease.node], progress_s=1.5, audio_s=audio_s)
    return commits.go_on(database, lease, outcome, following(lease), WHO, durable=True)


def last(database: Database) -> Lease:
    """Return the lease on the last step of a new job, all before it done."""
    second = go_on(database, begin(database), audio_s=61.0)
    assert second is not None
    third = go_on(database, second)
    assert third is not None
    return third


def finish(database: Database, lease: Lease) -> None:
    """Commit the last step of a job."""
    artifact = NewArtifact("transcript", "a" * 64, 2, b"{}", {"type": "application/json"})
    result = NewResult("key", "", "en", 61.0, 2, "two words")
    outcome = Outcome({"files": []}, 61.0, 61.0, [artifact], result, [{"format": "txt"}])
    commits.finish(database, lease, outcome, owner=WHO.owner)


def test_a_commit_claims_what_follows_in_line(database: Database) -> None:
    """Each lease of the line has what a claim of its own would have read: fence, inputs, upstream, the job's values."""
    first = begin(database)
    second = go_on(database, first, audio_s=61.0)
    assert second is not None
    assert (second.node, second.shard, second.fence, second.inputs) == ("recognise", 0, 1, {"first": 0, "of": 1})
    assert (second.job_id, second.options, second.source) == (first.job_id, first.options, first.source)
    third = go_on(database, second)
    assert third is not None
    assert (third.node, third.fence, third.failures, third.checkpoint) == ("deliver", 1, 0, None)
    assert list(third.outputs("prepare")) == [{"samples": 7}], "the shards stand in their own rows"
    assert list(third.outputs("recognise")) == [OUTPUTS["recognise"]]
    found = rows.steps(database, first.job_id)
    assert {name: row.state for name, row in found.items()} == {
        "prepare": "succeeded", "recognise": "succeeded", "deliver": "running",
    }  # fmt: skip
    assert (found["deliver"].owner, found["deliver"].worker, found["deliver"].device) == (rows.OWNER, "tester", "cpu")
    assert found["deliver"].lease_until > found["deliver"].started_at + 50
    assert found["recognise"].progress_s == 1.5
    assert rows.job(database, first.job_id).audio_s == 61.0
    assert rows.story(database, found["prepare"].id) == [(1, "succeeded")]


def test_what_a_claim_of_its_own_reads_is_the_same(database: Database) -> None:
    """A step run that went on in line and is claimed again, after its worker died, has the same lease but its fence."""
    third = last(database)
    rows.set_step(database, third.step_run_id, state="queued")
    again = leases.claim(database, third.step_run_id, WHO)
    assert again is not None
    assert again.fence == third.fence + 1
    for name in ("job_id", "batch_id", "node", "step", "step_version", "shard", "inputs", "options", "source"):
        assert getattr(again, name) == getattr(third, name), name
    for node in ("prepare", "recognise"):
        assert list(again.outputs(node)) == list(third.outputs(node))


def test_an_old_fence_commits_nothing_and_claims_nothing(database: Database) -> None:
    """A zombie that comes with its result changes no row, of its step, of what follows, or of the job."""
    first = begin(database)
    rows.set_step(database, first.step_run_id, fence=first.fence + 1)
    before = rows.steps(database, first.job_id)
    with pytest.raises(LeaseLost):
        go_on(database, first, audio_s=61.0)
    assert rows.steps(database, first.job_id) == before
    assert rows.job(database, first.job_id).audio_s is None
    third = last(database)
    rows.set_step(database, third.step_run_id, fence=third.fence + 1)
    with pytest.raises(LeaseLost):
        finish(database, third)
    job = rows.job(database, third.job_id)
    assert (job.state, job.outputs, job.finished_at) == ("running", None, None)
    assert rows.story(database, third.step_run_id) == []


@pytest.mark.parametrize("steps", [1, 2])
def test_a_cancelled_job_goes_no_further(database: Database, steps: int) -> None:
    """What is done is committed, and the lease on what follows is not given."""
    lease: Lease | None = begin(database)
    for _ in range(steps - 1):
        assert lease is not None
        lease = go_on(database, lease)
    assert lease is not None
    with database.begin() as connection:
        cancel_jobs(connection, job_id=lease.job_id)
    assert go_on(database, lease) is None
    found = rows.steps(database, lease.job_id)
    assert found[lease.node].state == "succeeded"
    assert "running" not in {row.state for row in found.values()}


def test_the_last_commit_ends_the_job_with_all_that_it_made(database: Database) -> None:
    """Step run, story, artifact, result and job are written together."""
    third = last(database)
    finish(database, third)
    job = rows.job(database, third.job_id)
    assert (job.state, job.audio_s, job.outputs) == ("succeeded", 61.0, '[{"format":"txt"}]')
    assert rows.steps(database, third.job_id)["deliver"].state == "succeeded"
    assert rows.story(database, third.step_run_id) == [(1, "succeeded")]
    with database.read() as connection:
        result = connection.exec_driver_sql("SELECT artifact_id, words, text, language FROM results").one()
        kept = connection.exec_driver_sql("SELECT id, job_id, step_run_id, data FROM artifacts").one()
    assert tuple(result) == (kept.id, 2, "two words", "en")
    assert (kept.job_id, kept.step_run_id, bytes(kept.data)) == (third.job_id, third.step_run_id, b"{}")


def test_only_one_step_that_waits_for_nothing_else_is_in_line() -> None:
    """Several shards, and a step that is one of several shards itself, are left to the rows."""
    two: dict[str, Any] = {"shards": [{}, {}]}
    assert canvas.in_line(TRANSCRIBE, canvas.Done("job", "prepare", is_only=True), two) is None
    assert canvas.in_line(TRANSCRIBE, canvas.Done("job", "recognise", is_only=False), {}) is None
    found = canvas.in_line(TRANSCRIBE, canvas.Done("job", "recognise", is_only=True), {})
    assert found is not None
    assert (found.row.node, found.is_new) == ("deliver", False)
