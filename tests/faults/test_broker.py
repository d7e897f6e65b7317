"""A broker that is killed, emptied or full, and messages that come too often or mean nothing."""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from redis.exceptions import RedisError
from sqlalchemy import select

from tests.bench import Bench, MakeBench
from tests.faults.conftest import MakeSite
from tests.faults.long_work import ONCE
from tests.faults.oracle import judge, succeeded
from tests.rows import steps
from tests.waiting import patience, wait_until
from voicejobs import canvas
from voicejobs.canvas import Missing
from voicejobs.messages import queue_name, task_name
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store.schema import attempts, jobs

pytestmark = pytest.mark.timeout(400)
FLUSHED_JOBS = 1000


@pytest.mark.parametrize("kill", [False, True], ids=["sigterm", "sigkill"])
def test_tasks_outlive_a_restart_of_the_broker(make_site: MakeSite, kill: bool) -> None:
    """Running tasks commit once, the worker stays the same process, and new work begins within ten seconds."""
    site = make_site(fake_cost_base_s=3.0)
    bench = site.bench
    ids = bench.submit(*(bench.recording(f"{number}.wav") for number in range(12)))
    worker = bench.start_worker()
    bench.wait_running(ids[0])
    site.valkey.restart(kill=kill)
    (fresh,) = bench.submit(bench.recording("fresh.wav"))
    back = time.monotonic()
    wait_until(lambda: steps(bench.database, fresh)["prepare"].started_at, 10, what=lambda: bench.log[-3000:])
    assert time.monotonic() - back < 10 * patience()
    assert bench.wait_ended(*ids, fresh, timeout_s=60) == succeeded([*ids, fresh])
    assert [bench.stories(job_id) for job_id in (*ids, fresh)] == [ONCE] * (len(ids) + 1)
    assert worker.poll() is None
    judge(bench, succeeded([*ids, fresh]))


def test_a_flushed_broker_loses_nothing_of_a_thousand_jobs(make_site: MakeSite) -> None:
    """FLUSHALL with a thousand jobs in line, twice: what was sent is sent again, and each step runs once."""
    site = make_site(window_jobs=64)
    bench = site.bench
    ids = bench.submit(*bench.copies(bench.recording("one.wav", 1.0), FLUSHED_JOBS, "in"))
    worker = bench.start_worker()
    for done in (FLUSHED_JOBS // 10, FLUSHED_JOBS // 2):
        wait_until(partial(has, bench, done), 90)
        with site.valkey.client() as client:
            client.flushall()
    wait_until(partial(has, bench, FLUSHED_JOBS), 120, what=lambda: bench.log[-3000:])
    with bench.database.read() as connection:
        outcomes = list(connection.execute(select(attempts.c.outcome)).scalars())
    assert outcomes == ["succeeded"] * 3 * FLUSHED_JOBS
    assert worker.poll() is None
    judge(bench, succeeded(ids))


def has(bench: Bench, count: int) -> bool:
    """Tell whether so many jobs have succeeded."""
    with bench.database.read() as connection:
        return len(connection.execute(select(jobs.c.id).where(jobs.c.state == "succeeded")).all()) >= count


def test_a_full_broker_keeps_jobs_in_the_outbox(make_site: MakeSite) -> None:
    """While Valkey has no memory nothing is sent and nothing fails; with memory again all ends without a hand."""
    site = make_site()
    bench = site.bench
    with site.valkey.client() as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "1")
        with pytest.raises(RedisError, match="memory"):
            client.set("full", "yes")
    ids = bench.submit(*(bench.recording(f"{number}.wav") for number in range(6)))
    command = transcribe(bench, bench.recording("by-command.wav"))
    worker = bench.start_worker()
    wait_until(lambda: "broker does not answer" in bench.log, 40, what=lambda: bench.log[-3000:])
    wait_until(lambda: len(all_jobs(bench)) == len(ids) + 1)
    time.sleep(2)
    assert {row.state for row in all_jobs(bench)} == {"queued"}
    assert command.poll() is None, "the command waits"
    with site.valkey.client() as client:
        client.config_set("maxmemory", "0")
    if worker.poll() is not None:  # Celery may give up on a server without memory: its supervisor starts another
        bench.start_worker("--restart")
    _, told = command.communicate(timeout=60)
    assert (command.returncode, b"Traceback" in told) == (0, False), told
    assert bench.wait_ended(*ids, timeout_s=60) == succeeded(ids)
    ended = [row.id for row in all_jobs(bench)]
    assert [bench.stories(job_id) for job_id in ended] == [ONCE] * (len(ids) + 1)
    judge(bench, succeeded(ended))


def transcribe(bench: Bench, path: Path) -> "subprocess.Popen[bytes]":
    """Start the command on a recording, with the servers and the workers of the bench."""
    settings = {**bench.variables(), "VOICEJOBS_LOCAL_WORKERS": "0"}
    words = ["transcribe", str(path), "-o", str(bench.folder / "out"), "--engine", "fake", "--no-progress"]
    command = [str(Path(sys.executable).with_name("voicejobs")), *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **settings}, start_new_session=True
    )


def all_jobs(bench: Bench) -> list[Any]:
    """Return the rows of all jobs, the oldest first."""
    with bench.database.read() as connection:
        return list(connection.execute(select(jobs).order_by(jobs.c.id)))


def test_a_message_that_comes_five_times_has_one_effect(
    make_bench: MakeBench, store_url: str, broker_url: str, producer: Celery
) -> None:
    """Five canvases of a queued job, and five more messages of what runs and of what is done, run each step once."""
    bench = make_bench(store_url, broker_url, fake_cost_base_s=2.0)
    (job_id,) = bench.submit(bench.recording("one.wav"))
    prepare = steps(bench.database, job_id)["prepare"]
    missing = [Missing(prepare.id, job_id, "prepare", "prepare", "cpu", is_ready=True)]
    signature = canvas.build(producer, TRANSCRIBE, missing)
    assert signature is not None
    for _ in range(5):
        signature.apply_async()
    for _ in range(2):
        bench.start_worker()
    send_five(producer, bench.wait_running(job_id))
    bench.wait_ended(job_id)
    for row in steps(bench.database, job_id).values():
        send_five(producer, row)
    wait_until(lambda: queued(producer) == 0)
    (other,) = bench.submit(bench.recording("other.wav"))
    bench.wait_ended(other)
    assert bench.stories(job_id) == ONCE
    with bench.database.read() as connection:
        fences = connection.execute(select(attempts.c.fence).where(attempts.c.step_run_id.startswith(job_id))).scalars()
        assert set(fences) == {1}
    judge(bench, succeeded([job_id, other]))


def send_five(app: Celery, row: Any) -> None:
    """Send the message of one step run five times, whatever state it is in."""
    for _ in range(5):
        app.send_task(task_name(row.step), args=(row.job_id, row.id), queue=queue_name(row.queue))


def queued(app: Celery) -> int:
    """Return the number of messages that wait in the broker."""
    with app.connection_for_read() as connection:
        client = getattr(connection.default_channel, "client")  # noqa: B009 - kombu's types do not know it
        return sum(client.llen(queue_name(name)) for name in ("cpu", "asr"))


def test_a_task_that_nobody_knows_costs_only_time(bench: Bench, producer: Celery) -> None:
    """A worker throws the message of an unknown task away; the row that it stood for gets another."""
    (job_id,) = bench.submit(bench.recording("one.wav"))
    prepare = steps(bench.database, job_id)["prepare"]
    with bench.database.begin() as connection:
        connection.execute(jobs.update().values(sent_at=time.time(), sent_count=1))
    # A step of a later version, sent as that version would name it.
    producer.send_task("voicejobs.step.prepare-later", args=(job_id, prepare.id), queue=queue_name("cpu"))
    (other,) = bench.submit(bench.recording("other.wav"))
    bench.start_worker()
    assert bench.wait_ended(job_id, other) == succeeded([job_id, other])
    assert bench.stories(job_id) == ONCE
    judge(bench, succeeded([job_id, other]))


def test_jobs_may_take_longer_than_results_live(make_bench: MakeBench, postgres_url: str, broker_url: str) -> None:
    """Channels that join after Celery's `result_expires` are joined: no result of Celery's is waited for."""
    bench = make_bench(postgres_url, broker_url, fake_cost_base_s=3.0)
    path = bench.stereo_recording("stereo.wav", channels=3)
    began = time.monotonic()
    (job_id,) = bench.submit(path, channels="split")
    bench.start_worker(faults={"TEST_FAULT_RESULT_EXPIRES": "4"}, fake_cost_window_s=2.0)
    assert bench.wait_ended(job_id, timeout_s=60) == {job_id: "succeeded"}
    assert time.monotonic() - began > 4
    runs = {f"recognise{number}": ["succeeded"] for number in range(3)}
    assert bench.stories(job_id) == {"prepare": ["succeeded"], **runs, "deliver": ["succeeded"]}
    judge(bench, succeeded([job_id]))
