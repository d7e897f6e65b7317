"""The frame around a task: what becomes of a step run, by the kind of error that its body ends with."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import Ignore

from tests import rows
from tests.integration.tasks.shapes import bare_runtime
from voicejobs import errors, queries
from voicejobs.errors import VoicejobsError
from voicejobs.steps import registry
from voicejobs.store.leases import Lease
from voicejobs.store.states import JobState
from voicejobs.tasks.base import Product, run_step
from voicejobs.tasks.keeper import Hold

Body = Callable[[Any, Lease, Hold], Product]
TASK: Any = SimpleNamespace(request=SimpleNamespace(chain=None))


@pytest.fixture
def runtime(sqlite_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return what the frame of a task uses."""
    with bare_runtime(sqlite_url, tmp_path_factory.mktemp("state")) as runtime:
        yield runtime


@pytest.fixture
def job_id(runtime: Any) -> str:
    """Return a new job."""
    return rows.add_job(runtime.database)


def raising(error: BaseException) -> Body:
    """Return a body that fails."""

    def body(runtime: Any, lease: Lease, hold: Hold) -> Product:
        raise error

    return body


def deliver(runtime: Any, job_id: str, body: Body) -> Any:
    """Deliver the message of `prepare`, which must not go on, and return its row."""
    row = rows.steps(runtime.database, job_id)["prepare"]
    with pytest.raises(Ignore):
        run_step(runtime, TASK, row.id, {"prepare": body})
    return rows.steps(runtime.database, job_id)["prepare"]


def test_a_permanent_error_ends_the_job(runtime: Any, job_id: str) -> None:
    """The first permanent error fails step run and job, and skips the rest; an expected one has no trace."""
    row = deliver(runtime, job_id, raising(errors.Damaged("bad.wav is damaged")))
    assert (row.state, row.failures, row.error_code) == ("failed", 1, "damaged")
    told = queries.show_job(runtime.database, job_id)
    assert (told["state"], told["error_code"], told["steps"][1]["state"]) == ("failed", "damaged", "skipped")
    assert told["steps"][0]["attempts"][0]["traceback"] is None


def test_a_transient_error_is_tried_again_until_the_attempts_are_used_up(runtime: Any, job_id: str) -> None:
    """Each failure counts and puts the job back with a delay; the last one fails it, with the trace of each."""
    attempts = runtime.settings.max_attempts
    for number in range(1, attempts):
        row = deliver(runtime, job_id, raising(errors.DecoderCrash("it crashed")))
        job = rows.job(runtime.database, job_id)
        assert (row.state, row.failures, job.state, job.sent_at) == ("queued", number, "running", None)
        assert job.run_after > job.created_at
        rows.set_job(runtime.database, job_id, run_after=None)
    row = deliver(runtime, job_id, raising(errors.DecoderCrash("it crashed")))
    assert (row.state, row.failures, rows.job(runtime.database, job_id).state) == ("failed", attempts, "failed")
    assert [one for _, one in rows.story(runtime.database, row.id)] == ["retried"] * (attempts - 1) + ["failed"]
    told = queries.show_job(runtime.database, job_id)["steps"][0]["attempts"]
    assert all("DecoderCrash: it crashed" in one["traceback"] for one in told)


@pytest.mark.parametrize(
    "error",
    [
        errors.DiskFull("full"),
        errors.DatabaseUnavailable("away"),
        errors.BlobsUnavailable("away"),
        errors.BlobsRefused("no"),
    ],
)
def test_what_is_no_fault_of_the_job_burns_no_attempt(runtime: Any, job_id: str, error: VoicejobsError) -> None:
    """However often the disk is full, or the database or the blob store is away, the job waits and comes again."""
    for _ in range(runtime.settings.max_attempts + 2):
        row = deliver(runtime, job_id, raising(error))
        assert (row.state, row.failures) == ("queued", 0)
        rows.set_job(runtime.database, job_id, run_after=None)
    assert rows.job(runtime.database, job_id).state == JobState.RUNNING


def test_an_unforeseen_error_is_told_whole(runtime: Any, job_id: str) -> None:
    """An error of the code is `internal`, tried again, and its trace names the place."""
    deliver(runtime, job_id, raising(ZeroDivisionError("odd")))
    (attempt,) = queries.show_job(runtime.database, job_id)["steps"][0]["attempts"]
    assert (attempt["error_code"], attempt["message"]) == ("internal", "ZeroDivisionError: odd")
    assert "raise error" in attempt["traceback"]


def test_a_step_that_is_interrupted_by_shutdown_goes_back_at_once(runtime: Any, job_id: str) -> None:
    """The lease is given back without delay or failure, and the job is in the outbox."""
    row = deliver(runtime, job_id, raising(errors.ShuttingDown("down")))
    job = rows.job(runtime.database, job_id)
    assert (row.state, row.failures, row.owner, job.sent_at) == ("queued", 0, None, None)
    assert job.run_after <= job.started_at + 1
    assert rows.story(runtime.database, row.id) == [(1, "released")]


def test_a_worker_that_goes_down_takes_nothing_new(runtime: Any, job_id: str) -> None:
    """Messages that come after the word to go down leave their rows untouched."""
    runtime.keeper.shut_down()
    before = rows.steps(runtime.database, job_id)
    deliver(runtime, job_id, raising(AssertionError()))
    assert rows.steps(runtime.database, job_id) == before


def test_a_cancelled_step_ends_its_job(runtime: Any, job_id: str) -> None:
    """The step run and then the job are cancelled at once, and decoded audio is removed."""
    runtime.blobs.make_folders()
    scratch = runtime.blobs.scratch / f"{job_id}.1-0.s16le"
    scratch.write_bytes(b"")

    def body(runtime: Any, lease: Lease, hold: Hold) -> Product:
        rows.set_job(runtime.database, job_id, state="cancelling")
        hold.stop(errors.Cancelled("The job is cancelling"))
        return Product({"shards": []})

    row = deliver(runtime, job_id, body)
    assert (row.state, rows.job(runtime.database, job_id).state) == ("cancelled", "cancelled")
    assert not scratch.exists()


def test_a_result_that_comes_too_late_is_dropped(runtime: Any, job_id: str) -> None:
    """A body that ends after its lease was taken changes nothing, and says nothing."""

    def body(runtime: Any, lease: Lease, hold: Hold) -> Product:
        rows.set_step(runtime.database, lease.step_run_id, fence=lease.fence + 1, owner="other/boot/2/2")
        return Product({"shards": [{}]}, audio_s=99.0)

    row = deliver(runtime, job_id, body)
    assert (row.state, row.owner, row.output) == ("running", "other/boot/2/2", None)
    assert rows.job(runtime.database, job_id).audio_s is None
    assert rows.story(runtime.database, row.id) == []
    assert set(rows.steps(runtime.database, job_id)) == {"prepare", "deliver"}


def test_a_step_of_another_version_is_left_to_others(runtime: Any, job_id: str) -> None:
    """A worker that does not know the version gives the lease back for a while, and burns no attempt."""
    rows.set_step(runtime.database, rows.steps(runtime.database, job_id)["prepare"].id, step_version=99)
    row = deliver(runtime, job_id, raising(AssertionError()))
    job = rows.job(runtime.database, job_id)
    assert (row.state, row.failures, rows.story(runtime.database, row.id)) == ("queued", 0, [(1, "released")])
    assert job.run_after > job.started_at + 1
    assert registry.step("prepare").version != 99


def test_a_database_that_is_away_at_the_claim_costs_a_message(runtime: Any, job_id: str) -> None:
    """The message ends without an error; its row stays, and the look for lost messages finds it."""
    from voicejobs.store.database import Database

    here, runtime.database = runtime.database, Database("postgresql+psycopg://postgres@127.0.0.1:9/none")
    with pytest.raises(Ignore):
        run_step(runtime, TASK, rows.steps(here, job_id)["prepare"].id, {"prepare": raising(AssertionError())})
    runtime.database.close()
    assert rows.steps(here, job_id)["prepare"].state == "queued"
