"""Wait for a condition instead of for a time."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LOOK_EVERY_S = 0.02
MOST_PATIENCE = 4.0


def patience() -> float:
    """Return how many times as long as on a quiet machine something may take here and now: 1, or more under load."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_PATIENCE, max(1.0, os.getloadavg()[0] / cores))


def wait_until(condition: Callable[[], T], timeout_s: float = 20.0, *, what: object = "") -> T:
    """Return the first true value of `condition`.

    Args:
        condition: looked at over and over.
        timeout_s: how long, on a machine that does nothing else; longer on one that does.
        what: for the message; a callable is asked when the time is over.

    Raises:
        TimeoutError: it did not become true in time.
    """
    began = time.monotonic()
    while not (value := condition()):
        waited_s = time.monotonic() - began
        if waited_s > timeout_s and waited_s > timeout_s * patience():
            told = what() if callable(what) else what
            raise TimeoutError(f"not within {waited_s:.0f} s: {told or condition}")
        time.sleep(LOOK_EVERY_S)
    return value
