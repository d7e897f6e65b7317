"""Real workers under real faults: every job ends, once, with the words that an undisturbed run gives."""

import json
import signal
import socket
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from celery import Celery

from tests.bench import Bench, MakeBench
from tests.rows import job, set_job, steps
from tests.waiting import wait_until
from voicejobs import dispatch, notices, queries
from voicejobs.messages import queue_name, task_name
from voicejobs.tasks.app import configure

ONCE = {"prepare": ["succeeded"], "recognise": ["succeeded"], "deliver": ["succeeded"]}
SLOW = {"fake_cost_window_s": 0.5}
"""Half a second for each window: a long recording is long at work."""
LONG_S = 250.0
"""More than one call of the engine, so that there is a checkpoint in between."""


def test_a_file_goes_from_row_to_transcript(either_bench: Bench) -> None:
    """A job leaves a succeeded row for each step, one attempt each, a result, an artifact, and its file."""
    bench = either_bench
    bench.start_worker()
    (job_id,) = bench.submit(bench.recording("one.wav"))
    assert bench.wait_ended(job_id) == {job_id: "succeeded"}
    assert bench.stories(job_id) == ONCE
    told = queries.show_job(bench.database, job_id)
    assert (told["audio_s"], told["result"]["duration_s"]) == (3.0, 3.0)
    assert told["result"]["text"].split()[0].startswith("n")
    assert [step["worker"] for step in told["steps"]] == ["cpu"] * 3
    assert len(told["steps"][2]["artifacts"]) == 1
    (output,) = told["outputs"]
    assert (bench.folder / "out" / "one.txt").read_text().split() == told["result"]["text"].split()
    assert output["path"] == str(bench.folder / "out" / "one.txt")
    assert job(bench.database, job_id).sent_count == 1
    assert not list((bench.folder / "state" / "blobs" / "scratch").iterdir()), "decoded audio is removed"


def test_a_bad_file_fails_alone(bench: Bench) -> None:
    """What is no audio, was changed, or is gone fails at once with its code; the files beside it are transcribed."""
    good = bench.recording("good.wav")
    bad, gone, changed = (bench.recording(name) for name in ("bad.wav", "gone.wav", "changed.wav"))
    bad.write_text("no audio at all " * 100)
    ids = bench.submit(good, bad, gone, changed)
    gone.unlink()
    changed.write_bytes(good.read_bytes() + b"x")
    bench.start_worker()
    assert list(bench.wait_ended(*ids).values()) == ["succeeded", "failed", "failed", "failed"]
    codes = [job(bench.database, job_id).error_code for job_id in ids]
    assert codes == [None, "not_audio", "not_found", "input_changed"]
    for job_id in ids[1:]:
        assert bench.stories(job_id) == {"prepare": ["failed"], "deliver": []}
        assert steps(bench.database, job_id)["deliver"].state == "skipped"


def send(app: Celery, step: str, job_id: str, step_run_id: str, queue: str = "cpu") -> None:
    """Send the message of one step run, whatever state it is in."""
    app.send_task(task_name(step), args=(job_id, step_run_id), queue=queue_name(queue))


def test_messages_that_mean_nothing_are_dropped(bench: Bench, producer: Celery) -> None:
    """Unknown ids, unknown tasks and jobs that have ended are ignored, and the worker goes on."""
    ended, waiting = bench.submit(bench.recording("ended.wav"), bench.recording("waiting.wav"))
    set_job(bench.database, ended, state="failed")
    send(producer, "prepare", "job_nobody", "job_nobody.prepare.0")
    send(producer, "prepare", ended, steps(bench.database, ended)["prepare"].id)
    send(producer, "no-such-step", waiting, steps(bench.database, waiting)["prepare"].id)
    send(producer, "deliver", waiting, steps(bench.database, waiting)["deliver"].id)
    bench.start_worker()
    assert bench.wait_ended(waiting) == {waiting: "succeeded"}
    assert bench.stories(waiting) == ONCE
    assert bench.stories(ended) == {"prepare": [], "deliver": []}


@pytest.mark.timeout(120)
def test_channels_fork_and_join(either_bench: Bench) -> None:
    """Each channel of a split recording is a step run of its own; one commit joins them into one transcript."""
    import numpy as np
    import soundfile as sf

    bench = either_bench
    path = bench.recording("stereo.wav")
    sf.write(path, np.stack([bench.speech, bench.speech // 2, bench.speech // 3], axis=1), 16_000, subtype="PCM_16")
    bench.start_worker(engine_processes=2)
    (job_id,) = bench.submit(path, channels="split")
    assert bench.wait_ended(job_id) == {job_id: "succeeded"}
    runs = {f"recognise{number}": ["succeeded"] for number in range(3)}
    assert bench.stories(job_id) == {"prepare": ["succeeded"], **runs, "deliver": ["succeeded"]}


@pytest.mark.timeout(120)
def test_a_job_that_kills_its_workers_is_poison(make_bench: MakeBench, sqlite_url: str, broker_url: str) -> None:
    """After three deaths a job runs alone, after the fourth it has failed as poison; what ran beside it succeeds."""
    bench = make_bench(sqlite_url, broker_url, fake_cost_base_s=60.0)
    (poison,) = bench.submit(bench.recording("poison.wav"))
    for _ in range(4):
        worker = bench.start_worker("--restart")
        bench.wait_running(poison, worker=worker)
        bench.stop(worker)
    (other,) = bench.submit(bench.recording("other.wav"))
    bench.start_worker("--restart", fake_cost_base_s=0)
    assert bench.wait_ended(poison, other) == {poison: "failed", other: "succeeded"}
    assert job(bench.database, poison).error_code == "poison"
    assert bench.stories(poison)["recognise"] == ["lost"] * 4


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_a_worker_imports_no_model_library(bench: Bench) -> None:
    """The worker's own process maps no library of torch, CTranslate2, onnxruntime or PyAV after its first job."""
    worker = bench.start_worker()
    bench.wait_ended(*bench.submit(bench.recording("one.wav")))
    mapped = {entry.path for entry in psutil.Process(worker.pid).memory_maps()}
    libraries = ("torch", "ctranslate2", "onnxruntime", "/av/")
    assert not [path for path in mapped if any(name in path for name in libraries)]


def test_a_step_that_takes_too_long_fails_in_the_end(bench: Bench) -> None:
    """Each attempt is stopped between its windows, and the last one gives the job the code `step_timeout`."""
    bench.start_worker(step_base_s=1.0, step_factor=0, max_attempts=2, fake_cost_base_s=2.0)
    job_ids = bench.submit(bench.recording("long.wav", LONG_S))
    bench.wait_ended(*job_ids, timeout_s=55)
    told = queries.show_job(bench.database, job_ids[0])
    assert (told["state"], told["error_code"]) == ("failed", "step_timeout")
    outcomes = [one["outcome"] for step in told["steps"] for one in step["attempts"] if one["outcome"] != "succeeded"]
    assert outcomes[-1] == "failed"
    assert set(outcomes[:-1]) == {"retried"}


def test_nothing_is_begun_while_the_disk_is_low(bench: Bench) -> None:
    """Jobs wait while there is less space than the floor, the worker says so, and they go on where there is more."""
    assert notices.read(bench.broker_url) == {}
    full = bench.start_worker(disk_floor_bytes=10**18)
    (job_id,) = bench.submit(bench.recording("one.wav"))
    wait_until(lambda: "no job is begun" in bench.log, 20)
    time.sleep(1.5)
    assert job(bench.database, job_id).state == "queued"
    (told,) = notices.read(bench.broker_url).items()
    assert told[0] == f"{socket.gethostname()}/cpu"
    assert told[1].code == "disk_low"
    assert "VOICEJOBS_DISK_FLOOR_BYTES" in told[1].text
    bench.stop(full, signal.SIGTERM)
    bench.start_worker()
    assert bench.wait_ended(job_id)[job_id] == "succeeded"


def test_a37_a_worker_without_memory_begins_nothing(bench: Bench) -> None:
    """A step that reaches a worker above its limit goes back without a burnt attempt; another worker runs it.

    The log has a warning with the trace of the job, and whoever waits hears of it.
    """
    (job_id,) = bench.submit(bench.recording("one.wav"))
    full = bench.start_worker(max_memory_bytes=1_000_000)
    (found,) = wait_until(lambda: list(notices.read(bench.broker_url).values()), 20)
    assert found.code == "memory_low"
    assert "VOICEJOBS_MAX_MEMORY_BYTES" in found.text
    with Celery("test", set_as_current=False) as app:
        configure(app, bench.broker_url)
        dispatch.fill(bench.database, app, 10)  # as the dispatcher of another worker does

    def refusals() -> list[dict[str, Any]]:
        entries = [json.loads(line) for line in bench.log.splitlines() if '"step failed"' in line]
        return [one for one in entries if one["code"] == "memory_low"]

    warning = wait_until(refusals, 20)[0]
    assert (warning["level"], warning["job_id"]) == ("warning", job_id)
    assert warning["trace_id"] == job(bench.database, job_id).trace_id
    assert "begins no step" in warning["error"]
    assert job(bench.database, job_id).state == "running"
    bench.stop(full, signal.SIGTERM)
    bench.start_worker()
    assert bench.wait_ended(job_id)[job_id] == "succeeded"
    (prepared,) = [one for one in queries.show_job(bench.database, job_id)["steps"] if one["node"] == "prepare"]
    assert prepared["failures"] == 0
