"""The page of metrics in Prometheus' text format: from the rows, and from what workers have told of themselves.

What a query costs bounds how often it runs: at most a hundredth of the time goes into it, and never more than once a
second. So a scrape is cheap however many there are, and however much the database holds.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from voicejobs.metrics.rows import EndedReader, of_jobs, of_queues, read_live
from voicejobs.metrics.workers import of_workers
from voicejobs.store.database import Database

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FRESH_S = 1.0
COST_SHARE = 0.01
_ENDED_FRESH_S = 10.0
T = TypeVar("T")


class Kept(Generic[T]):
    """Keep an answer for a while: a second, or longer where it costs much to find."""

    def __init__(self, find: Callable[[], T], least_s: float = FRESH_S) -> None:
        self._find = find
        self._least_s = least_s
        self._lock = threading.Lock()
        self._until = 0.0
        self._answer: T | None = None

    def get(self) -> T:
        """Return the answer; callers that come while it is being found wait for it together."""
        with self._lock:
            began = time.monotonic()
            if self._answer is None or began >= self._until:
                self._answer = self._find()
                now = time.monotonic()
                self._until = now + max(self._least_s, (now - began) / COST_SHARE)
            return self._answer


class Metrics(Collector):
    """Make the page of metrics of one database.

    Args:
        database: the store.
        own: yields further families, those of the process that serves the page.
    """

    def __init__(self, database: Database, own: Callable[[], Iterable[Metric]] = lambda: ()) -> None:
        self._own = own
        self._live = Kept(partial(read_live, database))
        self._ended = Kept(EndedReader(database).read, _ENDED_FRESH_S)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def page(self) -> bytes:
        """Return the page; reads the database, and so may block.

        Raises:
            DatabaseUnavailable: it does not answer.
        """
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Return nothing: to register the page must not ask the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        live, ended = self._live.get(), self._ended.get()
        yield from of_jobs(live, ended)
        yield from of_queues(live)
        yield from of_workers(live.workers)
        yield from self._own()
