"""How long tests wait on a machine that does other things as well."""

import os

import pytest

from tests.waiting import MOST_PATIENCE, patience, wait_until


@pytest.mark.parametrize(("load", "expected"), [(0.0, 1.0), (2.0, 1.0), (3.0, 1.5), (80.0, MOST_PATIENCE)])
def test_patience_follows_the_load(monkeypatch: pytest.MonkeyPatch, load: float, expected: float) -> None:
    """A quiet machine gets the time that a test names, a busy one more, up to a limit."""
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    assert patience() == expected


def test_what_never_comes_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error carries what the test says of it."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    with pytest.raises(TimeoutError, match="no rain"):
        wait_until(lambda: False, 0.05, what=lambda: "no rain")
