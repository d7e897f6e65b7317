"""The page of metrics: what the rows say, what workers tell, and who may read it."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.bench import Bench, bench, make_bench, speech
from tests.rows import add_batch, add_job, hold, opened, set_job, set_step, succeed
from tests.servers.api import ApiServer
from tests.waiting import wait_until
from voicejobs.metrics.page import Kept, Metrics
from voicejobs.metrics.rows import EndedReader
from voicejobs.store.database import Database
from voicejobs.store.reports import Report, put_report

__all__ = ["bench", "make_bench", "speech"]

POOL = {
    "engine": "whisper", "model": "base", "device": "cuda:0", "kind": "recogniser", "size": 2, "limit": 16,
    "loaded": 1, "resident_bytes": 100, "gpu": [300, 200], "loads": 3, "load_s": 1.5, "evictions": {"idle": 1},
    "crashes": 0, "calls": 4, "items": 20, "busy_s": 2.5, "sweep_s": 0.25, "batches": [1, 0, 1, 0, 2, 0, 0, 0],
}  # fmt: skip


def parsed(page: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the samples of a page by name and labels; a sample that stands twice fails."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            key = (sample.name.removeprefix("voicejobs_"), frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(page: str, name: str, **labels: str) -> float:
    """Return the value of the one sample that has a name and at least these labels."""
    (only,) = [v for (n, has), v in parsed(page).items() if n == name and labels.items() <= dict(has).items()]
    return only


@pytest.fixture
def store(store_url: str) -> Iterator[Database]:
    """Return a store on SQLite and on Postgres in turn."""
    with opened(store_url) as database:
        yield database


def test_rows_tell_what_waits_runs_and_has_ended(store: Database) -> None:
    """Outbox by lane, queues with the age of their oldest, states, late leases, dead letters, speed."""
    bulk, quick = add_batch(store), add_batch(store, lane="interactive")
    add_job(store, bulk)
    sent, running, done, dead, wrong = (add_job(store, bulk, seq=number) for number in range(2, 7))
    add_job(store, quick)
    now = time.time()
    with store.begin() as connection:
        connection.exec_driver_sql(f"UPDATE batches SET created_at = {now - 100} WHERE id = '{bulk}'")
    for job_id in (sent, running, done):
        set_job(store, job_id, sent_at=now - 50)
    set_step(store, f"{sent}.prepare.0", created_at=now - 60)
    hold(store, f"{running}.prepare.0", lease_s=-5)
    succeed(store, hold(store, f"{done}.prepare.0"))
    set_job(store, done, state="succeeded", finished_at=now - 5, audio_s=120.0)
    set_job(store, dead, state="failed", finished_at=now, error_code="engine_crash")
    set_job(store, wrong, state="failed", finished_at=now, error_code="not_audio")
    page = Metrics(store).page().decode()
    assert value(page, "outbox_jobs", lane="bulk") == 1
    assert value(page, "outbox_jobs", lane="interactive") == 1
    assert 99 < value(page, "outbox_oldest_seconds", lane="bulk") < 160
    assert value(page, "queue_depth", queue="cpu") == 1
    assert 49 < value(page, "queue_oldest_seconds", queue="cpu") < 110
    assert (value(page, "queue_depth", queue="asr"), value(page, "queue_oldest_seconds", queue="asr")) == (0, 0)
    assert value(page, "running_steps", step="prepare") == 1
    assert value(page, "late_leases") == 1
    states = {
        state: value(page, "jobs", state=state) for state in ("queued", "running", "succeeded", "failed", "expired")
    }
    assert states == {"queued": 3, "running": 1, "succeeded": 1, "failed": 2, "expired": 0}
    assert value(page, "dead_letters") == 1
    assert value(page, "done_audio_seconds") == 120
    assert value(page, "open_batches", lane="bulk") == 1


def test_speed_is_told_between_two_counts(store: Database) -> None:
    """Seconds of audio that jobs which ended since the last count had, by the time since then."""
    job = add_job(store)
    reader = EndedReader(store)
    assert reader.read().realtime_factor == 0
    set_job(store, job, state="succeeded", finished_at=time.time(), audio_s=1000.0)
    began = time.monotonic()
    time.sleep(0.1)
    assert 0 < reader.read().realtime_factor <= 1000 / (time.monotonic() - began) * 2
    assert reader.read().realtime_factor == 0


def test_what_workers_told_is_shown_while_they_are_there(store: Database) -> None:
    """Counters with the worker's name, pools by engine and model, batches as a histogram; silent workers vanish."""
    counts: list[Any] = [
        ["audio_s", {"pipeline": "transcribe"}, 60.5],
        ["steps", {"step": "a", "outcome": "retried"}, 2],
    ]
    told = {"held": 1, "taken": 9, "window": 8, "counts": counts, "pools": [POOL, POOL]}
    for owner in ("host/boot/1/1", "host/boot/2/1"):
        put_report(store, Report(owner, "cpu@host", "cuda:0", 0.0, told))
    put_report(store, Report("host/boot/2/1", "cpu@host", "cuda:0", 0.0, {**told, "taken": 10}))
    page = Metrics(store).page().decode()
    assert value(page, "worker_messages_total", worker="cpu@host") == 10, "the newer of two with one name"
    assert value(page, "worker_messages_total", worker="cpu@host#1") == 9
    assert value(page, "audio_seconds_total", worker="cpu@host", pipeline="transcribe") == 60.5
    assert value(page, "retries_total", worker="cpu@host") == 2
    assert value(page, "leases_lost_total", worker="cpu@host") == 0
    here = {"worker": "cpu@host", "engine": "whisper", "model": "base", "device": "cuda:0", "kind": "recogniser"}
    assert value(page, "model_pool_loads_total", **here) == 6, "two pools that differ in parameters only"
    assert value(page, "model_pool_evictions_total", reason="idle", **here) == 2
    assert value(page, "engine_batch_size_bucket", le="4", **here) == 4
    assert value(page, "engine_batch_size_count", **here) == 8
    assert value(page, "gpu_reserved_unallocated_bytes", **here) == 200
    with store.begin() as connection:
        connection.exec_driver_sql("UPDATE worker_reports SET updated_at = updated_at - 60")
    assert "cpu@host" not in Metrics(store).page().decode()


def test_a_costly_answer_is_kept_longer() -> None:
    """At most a hundredth of the time is spent on finding it."""
    asked: list[float] = []

    def find() -> int:
        asked.append(time.monotonic())
        time.sleep(0.03)
        return len(asked)

    kept = Kept(find, least_s=0.1)
    assert [kept.get() for _ in range(3)] == [1, 1, 1]
    time.sleep(0.5)
    assert kept.get() == 1, "3 s by its cost"


def test_a_running_stack_shows_itself(bench: Bench, tmp_path: Path) -> None:
    """After a job: audio, steps, batches, loads and memory of the worker, and the requests and loop of the service."""
    server = ApiServer(tmp_path / "api", bench.broker_url, database_url=bench.database.url)
    with server:
        bench.start_worker()
        assert set(bench.wait_ended(*bench.submit(bench.recording("a.wav"))).values()) == {"succeeded"}
        reader, other = server.key("default", "metrics"), server.key("default", "jobs:read")
        with server.client() as anybody, server.client(other) as stranger, server.client(reader) as prometheus:
            assert anybody.get("/metrics").status_code == 401
            assert stranger.get("/metrics").status_code == 403
            wait_until(lambda: "voicejobs_audio_seconds_total{" in prometheus.get("/metrics").text)
            answer = prometheus.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    page = answer.text
    assert value(page, "audio_seconds_total") == pytest.approx(3.0, abs=0.1)
    for step in ("prepare", "recognise", "deliver"):
        assert value(page, "steps_total", step=step, outcome="succeeded") == 1
    assert value(page, "model_pool_loads_total", engine="fake") == 1
    assert value(page, "model_pool_bytes", engine="fake") > 10_000_000
    assert value(page, "engine_busy_seconds_total", engine="silero") > 0
    assert value(page, "engine_batch_size_count", engine="fake") >= 1
    assert value(page, "api_requests_total", route="/metrics", status="401") == 1
    assert value(page, "api_loop_lag_seconds_count") > 1
    assert value(page, "jobs", state="succeeded") == 1
    told = [json.loads(line) for line in bench.log.splitlines() if line.startswith("{")]
    assert not [line for line in told if line["event"] == "upkeep failed"]
