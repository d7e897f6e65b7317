"""End a worker that stands still although its servers answer: whoever minds it starts another."""

import faulthandler
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)

EXIT_STALLED = 70
"""Exit code of a worker that was ended here (EX_SOFTWARE of sysexits.h)."""

LOOKS = 10
"""Looks within the time for which a worker may stand still."""
LATE = 3
"""A look that comes so many times later than it should was not kept waiting by us: the process was stopped."""
TELL_S = 5.0


@dataclass(frozen=True, slots=True)
class Signs:
    """Say how to see that a worker lives.

    Args:
        turned_at: when its upkeep thread last turned, by the monotonic clock.
        taken: how many messages its threads have taken.
        is_idle: whether none of them has anything to do.
        is_closing: whether it is going down; it is left alone then.
        waiting: how many messages wait for it; None where the broker does not answer.
        answers: whether the database answers.
    """

    turned_at: Callable[[], float]
    taken: Callable[[], int]
    is_idle: Callable[[], bool]
    is_closing: Callable[[], bool]
    waiting: Callable[[], int | None]
    answers: Callable[[], bool]


@dataclass(slots=True)
class Watchdog:
    """Look at the signs in a thread of its own.

    Args:
        signs: what to look at.
        stall_s: seconds for which the worker may stand still.
        end: ends the process.
        clock: the monotonic clock.
    """

    signs: Signs
    stall_s: float
    end: Callable[[int], object] = os._exit
    clock: Callable[[], float] = time.monotonic
    _since: float = field(init=False)
    _looked_at: float = field(init=False)
    _idle_since: float | None = None
    _taken: int = -1
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._since = self._looked_at = self.clock()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()

    def _run(self) -> None:
        """Look until the end."""
        while not self._stop.wait(self.stall_s / LOOKS):
            try:
                self.look()
            except Exception:
                logger.exception("the watchdog could not look")

    def look(self) -> None:
        """End the process where it stands still, and tell where each of its threads is."""
        now = self.clock()
        if now - self._looked_at > LATE * self.stall_s / LOOKS:
            # We were stopped ourselves (SIGSTOP, a sleeping laptop): all signs are old, and say nothing.
            self._since, self._idle_since = now, None
        self._looked_at = now
        if self.signs.is_closing():
            return
        reason = self._stands_still(now)
        if reason and self.signs.waiting() is not None and self.signs.answers():
            self._tell(reason)
            self.end(EXIT_STALLED)

    def _stands_still(self, now: float) -> str:
        """Return what stands still, empty where nothing does."""
        still_s = now - max(self.signs.turned_at(), self._since)
        if still_s > self.stall_s:
            return f"the upkeep thread has not turned for {still_s:.0f} s"
        taken = self.signs.taken()
        if taken != self._taken or not self.signs.is_idle() or not self.signs.waiting():
            self._taken, self._idle_since = taken, None
            return ""
        if self._idle_since is None:
            self._idle_since = now
        idle_s = now - self._idle_since
        return f"messages wait, and no idle thread has taken one for {idle_s:.0f} s" if idle_s > self.stall_s else ""

    def _tell(self, reason: str) -> None:
        """Log where every thread is; where the log itself stands still, write it without."""
        teller = threading.Thread(target=_log_stacks, args=(reason,), daemon=True)
        teller.start()
        teller.join(TELL_S)
        if teller.is_alive():
            faulthandler.dump_traceback(all_threads=True)


def _log_stacks(reason: str) -> None:
    """Log the stacks of all threads."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = {
        f"{names.get(ident, '?')} {ident}": "".join(traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 - the documented way to see other threads
    }
    logger.critical("the worker stands still, and ends", extra={"reason": reason, "stacks": stacks})
