"""Everything at once on one store: workers, dispatchers, upkeep, cancellations, failures, lost leases."""

import logging
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import Ignore

from tests import rows
from tests.integration.tasks.shapes import EXPECTED, SHARDS, STEPS, bare_runtime, registered
from tests.integration.tasks.test_orders import Line
from tests.waiting import wait_until
from voicejobs import dispatch
from voicejobs.errors import Damaged, DecoderCrash
from voicejobs.pipelines import pipeline as pipelines
from voicejobs.store import outbox
from voicejobs.store.database import Database
from voicejobs.store.jobs import cancel_jobs
from voicejobs.store.leases import Lease
from voicejobs.store.states import FINAL_JOB
from voicejobs.tasks.base import Product, run_step
from voicejobs.tasks.keeper import Hold

JOBS = 40
WORKERS = 6


@pytest.fixture(scope="module", autouse=True)
def _graphs() -> Iterator[None]:
    """Register steps and pipelines of several shapes."""
    with registered():
        yield


class Storm(Line):
    """Work on one pile of messages with many threads, with steps that fail now and then."""

    def __init__(self, runtime: Any) -> None:
        super().__init__(seed=7)
        self.runtime = runtime
        self.over = threading.Event()
        self.bad: set[str] = set()
        self._lock = threading.Lock()

    def put(self, chain: list[Any]) -> None:
        """Add a message; some are lost."""
        with self._lock:
            if self.chance.random() > 0.1:
                super().put(chain)

    def take(self) -> list[Any] | None:
        """Take a message, from anywhere in the pile."""
        with self._lock:
            return self.messages.pop(self.chance.randrange(len(self.messages))) if self.messages else None

    def serve(self) -> None:
        """Be one thread of a worker."""
        while not self.over.is_set():
            message = self.take()
            if message is None:
                time.sleep(0.002)
                continue
            first, *rest = message
            task: Any = SimpleNamespace(request=SimpleNamespace(chain=list(reversed(rest))))
            try:
                run_step(self.runtime, task, first.args[1], dict.fromkeys(STEPS, self.stumble))
            except Ignore:
                continue
            if task.request.chain:
                self.put(rest)

    def stumble(self, runtime: Any, lease: Lease, hold: Hold) -> Product:
        """Succeed, mostly."""
        if lease.job_id in self.bad and lease.node != "load":
            raise Damaged("bad.wav is damaged")
        if random.random() < 0.1:
            raise DecoderCrash("it crashed")
        if random.random() < 0.05:
            time.sleep(0.05)
        hold.check()
        return Product({"shards": [{"number": number} for number in range(SHARDS.get(lease.node, 0))]})

    def mind(self) -> None:
        """Be the upkeep of several workers, with leases that run out at once now and then."""
        while not self.over.is_set():
            dispatch.fill(self.runtime.database, self.runtime.app, 12)
            self.runtime.upkeep.tick()
            with self.runtime.database.begin() as connection:
                if random.random() < 0.2:
                    outbox.free_expired(connection, grace_s=-1000.0)
                if random.random() < 0.3:
                    outbox.forget_sent(connection)
            time.sleep(0.01)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("served", ["", "cpu asr"], ids=["sends-all", "serves-all"])
def test_nothing_is_lost_or_done_twice_in_a_storm(
    store_url: str,
    served: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All jobs end, succeeded ones ran each step to its end once, no step run is left open, no lock is in the way."""
    caplog.set_level(logging.INFO)
    with bare_runtime(store_url, tmp_path_factory.mktemp("state"), served, max_attempts=50) as runtime:
        storm = Storm(runtime)
        monkeypatch.setattr(dispatch, "_publish", storm.publish)
        monkeypatch.setattr(dispatch, "retry_delay_s", lambda failures: 0.0)
        monkeypatch.setattr(outbox, "DEATHS_BEFORE_ISOLATION", 1000)
        names = sorted(EXPECTED)
        batch_id = rows.add_batch(runtime.database)
        ids = [
            rows.add_job(runtime.database, batch_id, seq=seq, pipeline=pipelines.pipeline(names[seq % len(names)]))
            for seq in range(JOBS)
        ]
        storm.bad = set(ids[5::10])
        with ThreadPoolExecutor(WORKERS + 3) as pool:
            running = [pool.submit(storm.serve) for _ in range(WORKERS)]
            running += [pool.submit(storm.mind) for _ in range(2)]
            for job_id in ids[3::10]:
                with runtime.database.begin() as connection:
                    cancel_jobs(connection, job_id=job_id)
                time.sleep(0.05)
            try:
                wait_until(lambda: ended(runtime.database, ids), 80, what=lambda: caplog.text[-3000:])
            finally:
                storm.over.set()
            for one in running:
                one.result()
        judge(runtime.database, ids, storm)
    told = caplog.text
    assert "does not answer" not in told
    assert "unforeseen" not in told


def ended(database: Database, ids: list[str]) -> bool:
    """Tell whether all jobs have ended and nothing of them runs."""
    found = [rows.job(database, job_id).state for job_id in ids]
    return set(found) <= set(FINAL_JOB) and not any(
        row.state == "running" for job_id in ids for row in rows.steps(database, job_id).values()
    )


def judge(database: Database, ids: list[str], storm: Storm) -> None:
    """Compare what the rows say with what was to happen."""
    for seq, job_id in enumerate(ids):
        state = rows.job(database, job_id).state
        found = rows.steps(database, job_id)
        outcomes = [[one for _, one in rows.story(database, row.id)].count("succeeded") for row in found.values()]
        assert max(outcomes) <= 1
        assert {row.state for row in found.values()} <= {"succeeded", "failed", "skipped", "cancelled"}
        if state == "succeeded":
            assert outcomes == [1] * len(EXPECTED[sorted(EXPECTED)[seq % len(EXPECTED)]])
        assert state in {"succeeded", "cancelled", "failed"}
        if seq % 10 not in {3, 5}:
            assert state == "succeeded"
        if job_id in storm.bad and seq % 10 != 3:
            assert state == "failed"
