"""Wait for a condition instead of for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LOOK_EVERY_S = 0.02


def wait_until(condition: Callable[[], T], timeout_s: float = 20.0, *, what: object = "") -> T:
    """Return the first true value of `condition`.

    Args:
        condition: looked at over and over.
        timeout_s: how long.
        what: for the message; a callable is asked when the time is over.

    Raises:
        TimeoutError: it did not become true in time.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            told = what() if callable(what) else what
            raise TimeoutError(f"not within {timeout_s:.0f} s: {told or condition}")
        time.sleep(LOOK_EVERY_S)
    return value
