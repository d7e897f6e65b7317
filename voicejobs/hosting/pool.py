"""The engine processes of one spec, and the calls that share them."""

import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from voicejobs import logs, spans
from voicejobs.audio.types import Pcm, Sound, WindowResult
from voicejobs.engines.base import EngineFacts, EngineKind, EngineSpec, RecogniseOptions, SynthesiseOptions
from voicejobs.errors import (
    Cancelled,
    EngineCrash,
    EngineTimeout,
    Internal,
    OutOfMemory,
    ShuttingDown,
    VoicejobsError,
)
from voicejobs.hosting.batcher import Batcher, Item, Request, Result, Turn
from voicejobs.hosting.doubt import is_doubtful
from voicejobs.hosting.figures import PoolFigures, gpu_sum, resident_bytes
from voicejobs.hosting.process import EngineProcess
from voicejobs.hosting.spawner import Spawner
from voicejobs.units import samples_to_seconds

MAX_WAIT_S = 0.02
"""How long a window waits for others to share its batch, while other windows are on their way."""
_DEATHS = 2
"""Processes that one window, alone in its call, may kill before its task gets the error."""
_CANCEL_POLL_S = 0.25
_LEAVE_S = 0.3
T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """Say what a pool holds: the spec, the facts of its engine, and how many processes at most."""

    spec: EngineSpec
    facts: EngineFacts
    size: int


class EnginePool:
    """Share up to `size` engine processes among the threads that call `recognise` or `synthesise`.

    A call that finds a free process and nobody waiting does its own socket I/O, with no other thread involved.
    Otherwise its windows (or texts: they are treated alike) queue in the batcher, from which up to `size` threads
    serve the processes.
    """

    def __init__(self, plan: PoolPlan, spawner: Spawner) -> None:
        self._plan = plan
        self._spawner = spawner
        self._limit = plan.facts.max_batch
        self._batcher = Batcher()
        self._changed = threading.Condition(threading.Lock())
        self._free: list[EngineProcess] = []
        self._used: set[EngineProcess] = set()
        self._threads: list[threading.Thread] = []
        self._callers = 0
        self._closed = False
        self._figures = PoolFigures()

    @property
    def size(self) -> int:
        """Return how many processes there are at most."""
        return self._plan.size

    @property
    def kind(self) -> EngineKind:
        """Return what the engine does."""
        return self._plan.facts.kind

    @property
    def streams(self) -> bool:
        """Tell whether the engine is a `StreamingSynthesiser`."""
        return self._plan.facts.streams

    @property
    def limit(self) -> int:
        """Return how many windows a call holds at most by now; running out of memory lowers it."""
        return self._limit

    def pids(self) -> list[int]:
        """Return the ids of the processes that are there."""
        return [process.pid for process in self._everyone() if process.pid is not None]

    def figures(self) -> dict[str, Any]:
        """Return what the pool is, what it holds now, and what it counts."""
        spec, everyone = self._plan.spec, self._everyone()
        return {
            "engine": spec.engine,
            "model": spec.model,
            "device": spec.device,
            "kind": self.kind,
            "size": self.size,
            "limit": self._limit,
            "loaded": sum(process.running for process in everyone),
            "resident_bytes": resident_bytes([process.pid for process in everyone if process.pid is not None]),
            "gpu": gpu_sum([process.gpu for process in everyone]),
            **self._figures.to_json(),
        }

    def _everyone(self) -> list[EngineProcess]:
        """Return the processes that are there."""
        with self._changed:
            return [*self._free, *self._used]

    def recognise(
        self, windows: Sequence[Pcm], options: RecogniseOptions, turn: Turn, cancelled: Callable[[], bool]
    ) -> list[WindowResult]:
        """Return one result for each window, in order.

        Raises:
            Cancelled: `cancelled` said so while windows were waiting.
            ShuttingDown: the pool was closed.
            VoicejobsError: what the engine raised for one of these windows.
        """
        if not windows:
            return []
        return cast("list[WindowResult]", self._run_all(Request(windows, options, turn, time.monotonic()), cancelled))

    def synthesise(
        self, texts: Sequence[str], options: SynthesiseOptions, turn: Turn, cancelled: Callable[[], bool]
    ) -> list[Sound]:
        """Return the sound of each text, in order; errors as in `recognise`."""
        if not texts:
            return []
        return cast("list[Sound]", self._run_all(Request(texts, options, turn, time.monotonic()), cancelled))

    def stream(self, text: str, options: SynthesiseOptions) -> Generator[Sound, None, None]:
        """Give the sound of one text piece by piece; a process is its alone until it ends, or is closed.

        Raises:
            ShuttingDown: the pool was closed.
            VoicejobsError: what the engine raised, or that its process died; nothing is tried again.
        """
        process = self._seize_any()
        try:
            self._start(process)
            began = time.monotonic()
            yield from process.stream(text, options, [logs.bound("trace_id") or ""])
            self._figures.called(1, time.monotonic() - began)
        except (EngineCrash, EngineTimeout):
            self._raise_if_closed()
            self._figures.crashed()
            raise
        except VoicejobsError:
            self._raise_if_closed()
            raise
        finally:
            self._release(process)

    def call(self, method: Callable[[EngineProcess], T]) -> T:
        """Run `method` on any process, as soon as one is free; once more in a fresh one if the first dies of it.

        Raises:
            ShuttingDown: the pool was closed.
            VoicejobsError: what the engine raised, or that two processes died.
        """
        process = self._seize_any()
        try:
            try:
                return self._call_once(process, method)
            except (EngineCrash, EngineTimeout):
                self._raise_if_closed()
                self._figures.crashed()
                return self._call_once(process, method)
        except VoicejobsError:
            self._raise_if_closed()
            raise
        finally:
            self._release(process)

    def _call_once(self, process: EngineProcess, method: Callable[[EngineProcess], T]) -> T:
        """Run `method` on a process, started where it is not running, and count the call."""
        self._start(process)
        began = time.monotonic()
        answer = method(process)
        self._figures.called(0, time.monotonic() - began)
        return answer

    def _start(self, process: EngineProcess) -> None:
        """Start a process that is not running; errors as in `EngineProcess.start`."""
        if process.running:
            return
        began = time.monotonic()
        process.start()
        self._figures.loaded(time.monotonic() - began)

    def warm(self) -> None:
        """Start all processes that are not there yet, in the background."""
        with self._changed:
            missing = 0 if self._closed else self.size - len(self._free) - len(self._used)
            fresh = [self._new_locked() for _ in range(missing)]
        for process in fresh:
            threading.Thread(target=self._warm_one, args=(process,), name="engine-warm", daemon=True).start()

    def sweep(self, idle_s: float) -> None:
        """End the processes that were idle for `idle_s` seconds."""
        began = time.monotonic()
        border = began - idle_s
        with self._changed:
            idle = [process for process in self._free if process.last_used < border]
            self._free = [process for process in self._free if process not in idle]
        for process in idle:
            process.stop(_LEAVE_S)
        self._figures.swept(time.monotonic() - began)
        if idle:
            self._figures.evicted("idle", len(idle))

    def close(self) -> None:
        """End all processes; calls in flight end with `ShuttingDown`."""
        with self._changed:
            self._closed = True
            free, self._free = self._free, []
            used = list(self._used)
            waiting = self._batcher.clear()
            self._changed.notify_all()
        for request in waiting:
            request.fail(_closing())
        for process in used:
            process.abandon()
        for process in free:
            process.stop()
        deadline = time.monotonic() + 1.0
        with self._changed:
            self._changed.wait_for(lambda: not self._used, max(0.0, deadline - time.monotonic()))
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    # ---- processes

    def _new_locked(self) -> EngineProcess:
        """Return a process object that counts as used."""
        process = EngineProcess(self._plan.spec, self._spawner, self._plan.facts.call_timeout_s)
        self._used.add(process)
        return process

    def _pick_locked(self) -> EngineProcess | None:
        """Return a loaded process that is free, else a new one while there is room, else None."""
        if self._free:
            process = self._free.pop()  # the last used, so that the others may become idle and end
            self._used.add(process)
            return process
        return self._new_locked() if len(self._used) < self.size else None

    def _spare_locked(self) -> bool:
        """Tell whether windows may have a process: callers of `call`, who are few and brief, go before them."""
        return self.size - len(self._used) > self._callers

    def _seize(self, request: Request) -> EngineProcess | None:
        """Return a process for the whole request if it fits one call and nobody waits; else queue it."""
        with self._changed:
            self._raise_if_closed()
            if not self._batcher and len(request.waiting) <= self._limit and self._spare_locked():
                process = self._pick_locked()
                if process is not None:
                    return process
            self._batcher.add(request)
            for number in range(len(self._threads), self.size):
                thread = threading.Thread(target=self._run, name=f"engine-{number}", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify_all()
        return None

    def _seize_any(self) -> EngineProcess:
        """Return a process, as soon as there is one."""
        with self._changed:
            while True:
                self._raise_if_closed()
                process = self._pick_locked()
                if process is not None:
                    if self._batcher:
                        self._changed.notify_all()  # one caller fewer: windows may have the next process
                    return process
                self._callers += 1
                try:
                    self._changed.wait()
                finally:
                    self._callers -= 1

    def _release(self, process: EngineProcess) -> None:
        """Give a process back; one that died is forgotten, so that the next call starts another."""
        with self._changed:
            self._used.discard(process)
            if process.running and not self._closed:
                self._free.append(process)
            else:
                process.stop()
            if self._batcher or self._closed or (self._callers and self._threads):
                self._changed.notify_all()
            elif self._callers:
                self._changed.notify()  # one process came free: waking more than one would be for nothing

    def _raise_if_closed(self) -> None:
        """Refuse work after `close`."""
        if self._closed:
            raise _closing()

    def _reason(self, error: VoicejobsError) -> VoicejobsError:
        """Return the error, or that the pool was closed, which then is the reason for it."""
        return _closing() if self._closed else error

    def _warm_one(self, process: EngineProcess) -> None:
        """Load one process."""
        try:
            self._start(process)
        except VoicejobsError as error:
            # The first call that needs a process starts one itself, and gets the error.
            _log.warning("engine did not load", extra={"engine": self._plan.spec.engine, "error": error.to_json()})
        finally:
            self._release(process)

    # ---- calls

    def _run_all(self, request: Request, cancelled: Callable[[], bool]) -> list[Result]:
        """Return the results of a request, which this thread works for itself where it can."""
        process = self._seize(request)
        if process is not None:
            self._serve(process, request.take_all())
        else:
            self._wait(request, cancelled)
        return request.results()

    def _wait(self, request: Request, cancelled: Callable[[], bool]) -> None:
        """Wait until a queued request has ended."""
        try:
            while not request.done.wait(_CANCEL_POLL_S):
                if cancelled():
                    request.fail(Cancelled("cancelled while windows waited for an engine process"))
        finally:
            with self._changed:
                self._batcher.withdraw(request)

    def _run(self) -> None:
        """Serve queued windows until the pool closes."""
        while True:
            with self._changed:
                work = self._next_locked()
            if work is None:
                return
            self._serve(*work)

    def _next_locked(self) -> tuple[EngineProcess, list[Item]] | None:
        """Wait for a batch and a process to run it; None when the pool has closed."""
        while not self._closed:
            wait_s: float | None = None
            if self._batcher:
                wait_s = self._hold_locked()
                if wait_s <= 0:
                    wait_s = None
                    process = self._pick_locked() if self._spare_locked() else None
                    if process is not None:
                        return process, self._batcher.take(self._limit)
            self._changed.wait(wait_s)
        return None

    def _hold_locked(self) -> float:
        """Return for how many seconds the next batch should wait for company.

        None at all where a call holds one window, the batch is full, or nothing else is on its way.
        """
        if self._limit == 1 or not self._used:
            return 0.0
        count, since = self._batcher.fill(self._limit)
        return 0.0 if count >= self._limit else since + MAX_WAIT_S - time.monotonic()

    def _serve(self, process: EngineProcess, batch: list[Item]) -> None:
        """Run a batch and give the process back."""
        try:
            self._work(process, batch)
        except Exception as error:  # noqa: BLE001  (a task must hear of it, and the thread must live)
            _log.exception("engine call failed in an unforeseen way")
            _fail(batch, Internal(f"engine call: {type(error).__name__}: {error}"))
        finally:
            self._release(process)

    def _work(self, process: EngineProcess, batch: list[Item]) -> None:
        """Run a batch, and the parts of it that failed, until each window has a result or its task an error."""
        todo = [batch]
        while todo:
            items = [item for item in todo.pop() if not item.request.done.is_set()]
            if not items:
                continue
            if self._closed:
                _fail(items, _closing())
                continue
            try:
                self._start(process)
            except VoicejobsError as error:
                for part in [items, *todo]:
                    _fail(part, self._reason(error))
                return
            try:
                results = self._run_batch(process, items)
            except VoicejobsError as error:
                todo += self._after_failure(process, items, error)
            else:
                todo += self._deliver(items, results)

    def _run_batch(self, process: EngineProcess, items: list[Item]) -> Sequence[Result]:
        """Run one call of the engine, and count it."""
        began = time.monotonic()
        traces = [item.request.trace_id for item in items]
        try:
            return process.run([item.work for item in items], items[0].request.options, traces)
        finally:
            seconds = time.monotonic() - began
            self._figures.called(len(items), seconds)
            spec, parents = self._plan.spec, [(item.request.trace_id, item.request.span) for item in items]
            spans.told("engine call", parents, seconds, engine=spec.engine, model=spec.model, items=len(items))

    def _deliver(self, items: list[Item], results: Sequence[Result]) -> list[list[Item]]:
        """Hand results out; return what must be decoded again, alone."""
        again: list[list[Item]] = []
        doubting = self._plan.facts.doubt and self._plan.facts.shares_calls and len(items) > 1
        for item, result in zip(items, results, strict=True):
            if doubting and isinstance(result, WindowResult) and is_doubtful(_seconds(item), result):
                again.append([item])
            else:
                item.request.deliver(item.index, result)
        return again

    def _after_failure(self, process: EngineProcess, items: list[Item], error: VoicejobsError) -> list[list[Item]]:
        """Return what to try again: the halves of a batch, or a window alone that killed its first process."""
        out_of_memory = isinstance(error, OutOfMemory)
        if out_of_memory:
            self._limit = max(1, min(self._limit, len(items) // 2))
            process.stop()  # gives all memory back, which the engine itself may not
            self._figures.evicted("memory")
        elif isinstance(error, EngineCrash | EngineTimeout):
            self._figures.crashed()
        if len(items) > 1:
            middle = len(items) // 2
            return [items[middle:], items[:middle]]
        item = items[0]
        item.failures += 1
        died = out_of_memory or isinstance(error, EngineCrash | EngineTimeout)
        if died and item.failures < _DEATHS and not self._closed:
            return [items]
        item.request.fail(self._reason(error))
        return []


def _fail(items: Sequence[Item], error: VoicejobsError) -> None:
    """End the requests of these windows."""
    for item in items:
        item.request.fail(error)


def _seconds(item: Item) -> float:
    """Return the length of a window."""
    return samples_to_seconds(len(item.work))


def _closing() -> ShuttingDown:
    """Return the error of calls that the end of the pool cut off."""
    return ShuttingDown("the engine host is closing")
