"""When the dispatcher looks."""

import time

import pytest

from voicejobs.tasks import bell as module
from voicejobs.tasks.bell import Bell

HOUR_S = 3600.0


def test_a_call_ends_the_longest_wait() -> None:
    """Neither the rhythm nor the time for which ends are gathered is waited for."""
    bell = Bell(HOUR_S, HOUR_S)
    bell.call()
    bell.wait()
    assert bell._due(time.monotonic()) > time.monotonic() + HOUR_S / 2  # what was heard is heard once


def test_the_end_of_a_job_waits_for_others() -> None:
    """A ring makes the next look due after the time of gathering, counted from the first of several."""
    bell = Bell(HOUR_S, 100.0)
    began = time.monotonic()
    bell.ring()
    rung_by = time.monotonic()
    bell.ring()
    assert began + 100.0 <= bell._due(began - 1.0) <= rung_by + 100.0
    bell.call()
    bell.wait()


def test_calls_for_nothing_become_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that found nothing costs more than one that did, and whoever has room for more pays nothing."""
    monkeypatch.setattr(module, "FUTILE_S", HOUR_S)
    futile, useful = Bell(10 * HOUR_S, 0.0), Bell(10 * HOUR_S, 0.0)
    for _ in range(50):
        useful.call()
        useful.wait()
        useful.found(something=True)
    futile.call()
    futile.wait()
    futile.found(something=False)
    futile.call()
    now = time.monotonic()
    assert now + HOUR_S / 2 < futile._due(now) <= now + HOUR_S
    futile.ring()
    futile.wait()


def test_a_closed_bell_keeps_nobody() -> None:
    """Whoever waits, or comes to wait, is let go."""
    bell = Bell(HOUR_S, HOUR_S)
    bell.close()
    bell.wait()
