"""Pruning: what is past its time goes with all its bytes, and nothing that anybody still needs."""

import os
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests import rows
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database, now_s
from voicejobs.store.jobs import NewResult, finish_job, insert_artifact, insert_result
from voicejobs.store.prune import Rules, prune
from voicejobs.store.schema import artifacts, attempts, batches, jobs, results, step_runs
from voicejobs.store.states import JobState

DAY_S = 86_400.0
OLD = Rules(30 * DAY_S)


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    """Return an empty blob store."""
    blobs = BlobStore(tmp_path / "blobs")
    blobs.make_folders()
    return blobs


def ended(
    database: Database, blobs: BlobStore, days: float, *, state: JobState = JobState.SUCCEEDED, data: bytes = b""
) -> str:
    """Add a job of a batch of its own that ended some days ago; `data` is its transcript, a blob where it is large."""
    job_id = rows.add_job(database)
    with database.begin() as connection:
        finish_job(connection, job_id, state)
        if data:
            kept = blobs.store(data, "transcript", {})
            artifact_id = insert_artifact(connection, job_id, f"{job_id}.deliver.0", kept)
            insert_result(connection, job_id, NewResult("key", artifact_id, "en", 1.0, 1, "word"))
        moment = connection.execute(select(now_s() - days * DAY_S)).scalar_one()
        connection.execute(jobs.update().where(jobs.c.id == job_id).values(finished_at=moment))
        batch = select(jobs.c.batch_id).where(jobs.c.id == job_id).scalar_subquery()
        connection.execute(batches.update().where(batches.c.id == batch).values(finished_at=moment))
    return job_id


def left(database: Database) -> set[str]:
    """Return the ids of all jobs."""
    with database.read() as connection:
        return set(connection.execute(select(jobs.c.id)).scalars())


def counts(database: Database) -> list[int]:
    """Return the number of rows of each table that belongs to jobs."""
    with database.read() as connection:
        tables = (jobs, step_runs, attempts, artifacts, results, batches)
        return [connection.execute(select(func.count()).select_from(table)).scalar_one() for table in tables]


def age(blobs: BlobStore, hours: float = 2.0) -> None:
    """Make all blobs look as if they were written hours ago."""
    moment = time.time() - hours * 3600
    for path in blobs.root.glob("[0-9a-f][0-9a-f]/*"):
        os.utime(path, (moment, moment))


def large(seed: int) -> bytes:
    """Return bytes that no compression makes small."""
    return os.urandom(40_000) + seed.to_bytes(2, "big")


def files(blobs: BlobStore) -> int:
    """Count the blobs, and whatever lies beside them."""
    return sum(1 for path in blobs.root.rglob("*") if path.is_file())


def test_what_is_past_its_time_goes_with_all_its_bytes(database: Database, blobs: BlobStore) -> None:
    """Old jobs, their rows, blobs and batches are removed; younger and live ones stay whole."""
    old = ended(database, blobs, 31, data=large(1))
    young = ended(database, blobs, 29, data=large(2))
    live = rows.add_job(database)
    age(blobs)
    pruned = prune(database, blobs, OLD)
    assert (pruned.jobs, pruned.batches, pruned.blobs, pruned.kept) == (1, 1, 1, 0)
    assert pruned.blob_bytes > 40_000
    assert left(database) == {young, live}
    assert files(blobs) == 1
    assert old not in left(database)


def test_a_dry_run_counts_and_touches_nothing(database: Database, blobs: BlobStore) -> None:
    """The figures are those of a real run."""
    ended(database, blobs, 31, data=large(1))
    ended(database, blobs, 31)
    shared = large(2)
    ended(database, blobs, 31, data=shared)
    ended(database, blobs, 29, data=shared)
    age(blobs)
    before, lying = counts(database), files(blobs)
    planned = prune(database, blobs, Rules(30 * DAY_S, dry_run=True))
    assert (planned.jobs, planned.blobs) == (3, 1)
    assert (counts(database), files(blobs)) == (before, lying)
    assert prune(database, blobs, OLD) == planned


def test_failed_jobs_can_be_kept_for_whoever_looks_into_them(database: Database, blobs: BlobStore) -> None:
    """With `keep_failed` the dead letters stay, however old."""
    failed = ended(database, blobs, 99, state=JobState.FAILED)
    ended(database, blobs, 99)
    prune(database, blobs, Rules(30 * DAY_S, keep_failed=True))
    assert left(database) == {failed}


def test_a_transcript_that_a_live_job_delivers_stays(database: Database, blobs: BlobStore) -> None:
    """The job that made it is kept with its blob until the other has ended."""
    old = ended(database, blobs, 99, data=large(1))
    with database.read() as connection:
        artifact_id = connection.execute(select(artifacts.c.id)).scalar_one()
    live = rows.add_job(database)
    deliver = rows.steps(database, live)["deliver"]
    rows.set_step(database, deliver.id, inputs=f'{{"transcript":"{artifact_id}"}}')
    age(blobs)
    assert prune(database, blobs, OLD).kept == 1
    assert left(database) == {old, live}
    assert files(blobs) == 1
    with database.begin() as connection:
        finish_job(connection, live, JobState.CANCELLED)
    assert prune(database, blobs, OLD).jobs == 1
    assert (left(database), files(blobs)) == ({live}, 0)


def test_bytes_that_two_jobs_share_stay_for_the_other(database: Database, blobs: BlobStore) -> None:
    """A blob goes with the last artifact that names it."""
    same = large(3)
    ended(database, blobs, 99, data=same)
    ended(database, blobs, 1, data=same)
    age(blobs)
    assert (prune(database, blobs, OLD).jobs, files(blobs)) == (1, 1)


def test_blobs_of_commits_to_come_are_left_alone(database: Database, blobs: BlobStore) -> None:
    """A blob without a row is removed once it is old; a fresh one may be about to get its row."""
    blobs.store(large(4), "transcript", {})
    assert (prune(database, blobs, OLD).blobs, files(blobs)) == (0, 1)
    age(blobs)
    assert (prune(database, blobs, OLD).blobs, files(blobs)) == (1, 0)


def test_a_submission_that_has_seen_a_transcript_keeps_it(database: Database, blobs: BlobStore) -> None:
    """A transaction that read the result before it went, and then commits a job that needs it, is waited for."""
    old = ended(database, blobs, 99, data=large(5))
    live = rows.add_job(database)
    deliver = rows.steps(database, live)["deliver"]
    if database.is_sqlite:
        pytest.skip("transactions of SQLite that write come one after the other")
    with database.begin() as connection:
        artifact_id = connection.execute(select(results.c.artifact_id)).scalar_one()
        connection.execute(step_runs.update().where(step_runs.c.id == deliver.id).values(inputs="{}"))
        pruning = threading.Thread(target=prune, args=(database, blobs, OLD))
        pruning.start()
        time.sleep(0.5)
        assert pruning.is_alive(), "it waits for us"
        connection.execute(
            step_runs.update().where(step_runs.c.id == deliver.id).values(inputs=f'{{"transcript":"{artifact_id}"}}')
        )
    pruning.join(20)
    assert left(database) == {old, live}


def test_thousands_of_jobs_go_in_chunks(database: Database, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """More jobs than one transaction takes are all removed."""
    monkeypatch.setattr("voicejobs.store.prune.CHUNK_JOBS", 4)
    for _ in range(11):
        ended(database, blobs, 40)
    assert prune(database, blobs, OLD).jobs == 11
    assert counts(database) == [0] * 6
