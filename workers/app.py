"""The one module-level Celery application: `celery -A voicejobs_workers.app worker -P threads`."""

from typing import Any

from celery import Celery, signals

from voicejobs import logs
from voicejobs.settings import Settings
from voicejobs.tasks.app import configure, register
from voicejobs.tasks.runtime import Place

from .slots import cpu_slot

settings = Settings.from_env()
slot = cpu_slot(settings)
app = Celery("voicejobs", set_as_current=False)
configure(app, settings.broker_url)
runtime = register(app, settings, Place(worker=slot.name, device=slot.device, window_jobs=slot.window_jobs))


@signals.setup_logging.connect(weak=False)
def set_up_logging(**kwargs: object) -> None:
    """Send Celery's logs the same way as ours."""
    logs.configure(settings.log_level)


@signals.worker_init.connect(weak=False)
def begin(**kwargs: object) -> None:
    """Start decoder, dispatcher and upkeep while Celery still connects to the broker."""
    runtime.get()


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
