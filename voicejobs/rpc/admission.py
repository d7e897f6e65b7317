"""Which requests may work: so many at once, so many waiting behind them, none for longer than it may.

All of it runs on the event loop of the server, and needs no lock.
"""

import asyncio
import contextvars
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from typing import TypeVar

from voicejobs.errors import MemoryLow, QueueFull, WaitedTooLong

T = TypeVar("T")
Asked = Callable[[], bool]
"""Tells whether work that runs in a thread is no longer wanted."""

_log = logging.getLogger(__name__)
_MEMORY_RETRY_MS = 5000
SHORTEST_RETRY_MS, LONGEST_RETRY_MS = 100, 60_000
_SMOOTHING = 0.1


@dataclass(slots=True)
class Calls:
    """Count calls that ended alike, and the time that they took together."""

    count: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Counts:
    """Count what became of requests, since the start; of all calls by method and code."""

    accepted: int = 0
    refused: int = 0
    expired: int = 0
    cancelled: int = 0
    failed: int = 0
    most_waiting: int = 0
    calls: dict[tuple[str, str], Calls] = field(default_factory=dict)

    def ended(self, method: str, code: str, seconds: float) -> None:
        """Count a call that ended."""
        call = self.calls.setdefault((method, code), Calls())
        call.count += 1
        call.seconds += seconds


@dataclass(frozen=True, slots=True)
class Limits:
    """Say how much the server takes.

    Args:
        slots: requests whose work runs at once.
        queue_length: requests that may wait.
        wait_s: seconds that one may wait.
        held_bytes: bytes of requests that may wait together; one alone may always.
        streams: streams that may be open.
    """

    slots: int
    queue_length: int
    wait_s: float
    held_bytes: int
    streams: int


class Admission:
    """Let requests in one by one, first come first served, and run their work in threads."""

    def __init__(self, limits: Limits, memory_reason: Callable[[], str] = str) -> None:
        """Begin with nothing.

        Args:
            limits: how much is let in.
            memory_reason: tells why nothing is let in for want of memory; empty where there is some.
        """
        self.limits = limits
        self._memory_reason = memory_reason
        self.counts = Counts()
        self.working = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._held_bytes = 0
        self._mean_s = 1.0
        self._threads = ThreadPoolExecutor(limits.slots, "rpc-work")

    @property
    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self._waiting)

    async def run(self, work: Callable[[Asked], T], *, size_bytes: int, remaining_s: float | None) -> T:
        """Wait for a slot, then run `work` in a thread and return what it returns.

        A caller that is cancelled gets away at once; `work`, which is told so by its argument, keeps the slot until it
        ends.

        Args:
            work: called with a function that tells whether the result is still wanted.
            size_bytes: of the request, which is held while it waits.
            remaining_s: seconds until the deadline of the request; None without one.

        Raises:
            QueueFull: the queue is full; `retry_after_ms` in the details.
            MemoryLow: the server holds as much memory as it may; likewise.
            WaitedTooLong: no slot came free in time.
        """
        await self._enter(size_bytes, remaining_s)
        self.counts.accepted += 1
        given_up = Event()
        since = time.monotonic()
        context = contextvars.copy_context()
        future = asyncio.get_running_loop().run_in_executor(self._threads, context.run, work, given_up.is_set)
        future.add_done_callback(lambda done: self._leave(done, since))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            given_up.set()
            self.counts.cancelled += 1
            raise

    def demand_memory(self) -> None:
        """Do nothing where there is memory for one more request.

        Raises:
            MemoryLow: there is none; a warning with the trace of the request is logged.
        """
        reason = self._memory_reason()
        if reason:
            self.counts.refused += 1
            _log.warning("refused for want of memory", extra={"reason": reason})
            raise MemoryLow(f"no request is taken: {reason}", retry_after_ms=_MEMORY_RETRY_MS)

    def close(self) -> None:
        """End the threads, as soon as their work ends."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _enter(self, size_bytes: int, remaining_s: float | None) -> None:
        """Take a slot."""
        self.demand_memory()
        if self.working < self.limits.slots and not self._waiting:
            self.working += 1
            return
        too_much = bool(self._waiting) and self._held_bytes + size_bytes > self.limits.held_bytes
        if len(self._waiting) >= self.limits.queue_length or too_much:
            self.counts.refused += 1
            raise QueueFull(
                f"the queue is full: {len(self._waiting)} requests wait",
                hint="Try again after the time that retry-after-ms names.",
                retry_after_ms=self._retry_after_ms(),
            )
        await self._wait(size_bytes, remaining_s)

    async def _wait(self, size_bytes: int, remaining_s: float | None) -> None:
        """Wait in the queue."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (turn, size_bytes)
        self._waiting.append(entry)
        self._held_bytes += size_bytes
        self.counts.most_waiting = max(self.counts.most_waiting, len(self._waiting))
        longest_s = self.limits.wait_s if remaining_s is None else min(self.limits.wait_s, remaining_s)
        try:
            await asyncio.wait({turn}, timeout=longest_s)
        except asyncio.CancelledError:
            self.counts.cancelled += 1
            if turn.done():
                self._free()
            else:
                self._drop(entry)
            raise
        if turn.done():
            return
        self._drop(entry)
        self.counts.expired += 1
        raise WaitedTooLong(f"no engine came free within {longest_s:.3g} s", retry_after_ms=self._retry_after_ms())

    def _drop(self, entry: tuple[asyncio.Future[None], int]) -> None:
        """Take a request that waits out of the queue."""
        self._waiting.remove(entry)
        self._held_bytes -= entry[1]

    def _leave(self, done: "asyncio.Future[T]", since: float) -> None:
        """Give the slot back once the work has ended, wanted or not."""
        if not done.cancelled():
            done.exception()  # nobody may be left to look at it
            self._mean_s += _SMOOTHING * (time.monotonic() - since - self._mean_s)
        self._free()

    def _free(self) -> None:
        """Hand a slot to the next that waits, or keep it."""
        while self._waiting:
            turn, size_bytes = self._waiting.popleft()
            self._held_bytes -= size_bytes
            if not turn.done():
                turn.set_result(None)
                return
        self.working -= 1

    def _retry_after_ms(self) -> int:
        """Return after how long half of what waits now will have been done, at the pace of late."""
        ahead = (len(self._waiting) / 2 + 1) / self.limits.slots
        return round(min(max(1000 * self._mean_s * ahead, SHORTEST_RETRY_MS), LONGEST_RETRY_MS))
