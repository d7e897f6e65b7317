"""Real workers under real faults: every job ends, once, with the words that an undisturbed run gives."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from celery import Celery
from sqlalchemy import select

from tests.integration.tasks.conftest import LEASE_S, Bench, MakeBench, family
from tests.rows import job, set_job, steps
from tests.servers.postgres import Postgres
from tests.servers.process import wait_gone
from tests.servers.valkey import Valkey
from tests.waiting import wait_until
from voicejobs import canvas, queries
from voicejobs.canvas import Missing
from voicejobs.messages import queue_name, task_name
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store.schema import attempts, results
from voicejobs.submit import cancel_batch

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


@pytest.mark.timeout(120)
def test_a_message_that_comes_five_times_has_one_effect(either_bench: Bench, producer: Celery) -> None:
    """Five canvases of one job, and five more of each step once it is done, run each step once."""
    bench = either_bench
    (job_id,) = bench.submit(bench.recording("one.wav"))
    prepare = steps(bench.database, job_id)["prepare"]
    signature = canvas.build(
        producer, TRANSCRIBE, [Missing(prepare.id, job_id, "prepare", "prepare", "cpu", is_ready=True)]
    )
    assert signature is not None
    for _ in range(5):
        signature.apply_async()
    bench.start_worker()
    bench.wait_ended(job_id)
    for row in steps(bench.database, job_id).values():
        for _ in range(5):
            send(producer, row.step, job_id, row.id, row.queue)
    wait_until(lambda: queued(producer) == 0)
    other = bench.submit(bench.recording("other.wav"))
    bench.wait_ended(*other)
    assert bench.stories(job_id) == ONCE
    with bench.database.read() as connection:
        assert len(connection.execute(select(results).where(results.c.job_id == job_id)).all()) == 1
        fences = connection.execute(select(attempts.c.fence).where(attempts.c.step_run_id.startswith(job_id))).scalars()
        assert set(fences) == {1}


def send(app: Celery, step: str, job_id: str, step_run_id: str, queue: str = "cpu") -> None:
    """Send the message of one step run, whatever state it is in."""
    app.send_task(task_name(step), args=(job_id, step_run_id), queue=queue_name(queue))


def queued(app: Celery) -> int:
    """Return the number of messages that wait in the broker."""
    with app.connection_for_read() as connection:
        client = getattr(connection.default_channel, "client")  # noqa: B009 - kombu's types do not know it
        return sum(client.llen(queue_name(name)) for name in ("cpu", "asr"))


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


def working_on_a_long_file(bench: Bench) -> tuple[str, "subprocess.Popen[bytes]"]:
    """Start a worker on a long recording, wait for its first checkpoint, and return job and worker."""
    (job_id,) = bench.submit(bench.recording("long.wav", LONG_S))
    worker = bench.start_worker()
    bench.wait_running(job_id)
    wait_until(lambda: steps(bench.database, job_id)["recognise"].checkpoint)
    return job_id, worker


def undisturbed_text(bench: Bench) -> str:
    """Return the text that the long recording gives in a run without faults."""
    copy = bench.folder / "in" / "copy.wav"
    copy.write_bytes((bench.folder / "in" / "long.wav").read_bytes() + b"\0\0")
    (job_id,) = bench.submit(copy)
    assert bench.wait_ended(job_id) == {job_id: "succeeded"}
    assert bench.stories(job_id) == ONCE
    return bench.text(job_id)


@pytest.mark.timeout(120)
def test_a_killed_worker_loses_no_job(make_bench: MakeBench, store_url: str, broker_url: str) -> None:
    """SIGKILL in the middle of a step: the next worker goes on from the checkpoint, and the story tells of it."""
    bench = make_bench(store_url, broker_url, **SLOW)
    job_id, worker = working_on_a_long_file(bench)
    children = family(worker.pid)
    before = steps(bench.database, job_id)["recognise"]
    bench.stop(worker)
    wait_gone(children, 10)  # its decoder and its engines end with it
    began = time.monotonic()
    bench.start_worker(fake_cost_window_s=0)
    assert bench.wait_ended(job_id) == {job_id: "succeeded"}
    assert time.monotonic() - began < 15
    assert bench.stories(job_id) == {**ONCE, "recognise": ["lost", "succeeded"]}
    row = steps(bench.database, job_id)["recognise"]
    assert (row.fence, row.failures, job(bench.database, job_id).deaths) == (before.fence + 2, 0, 0)
    assert bench.text(job_id) == undisturbed_text(bench)


@pytest.mark.timeout(120)
def test_a_worker_beside_a_killed_one_takes_over(make_bench: MakeBench, sqlite_url: str, broker_url: str) -> None:
    """With another worker alive nobody has to start one: the dead owner is noticed, and a death is counted."""
    bench = make_bench(sqlite_url, broker_url, **SLOW)
    job_id, worker = working_on_a_long_file(bench)
    bench.start_worker(fake_cost_window_s=0)
    bench.stop(worker)
    assert bench.wait_ended(job_id) == {job_id: "succeeded"}
    assert bench.stories(job_id)["recognise"] == ["lost", "succeeded"]
    assert job(bench.database, job_id).deaths <= 1


@pytest.mark.timeout(120)
def test_sigterm_gives_the_lease_back(make_bench: MakeBench, sqlite_url: str, broker_url: str) -> None:
    """SIGTERM in the middle of a step ends the worker within ten seconds, burns no attempt, and loses no window."""
    bench = make_bench(sqlite_url, broker_url, **SLOW)
    job_id, worker = working_on_a_long_file(bench)
    began = time.monotonic()
    bench.stop(worker, signal.SIGTERM)
    assert time.monotonic() - began < 10
    row = steps(bench.database, job_id)["recognise"]
    assert (row.state, row.failures, row.owner) == ("queued", 0, None)
    assert row.checkpoint, "what was recognised is kept"
    bench.start_worker(fake_cost_window_s=0)
    assert bench.wait_ended(job_id) == {job_id: "succeeded"}
    assert bench.stories(job_id) == {**ONCE, "recognise": ["released", "succeeded"]}
    assert bench.text(job_id) == undisturbed_text(bench)


@pytest.mark.timeout(120)
def test_a_frozen_worker_is_fenced_out(make_bench: MakeBench, postgres_url: str, broker_url: str) -> None:
    """A worker that is stopped for two leases loses its step run; awake again it commits nothing and lives on."""
    bench = make_bench(postgres_url, broker_url, fake_cost_base_s=2.0)
    (job_id,) = bench.submit(bench.recording("one.wav"))
    zombie = bench.start_worker()
    bench.wait_running(job_id)
    zombie.send_signal(signal.SIGSTOP)
    bench.start_worker(fake_cost_base_s=0)
    assert bench.wait_ended(job_id, timeout_s=4 * LEASE_S + 20) == {job_id: "succeeded"}
    ended = queries.show_job(bench.database, job_id)
    zombie.send_signal(signal.SIGCONT)
    wait_until(lambda: "lease_lost" in bench.log, what=lambda: bench.log[-3000:])
    assert queries.show_job(bench.database, job_id) == ended
    assert bench.stories(job_id)["recognise"] == ["lost", "succeeded"]
    (other,) = bench.submit(bench.recording("other.wav"))
    assert bench.wait_ended(other) == {other: "succeeded"}
    assert zombie.poll() is None
    wait_until(lambda: queries.show_batch(bench.database, ended["batch_id"])["state"] == "completed")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", ["flushall", "kill", "stop"])
def test_jobs_outlive_the_broker(
    make_bench: MakeBench, sqlite_url: str, start_valkey: Callable[..., Valkey], fault: str
) -> None:
    """Whatever the broker held and loses, all jobs end, none runs twice, and the worker stays the same process."""
    server = start_valkey()
    bench = make_bench(sqlite_url, server.broker_url(1), fake_cost_base_s=0.1)
    ids = bench.submit(*(bench.recording(f"{number}.wav") for number in range(16)))
    worker = bench.start_worker()
    wait_until(lambda: "succeeded" in {job(bench.database, job_id).state for job_id in ids}, 30)
    if fault == "flushall":
        with server.client() as client:
            client.flushall()
    else:
        server.restart(kill=fault == "kill")
    assert set(bench.wait_ended(*ids, timeout_s=60).values()) == {"succeeded"}
    assert [bench.stories(job_id) for job_id in ids] == [ONCE] * len(ids)
    assert worker.poll() is None


@pytest.mark.timeout(120)
def test_jobs_outlive_an_outage_of_the_database(
    make_bench: MakeBench, start_postgres: Callable[[], Postgres], broker_url: str
) -> None:
    """Postgres is stopped at once and started again while steps run: all jobs end, and no attempt is burnt."""
    server = start_postgres()
    server.create_database("jobs")
    url = server.url("jobs")
    from voicejobs.store import migrate

    bench = make_bench(url, broker_url, fake_cost_base_s=0.5, lease_s=10)
    migrate.upgrade(bench.database)
    ids = bench.submit(*(bench.recording(f"{number}.wav") for number in range(4)))
    bench.start_worker()
    bench.wait_running(ids[0])
    bench.database.engine.dispose()
    server.restart()
    bench.database.engine.dispose()
    assert set(bench.wait_ended(*ids, timeout_s=60).values()) == {"succeeded"}
    for job_id in ids:
        assert {row.failures for row in steps(bench.database, job_id).values()} == {0}
        assert all(outcomes.count("succeeded") == 1 for outcomes in bench.stories(job_id).values())


@pytest.mark.timeout(120)
def test_a_cancelled_job_stops_between_windows(make_bench: MakeBench, sqlite_url: str, broker_url: str) -> None:
    """Cancelling a batch stops what runs within seconds, what waits never begins, and what is done stays."""
    bench = make_bench(sqlite_url, broker_url, **SLOW)
    (done,) = bench.submit(bench.recording("done.wav"))
    bench.start_worker(window_jobs=1)
    bench.wait_ended(done)
    long, waiting = bench.submit(bench.recording("long.wav", LONG_S), bench.recording("waiting.wav"))
    bench.wait_running(long)
    began = time.monotonic()
    assert cancel_batch(bench.database, job(bench.database, long).batch_id) == 2
    assert set(bench.wait_ended(long, waiting, timeout_s=10).values()) == {"cancelled"}
    assert time.monotonic() - began < 8
    assert bench.stories(long) == {"prepare": ["succeeded"], "recognise": ["cancelled"], "deliver": []}
    assert bench.stories(waiting) == {"prepare": [], "deliver": []}
    assert job(bench.database, done).state == "succeeded"
    assert cancel_batch(bench.database, job(bench.database, done).batch_id) == 0
    wait_until(lambda: not list((bench.folder / "state" / "blobs" / "scratch").iterdir()), what="decoded audio is left")


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
