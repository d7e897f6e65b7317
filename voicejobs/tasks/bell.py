"""When the dispatcher looks: now and then, soon after a job has ended, and at once when something was submitted."""

import threading
import time
from typing import Final

CREDIT_S: Final = 1.0
FUTILE_S: Final = 0.5
"""What a look costs that was for nothing; the most that may be in credit is two of them."""


class Bell:
    """Say when it is time to look.

    To look at once costs credit, which time brings back: half a second where it was for nothing, and less where it was
    not. So whoever calls without cause, however often, gets two looks a second, and a flood of submissions is taken
    several at a time.

    Args:
        every_s: how often to look where nothing is heard.
        gather_s: how long the end of a job waits for others.
    """

    def __init__(self, every_s: float, gather_s: float) -> None:
        self._every_s = every_s
        self._gather_s = gather_s
        self._changed = threading.Condition()
        self._rung_at: float | None = None
        self._is_called = False
        self._is_closed = False
        self._was_only_called = False
        self._spent_until = 0.0

    def ring(self) -> None:
        """Say that a job has ended, or came back to the outbox: with others that do, there is room for more."""
        with self._changed:
            if self._rung_at is None:
                self._rung_at = time.monotonic()
                self._changed.notify_all()

    def call(self) -> None:
        """Say that there is something new, and somebody may wait for it."""
        with self._changed:
            if not self._is_called:
                self._is_called = True
                self._changed.notify_all()

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def wait(self) -> None:
        """Return when it is time to look, or when all is over."""
        begun = time.monotonic()
        with self._changed:
            while not self._is_closed:
                left_s = self._due(begun) - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            self._was_only_called = self._is_called and self._rung_at is None
            self._rung_at, self._is_called = None, False

    def found(self, *, something: bool) -> None:
        """Say whether the look was worth while."""
        if self._was_only_called:
            cost_s = self._gather_s if something else FUTILE_S
            self._spent_until = max(self._spent_until, time.monotonic() - CREDIT_S) + cost_s
            self._was_only_called = False

    def _due(self, begun: float) -> float:
        """Return when to look, of one who waits since `begun`."""
        due = begun + self._every_s
        if self._rung_at is not None:
            due = min(due, max(begun, self._rung_at) + self._gather_s)
        if self._is_called:
            due = min(due, max(begun, self._spent_until))
        return due
