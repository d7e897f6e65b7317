"""Counters of one process, which only rise: what happened how often, and how long it took."""

import threading
from typing import Any

Key = tuple[str, tuple[tuple[str, str], ...]]


class Tally:
    """Count under names and labels; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Key, float] = {}

    def add(self, name: str, amount: float = 1, /, **labels: str) -> None:
        """Add to a counter."""
        key = (name, tuple(sorted(labels.items())))
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + amount

    def to_json(self) -> list[Any]:
        """Return all counters as `[name, {label: value}, count]`."""
        with self._lock:
            counts = list(self._counts.items())
        return [[name, dict(labels), count] for (name, labels), count in counts]
