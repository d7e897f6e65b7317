"""The upkeep thread of a worker."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from celery import Celery

from tests import rows
from tests.rows import cut_listeners
from tests.waiting import wait_until
from voicejobs.settings import Settings
from voicejobs.store import wakes
from voicejobs.tasks import runtime as module
from voicejobs.tasks.runtime import Place, Runtime

HOUR_S = 3600.0


@contextmanager
def dispatching(folder: Path, url: str, app: Celery) -> Iterator[Runtime]:
    """Run the upkeep of a worker that takes no messages."""
    runtime = Runtime(Settings(state_dir=folder, models_dir=folder, database_url=url), app, Place())
    runtime.blobs.make_folders()
    runtime._thread.start()
    try:
        yield runtime
    finally:
        runtime.close()
        if runtime.settings.memory_dir is not None:
            shutil.rmtree(runtime.settings.memory_dir, ignore_errors=True)


def wait_sent(runtime: Runtime) -> None:
    """Submit a job and wait until it has been sent."""
    job_id = rows.add_job(runtime.database)
    wait_until(lambda: rows.job(runtime.database, job_id).sent_at is not None)


def test_a_worker_without_leases_notices_an_outage_too(tmp_path: Path) -> None:
    """A duty that the database does not answer starts the grace again: no heartbeat of an idle worker would."""
    url = "postgresql+psycopg://postgres@127.0.0.1:9/none"
    app = Celery("idle", set_as_current=False)
    runtime = Runtime(Settings(state_dir=tmp_path, models_dir=tmp_path, database_url=url), app, Place())
    try:
        runtime.upkeep._healthy_since -= 1000.0
        runtime._guard(runtime.upkeep.tick)
        assert time.monotonic() - runtime.upkeep._healthy_since < 100.0
    finally:
        runtime.close()
        app.close()


def test_a_submission_waits_for_no_look(
    tmp_path: Path, store_url: str, producer: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With hours between two looks of the dispatcher, what is submitted is sent all the same."""
    monkeypatch.setattr(module, "FILL_EVERY_S", HOUR_S)
    with dispatching(tmp_path, store_url, producer) as runtime:
        wait_sent(runtime)
        wait_sent(runtime)


def test_a_dispatcher_that_hears_nothing_looks(
    tmp_path: Path, store_url: str, producer: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no wake-up ever comes, jobs are sent at the next look."""
    monkeypatch.setattr(wakes.Wakes, "_ask", lambda _: None)
    monkeypatch.setattr(wakes.Wakes, "_listen", lambda _: None)
    with dispatching(tmp_path, store_url, producer) as runtime:
        wait_until(lambda: runtime._wakes._thread.ident is not None and not runtime._wakes._thread.is_alive())
        wait_sent(runtime)


def test_a_dispatcher_listens_again_after_its_connection_was_cut(
    tmp_path: Path, postgres_url: str, producer: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that is submitted around that time is left until the next look."""
    monkeypatch.setattr(module, "FILL_EVERY_S", HOUR_S)
    with dispatching(tmp_path, postgres_url, producer) as runtime:
        wait_sent(runtime)
        cut_listeners(runtime.database)
        wait_sent(runtime)
        wait_sent(runtime)
