"""What every route of the service needs, made once for each process."""

import asyncio
import contextvars
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ParamSpec, TypeVar

from fastapi import Depends
from sqlalchemy import Connection
from starlette.requests import HTTPConnection

from voicejobs.api.keyring import KeyRing
from voicejobs.api.limits import Gauge
from voicejobs.settings import Settings
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database
from voicejobs.store.quotas import Quota, require_room

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 16
"""Calls that may block at once; SQLite reads on a connection for each of them."""


@dataclass(slots=True)
class Lag:
    """Hold how late the event loop was, in seconds: the last time, at its worst, and by steps for a histogram."""

    STEPS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

    last_s: float = 0.0
    worst_s: float = 0.0
    sum_s: float = 0.0
    count: int = 0
    below: Counter[float] = field(default_factory=Counter)

    def note(self, late_s: float) -> None:
        """Count one measurement."""
        self.last_s, self.worst_s = late_s, max(self.worst_s, late_s)
        self.sum_s += late_s
        self.count += 1
        for step_s in self.STEPS_S:
            if late_s <= step_s:
                self.below[step_s] += 1


@dataclass(slots=True)
class Requests:
    """Count requests by method, route (its template, never the path of a request) and status."""

    ended: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    seconds: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    received_bytes: int = 0
    running: int = 0

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that has ended."""
        self.ended[method, route, status] += 1
        self.seconds[method, route] += seconds


@dataclass(slots=True)
class Context:
    """Hold what routes need: `run` is their one way to the database and to files.

    Args:
        settings: the settings.
        database: the database, migrated.
        blobs: the store of blobs.
        changes: what tells of changes of jobs and batches; set while the service runs.
        metrics: the page of metrics; set while the service runs.
        open_to_all: whether calls need no key for as long as no key was ever made.
        check_stack: raises where the embedded stack that this process keeps alive is away; None where there is none.
    """

    settings: Settings
    database: Database
    blobs: BlobStore
    changes: Any = None
    metrics: Any = None
    open_to_all: bool = False
    check_stack: Callable[[], None] | None = None
    keys: KeyRing = field(init=False)
    gauge: Gauge = field(init=False)
    lag: Lag = field(default_factory=Lag)
    requests: Requests = field(default_factory=Requests)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    started_at: float = field(default_factory=time.time)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS, "api"))

    def __post_init__(self) -> None:
        self.keys = KeyRing(self.database)
        self.gauge = Gauge(self.settings.api_requests_per_minute, self.settings.api_concurrency)

    def start_threads(self) -> None:
        """Start all threads: one that is started by a request holds up the event loop until it runs."""
        together = threading.Barrier(THREADS)  # none is idle until there are as many as wait here
        wait([self._threads.submit(together.wait) for _ in range(THREADS)])

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call what may block in a thread, with the fields that are bound to log lines here."""
        bound = partial(contextvars.copy_context().run, call, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, bound)

    @property
    def quota(self) -> Quota:
        """Return what each tenant may have in the queue."""
        return Quota(self.settings.api_tenant_jobs, self.settings.api_tenant_audio_s)

    def require_room(self, connection: Connection, tenant: str, new_jobs: int = 0) -> None:
        """Do nothing where a tenant, with the jobs that a transaction has inserted, is within its quota.

        Raises:
            QuotaReached: it is not; the transaction must not be committed.
        """
        require_room(connection, tenant, self.quota)

    def close(self) -> None:
        """End the threads and close the database."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self.database.close()


def context_of(connection: HTTPConnection) -> Context:
    """Return the context of the app that serves a connection."""
    context: Context = connection.app.state.context
    return context


def trace_id_of(connection: HTTPConnection) -> str:
    """Return the trace id of a request, 32 hexadecimal digits; it is its `x-request-id` too."""
    return str(connection.scope["voicejobs.trace_id"])


Here = Annotated[Context, Depends(context_of)]
TraceId = Annotated[str, Depends(trace_id_of)]
