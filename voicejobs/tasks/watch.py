"""Tell watchers such as Flower of the steps that a task goes on with: to Celery they are only a part of it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from celery import Task

from voicejobs.messages import shown_args, shown_name
from voicejobs.store.leases import Lease


@dataclass(slots=True)
class Watched:
    """Hold how a step ended; whoever runs it says so."""

    succeeded: bool = False


class Watch:
    """Send Celery's task events for steps without a message of their own, while somebody watches."""

    def __init__(self) -> None:
        self._dispatcher: Any = None

    def attach(self, dispatcher: Any) -> None:
        """Use the event dispatcher of this process's Celery consumer, which knows whether anybody watches."""
        self._dispatcher = dispatcher

    @contextmanager
    def step(self, task: Task[Any, Any], lease: Lease) -> Iterator[Watched]:
        """Tell of a step that runs inside the block; its uuid is its id and fencing number."""
        watched = Watched()
        if self._dispatcher is None or not self._dispatcher.enabled:
            yield watched
            return
        uuid = f"{lease.step_run_id}.{lease.fence}"
        started = time.monotonic()
        self._dispatcher.send(
            "task-received",
            uuid=uuid,
            name=shown_name(lease.step, lease.options.get(lease.node, {})),
            args=shown_args(lease.job_id, lease.shard, int(lease.inputs.get("of", 1))),
            kwargs="",
            root_id=task.request.root_id,
            parent_id=task.request.id,
            retries=0,
            eta=None,
            expires=None,
        )
        self._dispatcher.send("task-started", uuid=uuid)
        try:
            yield watched
        finally:
            if watched.succeeded:
                self._dispatcher.send("task-succeeded", uuid=uuid, result="None", runtime=time.monotonic() - started)
            else:
                self._dispatcher.send(
                    "task-failed", uuid=uuid, exception=f"see: voicejobs job show {lease.job_id}", traceback=""
                )
