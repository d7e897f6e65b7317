"""What must be true after every fault, whatever it was."""

import json
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import select

from tests.bench import Bench
from tests.rows import job, steps, story
from tests.waiting import wait_until
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database
from voicejobs.store.schema import artifacts, batches, results
from voicejobs.store.states import JobState, StepState

ENDED_STEP = {StepState.SUCCEEDED, StepState.FAILED, StepState.SKIPPED, StepState.CANCELLED}
SWITCHED_OFF = {"fake_cost_base_s": 0, "fake_cost_window_s": 0, "max_attempts": 3}


def succeeded(job_ids: Iterable[str]) -> dict[str, str]:
    """Return the verdict that all of these jobs have succeeded."""
    return dict.fromkeys(job_ids, "succeeded")


def judge(bench: Bench, states: Mapping[str, str]) -> None:
    """Demand that jobs ended as they should, once, with the outputs of a run without faults, and left nothing behind.

    Args:
        bench: its servers must run; its workers are ended here.
        states: the state in which each job must have ended.
    """
    for job_id, state in states.items():
        _judge_rows(bench, job_id, state)
    _end_workers(bench)
    _judge_outputs(bench, states)
    _judge_folders(bench)


def _judge_rows(bench: Bench, job_id: str, state: str) -> None:
    """Demand one final state of the job and of each of its step runs, and one success of each step that succeeded."""
    row = job(bench.database, job_id)
    assert row.state == state, (row.state, row.error)
    assert (row.error_code is None) == (state != JobState.FAILED)
    assert row.finished_at >= row.created_at
    for name, run in steps(bench.database, job_id).items():
        assert run.state in ENDED_STEP, (job_id, name, run.state)
        outcomes = [outcome for _, outcome in story(bench.database, run.id)]
        assert outcomes.count("succeeded") == (run.state == StepState.SUCCEEDED), (job_id, name, outcomes)
        assert "succeeded" not in outcomes[:-1], "nothing runs after success"
        assert (run.owner, run.lease_until) == (None, None)
        if state == JobState.SUCCEEDED:
            assert run.state == StepState.SUCCEEDED
    count = 1 if state == JobState.SUCCEEDED else 0
    found = _rows(bench.database, select(artifacts).where(artifacts.c.job_id == job_id))
    assert len(found) == count
    assert len(_rows(bench.database, select(results).where(results.c.job_id == job_id))) == count
    for artifact in found:
        # `load` compares the bytes with the SHA-256.
        assert BlobStore(bench.folder / "state" / "blobs").load(artifact.sha256, artifact.data)


def _rows(database: Database, query: Any) -> list[Any]:
    """Return the rows of a query."""
    with database.read() as connection:
        return list(connection.execute(query))


def _end_workers(bench: Bench) -> None:
    """Ask the workers that still live to end, and demand that they do so in order."""
    living = [worker for worker in bench.workers if worker.poll() is None]
    for worker in living:
        worker.send_signal(signal.SIGTERM)
    codes = {worker.wait(30) for worker in living}
    # One that has hardly begun does not listen yet.
    assert codes <= {0, -signal.SIGTERM}, f"{codes}\n{bench.log[-3000:]}"


def _judge_outputs(bench: Bench, states: Mapping[str, str]) -> None:
    """Run the recordings of the jobs that succeeded again without faults, and demand the same files."""
    rows = [job(bench.database, job_id) for job_id in states]
    good = {row.input_sha256: row for row in rows if row.state == JobState.SUCCEEDED}
    bench.start_worker(faults={"TEST_FAULT_CALM": "1"}, **SWITCHED_OFF)
    calm = {}
    for digest, row in good.items():
        options, path = json.loads(row.options), Path(json.loads(row.source)["path"])
        engine, channels = options["recognise"]["engine"], options["prepare"]["channels"]
        (calm[digest],) = bench.submit(path, channels=channels, engine=engine, out="calm", force=True)
    assert set(bench.wait_ended(*calm.values(), timeout_s=60).values()) <= {"succeeded"}
    for row in rows:
        output = Path(json.loads(row.options)["deliver"]["target"]["path"] + ".txt")
        if row.state == JobState.SUCCEEDED:
            (told,) = json.loads(row.outputs)
            (undisturbed,) = json.loads(job(bench.database, calm[row.input_sha256]).outputs)
            assert output.read_bytes() == Path(undisturbed["path"]).read_bytes()
            assert (told["path"], told["size"]) == (str(output), output.stat().st_size)
        else:
            assert not output.exists()
    wait_until(lambda: not _rows(bench.database, select(batches.c.id).where(batches.c.finished_at.is_(None))))


def _judge_folders(bench: Bench) -> None:
    """Demand that no decoded audio and no half-written file is left."""
    left = [*bench.folder.rglob("*.part"), *(bench.folder / "state" / "blobs" / "scratch").iterdir()]
    assert not left
    hidden = [path for path in (bench.folder / "out").rglob(".*") if path.is_file()]
    assert not hidden
