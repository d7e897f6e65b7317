"""What a pool of engine processes counts: loads and evictions, calls and their batches, time and memory."""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

BATCH_STEPS = (1, 2, 4, 8, 16, 32, 64)
"""Upper bounds of the steps in which sizes of batches are counted; larger ones have a step without a bound."""
Gpu = tuple[int, int]
"""Bytes that torch has reserved on its device, and those of them that tensors hold."""
_PAGE_BYTES = 4096


class PoolFigures:
    """Count what happens in one pool; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.loads = self.crashes = self.calls = self.items = 0
        self.load_s = self.busy_s = self.sweep_s = 0.0
        self.evictions: Counter[str] = Counter()
        self._batches = [0] * (len(BATCH_STEPS) + 1)

    def loaded(self, seconds: float) -> None:
        """Count a process that has loaded its model."""
        with self._lock:
            self.loads += 1
            self.load_s += seconds

    def evicted(self, why: str, count: int = 1) -> None:
        """Count processes that were ended although they worked: `idle`, or `memory` where theirs was full."""
        with self._lock:
            self.evictions[why] += count

    def crashed(self) -> None:
        """Count a process that died or hung."""
        with self._lock:
            self.crashes += 1

    def called(self, items: int, seconds: float) -> None:
        """Count a call of an engine with a batch of so many items; those without any ask for something else."""
        with self._lock:
            self.calls += 1
            self.busy_s += seconds
            if items:
                self.items += items
                self._batches[_step(items)] += 1

    def swept(self, seconds: float) -> None:
        """Count the time of a look for idle processes."""
        with self._lock:
            self.sweep_s += seconds

    def to_json(self) -> dict[str, Any]:
        """Return all counts; `batches` are those of each of `BATCH_STEPS`, and of what is larger."""
        with self._lock:
            return {
                "loads": self.loads,
                "load_s": self.load_s,
                "evictions": dict(self.evictions),
                "crashes": self.crashes,
                "calls": self.calls,
                "items": self.items,
                "busy_s": self.busy_s,
                "sweep_s": self.sweep_s,
                "batches": list(self._batches),
            }


def _step(items: int) -> int:
    """Return the place of the step that a batch belongs to."""
    return next((place for place, most in enumerate(BATCH_STEPS) if items <= most), len(BATCH_STEPS))


def resident_bytes(pids: Iterable[int]) -> int:
    """Return the resident memory of processes together; what they share counts for each of them."""
    total = 0
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * _PAGE_BYTES
        except (OSError, IndexError, ValueError):  # it has just ended, or this system has no such files
            continue
    return total


def gpu_sum(each: Sequence[Gpu | None]) -> Gpu | None:
    """Return the memory of several processes on their device together; None where none has told."""
    told = [one for one in each if one is not None]
    return (sum(one[0] for one in told), sum(one[1] for one in told)) if told else None
