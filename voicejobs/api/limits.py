"""How often a key may ask, and for how much at once: token buckets and counts in the memory of one process."""

import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from voicejobs.errors import RateLimited
from voicejobs.store.keys import LARGEST_LIMIT, LOWEST_RATE

BURST_S = 10.0
"""A key that has been quiet may at once ask what it may ask in this time."""
SMALLEST_BURST = 10.0
MOST_BUCKETS = 10_000
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Say how a key stands after a request: how many it may ask at once, how many of these are left, and when all are.

    Args:
        limit: requests that a full bucket allows.
        remaining: of these, what is left.
        reset_s: seconds until the bucket is full.
    """

    limit: int
    remaining: int
    reset_s: float

    def to_headers(self) -> dict[str, str]:
        """Return the headers that tell it, as OpenAI spells them."""
        return {
            "x-ratelimit-limit-requests": str(self.limit),
            "x-ratelimit-remaining-requests": str(self.remaining),
            "x-ratelimit-reset-requests": f"{self.reset_s:.3f}s",
        }


class Gauge:
    """Count what keys ask; used on the event loop alone."""

    def __init__(self, requests_per_minute: float, concurrency: float) -> None:
        self.requests_per_minute = requests_per_minute
        self.concurrency = concurrency
        self._buckets: dict[str, tuple[float, float]] = {}
        self._running: Counter[str] = Counter()

    def take(self, name: str, own: Mapping[str, float]) -> Standing | None:
        """Take one request from the bucket of a key; None where it has no limit.

        Raises:
            RateLimited: the bucket is empty.
        """
        per_minute = own.get("requests_per_minute", self.requests_per_minute)
        if not per_minute > 0:
            return None
        rate = min(max(per_minute, LOWEST_RATE), LARGEST_LIMIT) / _MINUTE_S
        size = max(rate * BURST_S, SMALLEST_BURST)
        now = time.monotonic()
        level, at = self._buckets.get(name, (size, now))
        level = min(size, level + (now - at) * rate)
        if level < 1:
            standing = Standing(int(size), 0, (size - level) / rate)
            raise RateLimited(
                f"more than {per_minute:g} requests a minute",
                retry_after_ms=math.ceil(1000 * (1 - level) / rate),
                headers=standing.to_headers(),
            )
        if len(self._buckets) >= MOST_BUCKETS and name not in self._buckets:
            self._buckets.clear()  # all of them full again: keys are few, and this is no place to grow without end
        self._buckets[name] = (level - 1, now)
        return Standing(int(size), int(level - 1), (size - level + 1) / rate)

    def enter(self, name: str, own: Mapping[str, float]) -> None:
        """Count a request that begins; whoever calls this calls `leave` too.

        Raises:
            RateLimited: as many run as may.
        """
        most = own.get("concurrency", self.concurrency)
        if 0 < most <= self._running[name]:
            raise RateLimited(f"more than {most:g} requests at once", retry_after_s=1)
        self._running[name] += 1

    def leave(self, name: str) -> None:
        """Count a request that has ended."""
        self._running[name] -= 1
        if not self._running[name]:
            del self._running[name]

    def running(self, name: str) -> int:
        """Return how many requests of a key run."""
        return self._running[name]
