"""Ids rise, and are those of RFC 9562."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import RFC_4122, UUID

import pytest

from voicejobs.store.ids import new_id

MANY = 20_000


def test_ids_of_one_process_rise() -> None:
    """Each id is above the one before, also the thousands of one millisecond, and is a UUIDv7 of about now."""
    made = [new_id("job") for _ in range(MANY)]
    assert made == sorted(set(made))
    for text in made[:: MANY // 50]:
        parsed = UUID(text.removeprefix("job_"))
        assert (parsed.version, parsed.variant) == (7, RFC_4122)
        assert abs((parsed.int >> 80) / 1000 - time.time()) < 60


def test_ids_of_many_threads_differ() -> None:
    """No two threads are given the same id, and each sees its own rise."""
    with ThreadPoolExecutor(4) as threads:
        lists = list(threads.map(lambda _: [new_id("job") for _ in range(2000)], range(4)))
    assert all(one == sorted(one) for one in lists)
    assert len({text for one in lists for text in one}) == 8000


def test_a_clock_that_goes_back_or_a_full_counter_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids rise while the clock stands still for ever, and when it goes back by an hour."""
    first = new_id("job")
    now_ns = time.time_ns()

    def clock() -> Iterator[int]:
        for _ in range(5000):
            yield now_ns
        while True:
            yield now_ns - 3_600_000_000_000

    ticks = clock()
    monkeypatch.setattr(time, "time_ns", lambda: next(ticks))
    made = [first, *(new_id("job") for _ in range(10_000))]
    assert made == sorted(set(made))
