"""Decoded audio that is gone under a running job: the job begins anew, and ends as if nothing had happened."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.bench import Bench
from tests.rows import job, steps, story
from voicejobs import queries
from voicejobs.settings import Settings

SLOW: dict[str, Any] = {"fake_cost_window_s": 0.5}


def memory(bench: Bench) -> Path:
    """Return the folder in memory of the bench's workers."""
    state = bench.folder / "state"
    folder = Settings(state_dir=state, models_dir=state).memory_dir
    if folder is None:
        pytest.skip("this system has no shared memory folder")
    return folder


def lose(bench: Bench, job_id: str, folder: Path) -> None:
    """Kill the worker in the midst of recognition and remove what it had decoded, as a restart of the machine does."""
    worker = bench.start_worker(**SLOW)
    bench.wait_running(job_id, worker=worker)
    bench.stop(worker, signal.SIGKILL)
    files = list(folder.glob(f"{job_id}.*"))
    assert files, "it lies where it was looked for"
    for path in files:
        path.unlink()


@pytest.mark.parametrize("seconds", [3.0, 250.0], ids=["short", "long"])
def test_a_job_whose_audio_is_gone_begins_anew(either_bench: Bench, seconds: float) -> None:
    """Short recordings lie in memory, long ones on the disk; either way the next worker decodes again, and it ends."""
    bench = either_bench
    (job_id,) = bench.submit(bench.recording("one.wav", seconds))
    lose(bench, job_id, memory(bench) if seconds < 30 else bench.folder / "state" / "blobs" / "scratch")
    bench.start_worker()
    assert bench.wait_ended(job_id)[job_id] == "succeeded"
    outcomes = bench.stories(job_id)
    assert [one.count("succeeded") for one in outcomes.values()] == [1, 1, 1]
    assert "lost" in outcomes["prepare"]
    assert job(bench.database, job_id).deaths <= 1
    assert not list(memory(bench).iterdir())
    told = queries.show_job(bench.database, job_id)
    assert "audio_gone" in {one["error_code"] for step in told["steps"] for one in step["attempts"]}


def test_a_killed_worker_costs_no_decoding(bench: Bench) -> None:
    """What lies in memory outlives the worker: the next one goes on with it."""
    folder = memory(bench)
    (job_id,) = bench.submit(bench.recording("one.wav"))
    worker = bench.start_worker(**SLOW)
    bench.wait_running(job_id, worker=worker)
    assert list(folder.glob(f"{job_id}.*"))
    bench.stop(worker, signal.SIGKILL)
    bench.start_worker()
    assert bench.wait_ended(job_id)[job_id] == "succeeded"
    row = steps(bench.database, job_id)["prepare"]
    assert [outcome for _, outcome in story(bench.database, row.id)] == ["succeeded"]
