"""Which items go into the next engine call: those of many tasks, grouped by options, in two lanes.

An item is a window of speech to recognise, or a text to speak. Pure bookkeeping without threads or clocks of its
own; `pool.py` holds the lock around it.
"""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from voicejobs import logs, spans
from voicejobs.audio.types import Pcm, Sound, WindowResult
from voicejobs.engines.base import RecogniseOptions, SynthesiseOptions
from voicejobs.errors import VoicejobsError

Lane = Literal["interactive", "bulk"]
Options = RecogniseOptions | SynthesiseOptions
"""Options of a call; no two kinds meet in one batcher, since an engine does one thing."""
Work = Pcm | str
"""A window of speech to recognise, or a text to speak."""
Result = WindowResult | Sound


@dataclass(frozen=True, slots=True)
class Turn:
    """Say when the calls of a task are served: its lane, and since when it is at work, in seconds of any clock."""

    lane: Lane
    since: float


class Request:
    """Hold the items of one call by one task, and collect their results.

    Args:
        works: windows or texts.
        options: how they are to be worked on.
        turn: when they are served.
        now: since when they wait, by the clock of `turn`.
    """

    def __init__(self, works: Sequence[Work], options: Options, turn: Turn, now: float) -> None:
        self.options = options
        self.lane: Lane = turn.lane
        self.since = now
        self.age = (turn.since, now)
        self.trace_id: str = logs.bound("trace_id") or ""
        self.span = spans.current()
        self.waiting = deque(Item(self, index, work) for index, work in enumerate(works))
        self.error: VoicejobsError | None = None
        self.done = threading.Event()
        self._results: list[Result | None] = [None] * len(works)
        self._missing = len(works)
        self._lock = threading.Lock()

    def take_all(self) -> list["Item"]:
        """Remove and return all items that wait."""
        items = list(self.waiting)
        self.waiting.clear()
        return items

    def deliver(self, index: int, result: Result) -> None:
        """Take the result of one item; threads of several processes may do so at once."""
        with self._lock:
            self._results[index] = result
            self._missing -= 1
            complete = self._missing == 0
        if complete:
            self.done.set()

    def fail(self, error: VoicejobsError) -> None:
        """End the request with an error, unless it has ended."""
        with self._lock:
            if not self.done.is_set():
                self.error = error
                self.done.set()

    def results(self) -> list[Result]:
        """Return the results in the order of the items.

        Raises:
            VoicejobsError: the request failed.
        """
        if self.error is not None:
            raise self.error
        return [result for result in self._results if result is not None]


class Item:
    """Hold one window or text of a request; `failures` counts the processes that died of it while it was alone."""

    __slots__ = ("failures", "index", "request", "work")

    def __init__(self, request: Request, index: int, work: Work) -> None:
        self.request = request
        self.index = index
        self.work = work
        self.failures = 0


class Batcher:
    """Keep the requests that wait, in two lanes, and compose batches of them.

    Interactive items come first. Inside a lane turns go, one item each, to the request of the task that is longest at
    work, and to the one with the fewest items left. The first lets tasks end one after another, and what follows in
    each go on beside the engine, where equal turns for all would let them end all at once; nobody starves. The second
    does not let the many windows of a long recording hold up a short one.
    """

    def __init__(self) -> None:
        self._lanes: tuple[deque[Request], deque[Request]] = (deque(), deque())
        self._short_is_next = False

    def __bool__(self) -> bool:
        return bool(self._lanes[0] or self._lanes[1])

    def add(self, request: Request) -> None:
        """Queue the waiting items of a request."""
        self._lanes[request.lane == "bulk"].append(request)

    def withdraw(self, request: Request) -> None:
        """Drop the items of a request that still wait."""
        request.waiting.clear()
        lane = self._lanes[request.lane == "bulk"]
        if request in lane:
            lane.remove(request)

    def clear(self) -> list[Request]:
        """Drop everything and return the requests that waited."""
        waiting = [request for lane in self._lanes for request in lane]
        for lane in self._lanes:
            lane.clear()
        return waiting

    def fill(self, limit: int) -> tuple[int, float]:
        """Return how many items the next batch would hold, and since when its oldest waits."""
        options = self._first().options
        found = [request for lane in self._lanes for request in lane if request.options == options]
        count = sum(len(request.waiting) for request in found)
        return min(count, limit), min(request.since for request in found)

    def take(self, limit: int) -> list[Item]:
        """Remove and return up to `limit` items that share their options."""
        options = self._first().options
        batch: list[Item] = []
        while len(batch) < limit and (request := self._next(options)) is not None:
            if request.waiting and not request.done.is_set():
                batch.append(request.waiting.popleft())
                self._short_is_next = not self._short_is_next
            if not request.waiting or request.done.is_set():
                self._lanes[request.lane == "bulk"].remove(request)
        return batch

    def _first(self) -> Request:
        """Return the request whose turn it is."""
        return self._chosen(self._lanes[0] or self._lanes[1])

    def _next(self, options: Options) -> Request | None:
        """Return the request with these options whose turn it is; None where there is none."""
        for lane in self._lanes:
            found = [request for request in lane if request.options == options]
            if found:
                return self._chosen(found)
        return None

    def _chosen(self, requests: Sequence[Request]) -> Request:
        """Return the request whose turn it is among those of a lane."""
        if self._short_is_next:
            return min(requests, key=lambda request: (len(request.waiting), request.age))
        return min(requests, key=lambda request: request.age)
