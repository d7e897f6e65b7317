"""The one module-level Celery application: `celery -A voicejobs_workers.app worker -P threads`."""

import logging
import sys
from dataclasses import replace
from typing import Any

from celery import Celery, signals

from voicejobs import logs
from voicejobs.errors import VoicejobsError
from voicejobs.settings import Settings
from voicejobs.tasks.app import configure, register
from voicejobs.tasks.runtime import Place

from .slots import Slot, cpu_slot

EXIT_CANNOT_START = 5

logger = logging.getLogger(__name__)
settings = Settings.from_env()
slot = (
    Slot.parse(sys.argv[sys.argv.index("--slot") + 1])
    if "--slot" in sys.argv
    else replace(cpu_slot(settings), is_placed=False)
)
app = Celery("voicejobs", set_as_current=False)
configure(app, settings.broker_url)
runtime = register(
    app,
    settings,
    Place(
        worker=slot.name,
        device=slot.device,
        window_jobs=slot.window_jobs,
        engine_device=slot.engine_device,
        memory_fraction=slot.memory_fraction,
        memory_bytes=slot.memory_bytes,
    ),
)


@signals.setup_logging.connect(weak=False)
def set_up_logging(**kwargs: object) -> None:
    """Send Celery's logs the same way as ours."""
    logs.configure(settings.log_level)


@signals.worker_init.connect(weak=False)
def begin(**kwargs: object) -> None:
    """Start decoder, dispatcher and upkeep while Celery still connects to the broker; end where they cannot.

    Celery would log what goes wrong here and carry on, with a worker that takes messages and can run none.
    """
    logs.configure(settings.log_level)  # Celery asks for it later; decoder and engines log as this process does now
    try:
        runtime.get()
    except VoicejobsError as error:
        logger.critical("cannot start", extra={"code": error.code, "error": error.message, "hint": error.hint})
        raise SystemExit(EXIT_CANNOT_START) from error


@signals.worker_ready.connect(weak=False)
def watch(sender: Any, **kwargs: object) -> None:
    """Let Flower see the steps that run without a message of their own."""
    runtime.get().watch.attach(sender.event_dispatcher)


@signals.worker_shutting_down.connect(weak=False)
def go_down(**kwargs: object) -> None:
    """Ask running tasks to checkpoint and give their leases back."""
    runtime.shut_down()


@signals.worker_shutdown.connect(weak=False)
def end(**kwargs: object) -> None:
    """Close what the runtime holds."""
    runtime.close()
