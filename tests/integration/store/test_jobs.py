"""Rows of jobs and batches: inserted together, released once, ended once."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event

import pytest
from sqlalchemy import update

from tests import rows
from tests.waiting import wait_until
from voicejobs import canvas, queries
from voicejobs.canvas import Done
from voicejobs.errors import Damaged, NoSuchRecord
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store import artifacts, leases
from voicejobs.store import jobs as store
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database
from voicejobs.store.jobs import NewResult
from voicejobs.store.schema import jobs, step_runs
from voicejobs.store.states import JobState, StepState


def prepared(database: Database, shards: int) -> tuple[str, list[canvas.Missing]]:
    """Insert a job and commit its `prepare`; return its id and what that released."""
    job_id = rows.add_job(database)
    lease = rows.hold(database, rows.steps(database, job_id)["prepare"].id)
    output = {"shards": [{"first": number} for number in range(shards)]}
    with database.begin() as connection:
        leases.succeed(connection, lease, output, owner=rows.OWNER)
        released = canvas.release(connection, TRANSCRIBE, Done(job_id, "prepare", is_only=True), output)
    return job_id, released


def test_a_thousand_jobs_go_in_together(database: Database) -> None:
    """Many jobs and their step runs are inserted in one transaction, in order, with the options of each."""
    batch_id = rows.add_batch(database)
    new = [rows.new_job(seq, source_name=f"{seq}.wav", cost_order=-seq) for seq in range(1000)]
    with database.begin() as connection:
        store.insert_jobs(connection, batch_id, new)
        store.insert_jobs(connection, batch_id, [])
    assert queries.batch_counts(database, [batch_id]) == {batch_id: {"queued": 1000}}
    listed = queries.list_jobs(database, batch_id=batch_id, limit=2000)
    assert sorted(one["name"] for one in listed) == sorted(one.source_name for one in new)
    found = rows.steps(database, new[-1].id)
    assert {name: (row.state, row.depth, row.queue) for name, row in found.items()} == {
        "prepare": ("queued", 0, "cpu"),
        "deliver": ("blocked", 2, "cpu"),
    }
    assert rows.job(database, new[0].id).trace_id == new[0].id


def test_times_are_those_of_the_database_in_unix_seconds(database: Database) -> None:
    """The clock of both databases agrees with unix time to a second, with fractions."""
    row = rows.job(database, rows.add_job(database))
    assert abs(row.created_at - time.time()) < 1.0
    assert row.created_at != int(row.created_at)


def test_a_fan_out_creates_its_step_runs(database: Database) -> None:
    """The commit of `prepare` creates a queued step run for each shard, which sees what `prepare` gave."""
    job_id, released = prepared(database, 3)
    assert [(item.node, item.is_ready, item.queue) for item in released] == [("recognise", True, "asr")] * 3
    found = rows.steps(database, job_id)
    assert [found[f"recognise{shard}"].state for shard in range(3)] == ["queued"] * 3
    lease = rows.hold(database, found["recognise2"].id)
    assert (lease.shard, lease.inputs) == (2, {"first": 2, "of": 3})
    assert "shards" not in next(lease.outputs("prepare")), "each stands in its own row"
    assert rows.job(database, job_id).state == JobState.RUNNING


def commit_shard(database: Database, job_id: str, shard: int, before_commit: Event | None = None) -> list[str]:
    """Commit one shard and return the nodes that became ready; wait inside the transaction where told so."""
    lease = rows.hold(database, rows.steps(database, job_id)[f"recognise{shard}"].id)
    with database.begin() as connection:
        leases.succeed(connection, lease, {"shard": shard}, owner=rows.OWNER)
        done = Done(job_id, "recognise", is_only=lease.inputs["of"] == 1)
        ready = canvas.release(connection, TRANSCRIBE, done, {})
        if before_commit is not None:
            before_commit.wait(30)
    return [item.node for item in ready]


def test_the_last_of_many_commits_releases_the_join(database: Database) -> None:
    """Of six shards that commit at the same moment exactly one releases what waits for all of them."""
    for _ in range(3):
        job_id, _released = prepared(database, 6)
        ready = rows.at_once(6, partial(commit_shard, database, job_id))
        assert sorted(ready) == [[], [], [], [], [], ["deliver"]]
        assert rows.steps(database, job_id)["deliver"].state == StepState.QUEUED
        lease = rows.hold(database, rows.steps(database, job_id)["deliver"].id)
        assert [output["shard"] for output in lease.outputs("recognise")] == list(range(6))


def test_overlapping_transactions_release_the_join_once(postgres_url: str) -> None:
    """Of two commits on Postgres the second, that began before the first had ended, sees both and releases."""
    with rows.opened(postgres_url) as database:
        job_id, _ = prepared(database, 2)
        open_for_now = Event()
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(commit_shard, database, job_id, 0, open_for_now)
            wait_until(lambda: rows.steps(database, job_id)["recognise0"].state == "running")
            second = pool.submit(commit_shard, database, job_id, 1)
            wait_until(lambda: waits_for_a_lock(database))
            open_for_now.set()
            assert (first.result(30), second.result(30)) == ([], ["deliver"])


def waits_for_a_lock(database: Database) -> bool:
    """Tell whether a connection to this database waits for a lock."""
    with database.read() as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return bool(connection.exec_driver_sql(query).scalar_one())


def test_a_join_that_misses_an_input_stays_blocked(database: Database) -> None:
    """One of two shards releases nothing; asking again after the release gives nothing a second time."""
    job_id, _ = prepared(database, 2)
    assert commit_shard(database, job_id, 0) == []
    assert rows.steps(database, job_id)["deliver"].state == StepState.BLOCKED
    assert commit_shard(database, job_id, 1) == ["deliver"]
    with database.begin() as connection:
        assert store.release_join(connection, job_id, "deliver", ["prepare", "recognise"]) is None
        assert store.release_join(connection, job_id, "nobody", ["prepare"]) is None


def test_a_failed_job_skips_what_it_has_not_run(database: Database) -> None:
    """Failing a job skips queued and blocked step runs, leaves finished ones, and happens once."""
    job_id, _ = prepared(database, 2)
    running = rows.hold(database, rows.steps(database, job_id)["recognise0"].id)
    error = Damaged("bad.wav is damaged")
    with database.begin() as connection:
        assert store.finish_job(connection, job_id, JobState.FAILED, error=error)
        assert not store.finish_job(connection, job_id, JobState.SUCCEEDED)
    states = {name: row.state for name, row in rows.steps(database, job_id).items()}
    assert states == {"prepare": "succeeded", "recognise0": "running", "recognise1": "skipped", "deliver": "skipped"}
    assert running.fence == 1
    told = queries.show_job(database, job_id)
    assert (told["state"], told["error_code"], told["error"]) == ("failed", "damaged", error.to_json())
    assert told["finished_at"] is not None


def test_a_successful_job_keeps_its_outputs(database: Database) -> None:
    """Outputs come back as they were, in the job's story and among the finished jobs of its batch."""
    batch_id = rows.add_batch(database)
    job_id = rows.add_job(database, batch_id)
    outputs = [{"format": "txt", "path": "/o/ü.txt", "sha256": "ab", "size": 3}]
    with database.begin() as connection:
        assert store.finish_job(connection, job_id, JobState.SUCCEEDED, outputs=outputs)
    (finished,) = queries.finished_jobs(database, [batch_id])
    assert (finished.id, finished.state, finished.outputs, finished.error) == (job_id, "succeeded", outputs, None)
    assert queries.show_job(database, job_id)["outputs"] == outputs
    assert queries.live_count(database, batch_id) == 0


def test_cancelling_ends_what_waits_and_marks_what_runs(database: Database) -> None:
    """Queued jobs are cancelled at once, running ones are `cancelling` until no worker runs them, ended ones stay."""
    batch_id = rows.add_batch(database)
    waiting, running, ended = (rows.add_job(database, batch_id, seq=seq) for seq in range(3))
    lease = rows.hold(database, rows.steps(database, running)["prepare"].id)
    with database.begin() as connection:
        store.finish_job(connection, ended, JobState.SUCCEEDED)
        assert store.cancel_jobs(connection, batch_id=batch_id) == 2
        assert store.end_cancelled(connection) == 0
    assert [rows.job(database, one).state for one in (waiting, running, ended)] == [
        "cancelled",
        "cancelling",
        "succeeded",
    ]
    assert rows.job(database, waiting).finished_at is not None
    assert rows.job(database, running).finished_at is None
    assert {row.state for row in rows.steps(database, waiting).values()} == {"cancelled"}
    with database.begin() as connection:
        leases.end(connection, lease, leases.Ending(StepState.CANCELLED, "cancelled"), owner=rows.OWNER)
        assert store.end_cancelled(connection) == 1
    assert rows.job(database, running).state == JobState.CANCELLED
    assert {row.state for row in rows.steps(database, running).values()} == {"cancelled"}
    with database.begin() as connection:
        assert store.cancel_jobs(connection, batch_id=batch_id) == 0


def test_one_job_is_cancelled_alone(database: Database) -> None:
    """Cancelling by id touches no other job."""
    batch_id = rows.add_batch(database)
    one, other = (rows.add_job(database, batch_id, seq=seq) for seq in range(2))
    with database.begin() as connection:
        assert store.cancel_jobs(connection, job_id=one) == 1
    assert (rows.job(database, one).state, rows.job(database, other).state) == ("cancelled", "queued")


def test_no_cancellation_is_lost_to_a_claim(database: Database) -> None:
    """Claims and a cancellation at the same moment: every job is cancelled or cancelling, and none goes on."""
    batch_id = rows.add_batch(database)
    ids = [rows.add_job(database, batch_id, seq=seq) for seq in range(8)]
    runs = [rows.steps(database, job_id)["prepare"].id for job_id in ids]

    def act(number: int) -> None:
        if number == len(runs):
            with database.begin() as connection:
                store.cancel_jobs(connection, batch_id=batch_id)
        else:
            rows.claim(database, runs[number])

    rows.at_once(len(runs) + 1, act)
    for job_id in ids:
        state, step = rows.job(database, job_id).state, rows.steps(database, job_id)["prepare"].state
        assert (state, step) in {("cancelled", "cancelled"), ("cancelling", "running")}


def test_a_cancellation_waits_for_a_claim_that_is_under_way(postgres_url: str) -> None:
    """On Postgres a job that a claim has taken and not committed yet ends up `cancelling`, not running."""
    with rows.opened(postgres_url) as database:
        batch_id = rows.add_batch(database)
        job_id = rows.add_job(database, batch_id)

        def cancel() -> int:
            with database.begin() as connection:
                return store.cancel_jobs(connection, batch_id=batch_id)

        with ThreadPoolExecutor(1) as pool:
            with database.begin() as connection:  # what a claim does, held open in its middle
                connection.execute(update(step_runs).where(step_runs.c.job_id == job_id).values(state="running"))
                cancelled = pool.submit(cancel)
                wait_until(lambda: waits_for_a_lock(database))
                connection.execute(update(jobs).where(jobs.c.id == job_id).values(state="running"))
            assert cancelled.result(30) == 1
        assert rows.job(database, job_id).state == "cancelling"


def test_batches_complete_when_sealed_and_empty_of_live_jobs(database: Database) -> None:
    """A batch completes once it is sealed and all its jobs have ended, failed ones among them; and only once."""
    open_batch, busy, done = (rows.add_batch(database, sealed=sealed) for sealed in (False, True, True))
    rows.add_job(database, busy)
    ended = [rows.add_job(database, done, seq=seq) for seq in range(2)]
    with database.begin() as connection:
        store.finish_job(connection, ended[0], JobState.SUCCEEDED)
        store.finish_job(connection, ended[1], JobState.FAILED, error=Damaged("bad"))
        assert store.complete_batches(connection) == 1
        assert store.complete_batches(connection) == 0
    assert [rows.batch(database, one).state for one in (open_batch, busy, done)] == [
        "in_progress",
        "in_progress",
        "completed",
    ]
    shown = queries.show_batch(database, done)
    assert (shown["jobs"], len(shown["failures"])) == ({"succeeded": 1, "failed": 1}, 1)
    assert shown["failures"][0]["error"]["message"] == "bad"
    assert [one["id"] for one in queries.list_batches(database)] == sorted([done, busy, open_batch], reverse=True)


def test_a_job_sent_again_waits_and_an_ended_one_stays(database: Database) -> None:
    """Sending again empties `sent_at` and sets a time ahead; a job that has ended is left alone."""
    job_id, ended = rows.add_job(database), rows.add_job(database)
    with database.begin() as connection:
        store.finish_job(connection, ended, JobState.SUCCEEDED)
        for one in (job_id, ended):
            store.send_again(connection, one, delay_s=100.0)
    row = rows.job(database, job_id)
    assert row.sent_at is None
    assert 99 < row.run_after - row.created_at < 110
    assert rows.job(database, ended).run_after is None


@pytest.mark.parametrize("size", [10, 300_000])
def test_artifacts_come_back_whole(database: Database, tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    """Small bytes live in the row, large ones in a file, and both come back as they were."""
    blobs = BlobStore(tmp_path_factory.mktemp("blobs"))
    data = os.urandom(size)
    job_id = rows.add_job(database)
    step_run_id = rows.steps(database, job_id)["prepare"].id
    artifact = blobs.store(data, "transcript", {"type": "x"})
    with database.begin() as connection:
        artifact_id = store.insert_artifact(connection, job_id, step_run_id, artifact)
        result = NewResult("key", artifact_id, "en", 1.5, 2, "two wörds")
        store.insert_result(connection, job_id, result)
        store.note_audio(connection, job_id, 1.5)
    assert artifacts.load(database, blobs, artifact_id) == data
    assert (artifact.data is None) == (size > 100_000)
    told = queries.show_job(database, job_id)
    assert (told["result"]["text"], told["audio_s"]) == ("two wörds", 1.5)
    assert told["steps"][0]["artifacts"][0]["id"] == artifact_id
    with pytest.raises(NoSuchRecord):
        artifacts.load(database, blobs, "art_nobody")


def test_unknown_ids_are_said_to_be_unknown(database: Database) -> None:
    """Showing a job or batch that does not exist names it and the command that lists them."""
    with pytest.raises(NoSuchRecord, match="job_x") as caught:
        queries.show_job(database, "job_x")
    assert "job list" in caught.value.hint
    with pytest.raises(NoSuchRecord, match="batch_x"):
        queries.show_batch(database, "batch_x")
