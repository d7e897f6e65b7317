"""Keep threads from holding up the event loop: it stands still while one runs Python, or Python collects.

Three things last long without a pause. Python lets a thread run for 5 ms before another gets its turn, and a request
waits for several turns: here they are shorter. Python's collector looks at all that a large request has made so far,
time and again: here it looks at few objects at once, and at all of them when they are few. And a call into C lasts as
long as it lasts: large JSON is read in pieces (`voicejobs.piecewise`).
"""

import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

SWITCH_INTERVAL_S = 0.001
"""How long a thread runs while others wait for their turn."""
COLLECTOR = (2_000, 5, 1_000_000)
"""New objects before a small collection, small ones before a middle one, middle ones before a whole one: never."""
MIDDLE_BEFORE_WHOLE = 50
MOST_AT_ONCE = 40_000
"""Objects that a whole collection may look at; it takes about half a millisecond for a thousand."""
LOOK_EVERY_S = 5.0
LONGEST_PUT_OFF_S = 600.0


def calm_down() -> None:
    """Set all of it for this process; what is there by now stays to its end, and is looked at no more."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR)


def leave_alone() -> None:
    """Look no more at what has come since; at once, and without looking."""
    gc.freeze()


@asynccontextmanager
async def collecting() -> AsyncIterator[None]:
    """Collect what is left behind in circles and has grown old, when it is quick, for as long as the service runs."""

    async def tend() -> None:
        since = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if collect_if_quick(is_overdue=time.monotonic() - since > LONGEST_PUT_OFF_S):
                since = time.monotonic()

    task = asyncio.create_task(tend(), name="collecting")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def collect_if_quick(*, is_overdue: bool = False) -> bool:
    """Collect everything if enough has happened since the last time and it takes no time, or is overdue; tell whether.

    While a batch of ten thousand jobs comes in there is too much to look at, and most of it goes by itself soon.
    """
    if gc.get_count()[2] < MIDDLE_BEFORE_WHOLE:
        return False
    if not is_overdue and len(gc.get_objects(generation=2)) > MOST_AT_ONCE:
        return False
    gc.collect()
    return True
