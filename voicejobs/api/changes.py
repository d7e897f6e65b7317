"""Who follows jobs and batches: one reader of `events` for each API process, which tells all that listen there.

The reader asks the database when it hears of something new (`store.wakes`), and ten times a second without, but only
while somebody listens: one small query, however many they are. A listener has read what lies behind its cursor before
it is told what is new, and both come in the same order, so that it misses nothing and hears nothing twice. One that
does not keep up is dropped: it comes back with its cursor.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import select

from voicejobs.errors import DatabaseUnavailable, NoSuchRecord, VoicejobsError
from voicejobs.store import events
from voicejobs.store.database import Database
from voicejobs.store.events import Cursor, Event, Scope
from voicejobs.store.schema import jobs
from voicejobs.store.states import FINAL_JOB
from voicejobs.store.wakes import EVENTS, Wakes

logger = logging.getLogger(__name__)

T = TypeVar("T")

POLL_S: Final = 0.1
GATHER_S: Final = 0.02
"""Rest between two looks, however much is heard."""
SOON_S: Final = 0.01
LOOKS_SOON: Final = 3
"""Looks that follow soon on a wake-up for which nothing was found: on Postgres what was heard of is shown once older
transactions have ended, which others may have under way.
"""
AFTER_FAULT_S: Final = 1.0
PAGE_EVENTS: Final = 500
READY_S: Final = 5.0
"""How long a new listener waits for the reader to find its place, before the database counts as away."""
MOST_WAITING: Final = 1_000
"""Events that a listener may leave unread before it is dropped."""


class Runner(Protocol):
    """Run a function that talks to the database in a thread."""

    def __call__(self, act: Callable[..., T], /, *args: Any) -> Awaitable[T]:
        """Return what it returns."""
        ...


class Dropped(Exception):  # noqa: N818 - tells a listener that it is none any more
    """The listener did not read what it was told, and hears no more."""


@dataclass(slots=True, eq=False)
class Listener:
    """Hold what a listener has not read yet; `last` is the place up to which it has."""

    scope: Scope
    last: Cursor = field(default_factory=Cursor)
    _told: "asyncio.Queue[Event | None]" = field(default_factory=lambda: asyncio.Queue(MOST_WAITING))
    is_dropped: bool = False

    def tell(self, event: Event) -> None:
        """Add an event; a listener that has too many unread is dropped."""
        if self.is_dropped or not self.scope.has(event):
            return
        try:
            self._told.put_nowait(event)
        except asyncio.QueueFull:
            self.is_dropped = True

    def wake(self) -> None:
        """Let it see that nothing more will come."""
        self.is_dropped = True
        if self._told.empty():
            self._told.put_nowait(None)

    async def next(self, timeout_s: float | None = None) -> Event | None:
        """Return the next event that it has not had, or None when the time is over.

        Raises:
            Dropped: it was too slow, or the service ends.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while True:
            if self.is_dropped:
                raise Dropped
            try:
                left_s = None if deadline is None else max(0.0, deadline - loop.time())
                event = await asyncio.wait_for(self._told.get(), left_s)
            except TimeoutError:
                return None
            if event is None:
                raise Dropped
            if event.cursor > self.last:
                self.last = event.cursor
                return event


class Changes:
    """Tell what happens to jobs and batches while it happens.

    Args:
        database: the store.
        run: runs database work in a thread; by default one of asyncio's.
    """

    def __init__(self, database: Database, run: Runner | None = None) -> None:
        self._database = database
        self._run: Runner = run or asyncio.to_thread
        self._listeners: set[Listener] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._heard = asyncio.Event()
        self._wakes: Wakes | None = None
        self._is_closed = False

    @property
    def listening(self) -> int:
        """Return how many listen."""
        return len(self._listeners)

    async def close(self) -> None:
        """Let all listeners go; what they were doing ends."""
        self._is_closed = True
        for listener in self._listeners:
            listener.wake()
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        wakes, self._wakes = self._wakes, None
        if wakes is not None:
            await asyncio.to_thread(wakes.close)

    @asynccontextmanager
    async def listen(
        self, *, tenant: str = "", job_id: str = "", batch_id: str = "", after: Cursor | None = None
    ) -> AsyncIterator[Listener]:
        """Listen to what happens, from a place on, or from now on.

        What is read of the rows inside the block is no older than the first event that it gives.

        Raises:
            DatabaseUnavailable: the database does not answer.
        """
        listener = Listener(Scope(tenant, job_id, batch_id))
        self._listeners.add(listener)
        try:
            if self._is_closed:
                listener.wake()
            else:
                await self._started()
                listener.last = after if after is not None else await self._run(self._newest)
            yield listener
        finally:
            self._listeners.discard(listener)

    async def subscribe(
        self, *, tenant: str = "", job_id: str = "", batch_id: str = "", after: Cursor | None = None
    ) -> AsyncIterator[Event]:
        """Yield what has happened since a place, and then what happens, each once and in order.

        Raises:
            Dropped: the caller did not keep up, or the service ends.
        """
        async with self.listen(tenant=tenant, job_id=job_id, batch_id=batch_id, after=after) as listener:
            async for event in self.backlog(listener):
                yield event
            while (news := await listener.next()) is not None:
                yield news

    async def backlog(self, listener: Listener) -> AsyncIterator[Event]:
        """Yield what lies behind a listener's place in the table by now; `Listener.next` goes on from there."""
        while True:
            page = await self._run(self._read, listener.last, listener.scope)
            for event in page:
                listener.last = event.cursor
                yield event
            if len(page) < PAGE_EVENTS:
                return

    async def wait_for_end(self, job_id: str, timeout_s: float) -> str | None:
        """Return the final state of a job as soon as it has one; None when the time is over.

        Raises:
            NoSuchRecord: there is no such job.
            Dropped: the service ends.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        async with self.listen(job_id=job_id) as listener:
            state = await self._run(self._state, job_id)
            while state not in FINAL_JOB:
                event = await listener.next(max(0.0, deadline - loop.time()))
                if event is None:
                    return None
                state = event.state
        return state

    async def _started(self) -> None:
        """Start the reader where none runs, and wait until it knows from where it reads.

        Raises:
            DatabaseUnavailable: it cannot find out in time; the reader goes on trying for those who listen already.
        """
        if self._watcher is None or self._watcher.done():
            self._ready.clear()
            self._watcher = asyncio.create_task(self._watch(), name="changes")
            self._hear()
        try:
            async with asyncio.timeout(READY_S):
                await self._ready.wait()
        except TimeoutError:
            raise DatabaseUnavailable("The database does not answer: nothing can be followed now") from None

    def _hear(self) -> None:
        """Begin to hear of what is written, or go on."""
        if self._wakes is None:
            loop = asyncio.get_running_loop()

            def wake() -> None:
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._heard.set)

            self._wakes = Wakes(self._database, EVENTS, wake)
            self._wakes.start()
        self._wakes.resume()

    async def _watch(self) -> None:
        """Read events and pass them on, until nobody listens any more; what it cannot survive, no listener does."""
        try:
            await self._pass_on()
        except Exception:
            logger.exception("the reader of events has failed")
            for listener in self._listeners:
                listener.wake()
        finally:
            # No wait lies between the last look at the listeners and this: whoever comes next starts another reader.
            self._watcher = None
            self._ready.set()
            if self._wakes is not None:
                self._wakes.pause()

    async def _pass_on(self) -> None:
        """Read events and pass them on, until nobody listens any more."""
        place: Cursor | None = None
        soon = 0
        loop = asyncio.get_running_loop()
        while self._listeners:
            soon = LOOKS_SOON if self._heard.is_set() else soon - 1
            self._heard.clear()
            looked_at = loop.time()
            try:
                if place is None:
                    place = await self._run(self._newest)
                    self._ready.set()
                page = await self._run(self._read, place, events.ALL)
            except VoicejobsError as error:
                logger.warning("events cannot be read", extra={"error": error.message})
                await asyncio.sleep(AFTER_FAULT_S)
                continue
            for event in page:
                place = event.cursor
                for listener in self._listeners:
                    listener.tell(event)
            if len(page) == PAGE_EVENTS:
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._heard.wait(), SOON_S if soon > 0 and not page else POLL_S)
            await asyncio.sleep(max(0.0, looked_at + GATHER_S - loop.time()))

    def _newest(self) -> Cursor:
        """Return the place behind what is final now."""
        with self._database.read() as connection:
            return events.newest(connection)

    def _read(self, after: Cursor, scope: Scope) -> list[Event]:
        """Return a page of events."""
        with self._database.read() as connection:
            return events.read(connection, after, scope, limit=PAGE_EVENTS)

    def _state(self, job_id: str) -> str:
        """Return the state of a job.

        Raises:
            NoSuchRecord: there is none.
        """
        with self._database.read() as connection:
            state = connection.execute(select(jobs.c.state).where(jobs.c.id == job_id)).scalar()
        if state is None:
            raise NoSuchRecord(f"There is no job {job_id!r}")
        return str(state)
