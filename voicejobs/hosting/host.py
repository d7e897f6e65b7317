"""The engine processes of a worker, behind proxies that look like engines."""

import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm, Sound, WindowResult
from voicejobs.engines.base import EngineFacts, EngineKind, EngineSpec, RecogniseOptions, SynthesiseOptions, Voice
from voicejobs.engines.registry import engine_class
from voicejobs.errors import BadOption, ShuttingDown
from voicejobs.hosting.batcher import Lane, Turn
from voicejobs.hosting.pool import EnginePool, PoolPlan
from voicejobs.hosting.spawner import Spawner
from voicejobs.settings import Settings

_MEMORY_SHARE = 0.8
_SWEEP_S = 10.0
_SILERO_FRAME_SAMPLES = 512


def _never() -> bool:
    """Return False: nobody cancels."""
    return False


class HostedRecogniser:
    """Fulfil `Recogniser` with the engine processes of a pool, for one task."""

    def __init__(self, pool: EnginePool, lane: Lane, cancelled: Callable[[], bool]) -> None:
        self._pool = pool
        self._turn = Turn(lane, time.monotonic())
        self._cancelled = cancelled

    @property
    def processes(self) -> int:
        """Return how many engine processes may work on the windows of one call at the same time."""
        return self._pool.size

    def recognise(self, windows: Sequence[Pcm], options: RecogniseOptions) -> list[WindowResult]:
        """Return one result for each window, in order; errors as in `EnginePool.recognise`."""
        return self._pool.recognise(windows, options, self._turn, self._cancelled)

    def detect_language(self, window: Pcm) -> tuple[str, float]:
        """Return the ISO 639-1 code of the speech in `window` and its probability 0..1."""
        return self._pool.call(lambda process: process.detect_language(window))


class HostedSynthesiser:
    """Fulfil `Synthesiser` with the engine processes of a pool, for one task."""

    def __init__(self, pool: EnginePool, lane: Lane, cancelled: Callable[[], bool]) -> None:
        self._pool = pool
        self._turn = Turn(lane, time.monotonic())
        self._cancelled = cancelled

    @property
    def processes(self) -> int:
        """Return how many engine processes may work on the texts of one call at the same time."""
        return self._pool.size

    def synthesise(self, texts: Sequence[str], options: SynthesiseOptions) -> list[Sound]:
        """Return the sound of each text, in order; errors as in `EnginePool.recognise`."""
        return self._pool.synthesise(texts, options, self._turn, self._cancelled)

    @property
    def streams(self) -> bool:
        """Tell whether the engine gives sound before a text is spoken to its end."""
        return self._pool.streams

    def stream(self, text: str, options: SynthesiseOptions) -> Generator[Sound, None, None]:
        """Give the sound of one text piece by piece; errors as in `EnginePool.stream`."""
        return self._pool.stream(text, options)

    def voices(self) -> list[Voice]:
        """Return the voices, the default first."""
        return self._pool.call(lambda process: process.voices())


class HostedDetector:
    """Fulfil `VoiceActivityDetector` with one process that all tasks share; one call is one round trip."""

    frame_samples: ClassVar[int] = _SILERO_FRAME_SAMPLES

    def __init__(self, pool: EnginePool) -> None:
        self._pool = pool

    def probabilities(self, block: Pcm, state: bytes) -> tuple[NDArray[np.float32], bytes]:
        """Return the speech probability of each frame of `block`, and the state for the next block."""
        return self._pool.call(lambda process: process.probabilities(block, state))


class EngineHost:
    """Own the engine processes of this worker process; every method may be called from any thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._pools: dict[EngineSpec, EnginePool] = {}
        self._closed = False
        idle_s = settings.engine_idle_s
        self._spawner = Spawner(self._sweep, min(_SWEEP_S, idle_s / 4) if idle_s > 0 else None)

    def recogniser(
        self, spec: EngineSpec, *, lane: Lane = "bulk", cancelled: Callable[[], bool] = _never
    ) -> HostedRecogniser:
        """Return a recogniser whose windows are shared among the engine processes; starts none yet.

        Args:
            spec: which engine, and how.
            lane: `interactive` windows go before `bulk` ones.
            cancelled: asked several times a second while windows wait; True ends the call with `Cancelled`.

        Raises:
            UnknownEngine: no engine has the name.
            BadOption: the engine does something else.
        """
        return HostedRecogniser(self._pool(spec, "recogniser"), lane, cancelled)

    def synthesiser(
        self, spec: EngineSpec, *, lane: Lane = "bulk", cancelled: Callable[[], bool] = _never
    ) -> HostedSynthesiser:
        """Return a synthesiser whose texts are shared among the engine processes; as `recogniser` otherwise."""
        return HostedSynthesiser(self._pool(spec, "synthesiser"), lane, cancelled)

    def vad(self, spec: EngineSpec) -> HostedDetector:
        """Return a voice activity detector; errors as in `recogniser`."""
        pool = self._pool(spec, "vad")
        frame_samples = getattr(engine_class(spec.engine), "frame_samples", HostedDetector.frame_samples)
        if frame_samples == HostedDetector.frame_samples:
            return HostedDetector(pool)
        kind: type[HostedDetector] = type("HostedDetector", (HostedDetector,), {"frame_samples": frame_samples})
        return kind(pool)

    def warm(self, spec: EngineSpec) -> None:
        """Start to load the engine in the background, in as many processes as there may be."""
        self._pool(spec, None).warm()

    def pids(self) -> list[int]:
        """Return the ids of all engine processes."""
        with self._lock:
            pools = list(self._pools.values())
        return [pid for pool in pools for pid in pool.pids()]

    def figures(self) -> list[dict[str, Any]]:
        """Return what each pool is, holds and counts."""
        with self._lock:
            pools = list(self._pools.values())
        return [pool.figures() for pool in pools]

    def end_idle(self) -> None:
        """End every engine process that does nothing at this moment; the next call starts one."""
        self._sweep(0.0)

    def close(self) -> None:
        """End all engine processes within two seconds; calls in flight end with `ShuttingDown`."""
        with self._lock:
            self._closed = True
            pools = list(self._pools.values())
        closers = [threading.Thread(target=pool.close) for pool in pools]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join()
        self._spawner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _pool(self, spec: EngineSpec, kind: EngineKind | None) -> EnginePool:
        """Return the pool of a spec, making it on first use."""
        with self._lock:
            if self._closed:
                raise ShuttingDown("the engine host is closed")
            pool = self._pools.get(spec)
            if pool is None:
                facts = engine_class(spec.engine).facts(spec)
                size = 1 if facts.kind == "vad" else process_count(spec, facts, self._settings.engine_processes)
                pool = self._pools[spec] = EnginePool(PoolPlan(spec, facts, size), self._spawner)
            if kind is not None and pool.kind != kind:
                raise BadOption(f"engine {spec.engine!r} is a {pool.kind}, not a {kind}")
            return pool

    def _sweep(self, idle_s: float | None = None) -> None:
        """End the processes that were idle for `idle_s` seconds, by default as the settings say."""
        with self._lock:
            pools = list(self._pools.values())
        for pool in pools:
            pool.sweep(self._settings.engine_idle_s if idle_s is None else idle_s)


def process_count(spec: EngineSpec, facts: EngineFacts, wanted: int = 0) -> int:
    """Return how many engine processes to run: `wanted`, or as many as cores and free memory allow.

    A GPU gets one: a second copy of the weights would take the memory that its batches need.
    """
    if wanted > 0:
        return wanted
    if spec.device != "cpu":
        return 1
    by_cores = max(1, _cores() // max(1, spec.threads))
    free = _free_memory_bytes()
    if facts.memory_bytes <= 0 or free is None:
        return by_cores
    return max(1, min(by_cores, int(free * _MEMORY_SHARE) // facts.memory_bytes))


def _cores() -> int:
    """Return the CPU cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _free_memory_bytes() -> int | None:
    """Return the memory that is free here, the limit of the container included; None where unknown."""
    found: list[int] = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        if limit != "max":
            found.append(int(limit) - int((group / "memory.current").read_text(encoding="ascii")))
    except (OSError, ValueError):
        pass
    return min(found) if found else None
