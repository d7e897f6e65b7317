"""What Flower sees: every step of a job, also those that ran without a message of their own."""

import threading
from typing import Any

from celery import Celery

from tests.bench import Bench
from tests.waiting import wait_until


class Watcher:
    """Collect the task events of all workers, as Flower does."""

    def __init__(self, app: Celery) -> None:
        self.seen: list[dict[str, Any]] = []
        self._app = app
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        """Receive until the end."""
        with self._app.connection_for_read() as connection:
            receiver = self._app.events.Receiver(connection, handlers={"*": self.seen.append})
            for _ in receiver.itercapture(limit=None, timeout=None, wakeup=True):
                if self._end.is_set():
                    return

    def names(self, kind: str) -> set[str]:
        """Return the names of the tasks that have an event of this kind."""
        named = {one["uuid"]: one["name"] for one in self.seen if one["type"] == "task-received"}
        return {named[one["uuid"]] for one in self.seen if one["type"] == kind and one["uuid"] in named}

    def close(self) -> None:
        """End the thread at the next event; heartbeats come every two seconds."""
        self._end.set()
        self._thread.join(20)


def test_watchers_see_every_step(bench: Bench, producer: Celery) -> None:
    """Each step of a job is received, started and ended under its name and model; its arguments are job and place."""
    bench.start_worker()
    bench.wait_ended(*bench.submit(bench.recording("first.wav")))
    watcher = Watcher(producer)
    try:
        producer.control.enable_events()
        wait_until(lambda: any(one["type"] == "worker-heartbeat" for one in watcher.seen))
        (job_id,) = bench.submit(bench.recording("second.wav"))
        (other_id,) = bench.submit(bench.recording("third.wav"))
        bench.wait_ended(job_id, other_id)
        every = {"prepare", "recognise[fake]", "deliver"}
        wait_until(lambda: watcher.names("task-succeeded") == every)
    finally:
        watcher.close()
    assert watcher.names("task-started") == every
    told = [one["args"].strip("'\"") for one in watcher.seen if one["type"] == "task-received"]
    assert set(told) == {f"{job_id}, 1/1", f"{other_id}, 1/1"}
