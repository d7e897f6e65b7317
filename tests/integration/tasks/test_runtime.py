"""The upkeep thread of a worker."""

import time
from pathlib import Path

from celery import Celery

from voicejobs.settings import Settings
from voicejobs.tasks.runtime import Place, Runtime


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
