"""Configure a Celery application and register the tasks on it; the module-level application is in workers/."""

import threading
from collections.abc import Mapping
from typing import Any

from celery import Celery, Task

from voicejobs import logs
from voicejobs.messages import QUEUE_CLASSES, TRACE_HEADER, queue_name, task_name
from voicejobs.settings import Settings
from voicejobs.tasks import speaking, steps
from voicejobs.tasks.base import Body, run_step
from voicejobs.tasks.runtime import Place, Runtime

BODIES: Mapping[str, Body] = {**steps.BODIES, **speaking.BODIES}
"""The body of the task of each step."""


def configure(app: Celery, broker_url: str) -> None:
    """Set the delivery rules: the broker holds nothing of value, so that a message lost costs only time.

    docs/reliability.md has the experiment behind each line.
    """
    from kombu import Queue  # noqa: PLC0415 - kept out of the import of processes that send nothing

    app.conf.update(
        broker_url=broker_url,
        task_queues=[Queue(queue_name(name), routing_key=queue_name(name)) for name in QUEUE_CLASSES],
        task_default_queue=queue_name(QUEUE_CLASSES[0]),
        task_create_missing_queues=False,
        # Early acknowledgement, nothing fetched ahead: the rows make delivery at least once.
        task_acks_late=False,
        worker_disable_prefetch=True,
        worker_prefetch_multiplier=1,
        task_reject_on_worker_lost=False,
        # No result backend: joins are in the rows, so that none can wait for ever.
        result_backend=None,
        task_ignore_result=True,
        task_publish_retry=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": 86_400,
            "socket_timeout": 30,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
        },
        task_serializer="json",
        accept_content=["json"],
        # One message that nobody can read would otherwise end each worker in turn.
        worker_consumer="voicejobs.tasks.consumer:UnwaveringConsumer",
        # Flower turns events on while it watches; for nobody they cost a third of the work on a message.
        worker_send_task_events=False,
        task_send_sent_event=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        enable_utc=True,
    )


def register(app: Celery, settings: Settings, place: Place | None = None) -> "RuntimeSlot":
    """Register the task of every step on `app` and return the slot that makes their runtime when it is needed."""
    slot = RuntimeSlot(app, settings, place or Place())
    for step in BODIES:
        _register_step(app, step, slot)
    return slot


def _register_step(app: Celery, step: str, slot: "RuntimeSlot") -> None:
    """Register one task."""

    def run(task: Task[Any, Any], job_id: str, step_run_id: str) -> None:
        with logs.bind(trace_id=task.request.get(TRACE_HEADER), job_id=job_id):
            run_step(slot.get(), task, step_run_id, BODIES)

    app.task(bind=True, name=task_name(step), ignore_result=True)(run)


class RuntimeSlot:
    """Make the runtime of a worker process once, whoever asks first."""

    def __init__(self, app: Celery, settings: Settings, place: Place) -> None:
        self._app = app
        self._settings = settings
        self.place = place
        self._lock = threading.Lock()
        self._runtime: Runtime | None = None

    def get(self) -> Runtime:
        """Return the runtime, started."""
        if self._runtime is None:
            with self._lock:
                if self._runtime is None:
                    runtime = Runtime(self._settings, self._app, self.place)
                    runtime.start()
                    self._runtime = runtime
        return self._runtime

    def shut_down(self) -> None:
        """Ask running tasks to stop, where there is a runtime."""
        if self._runtime is not None:
            self._runtime.shut_down()

    def close(self) -> None:
        """Close the runtime, where there is one."""
        if self._runtime is not None:
            self._runtime.close()
            self._runtime = None
