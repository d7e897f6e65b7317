import numpy as np

from voicejobs.audio.types import WindowResult
from voicejobs.engines.base import RecogniseOptions
from voicejobs.errors import EngineCrash
from voicejobs.hosting.batcher import Batcher, Item, Lane, Request, Turn

FRENCH = RecogniseOptions(language="fr")
ENGLISH = RecogniseOptions(language="en")


def request(
    count: int,
    options: RecogniseOptions = ENGLISH,
    lane: Lane = "bulk",
    now: float = 0.0,
    task: float | None = None,
) -> Request:
    """Return a request of `count` windows by a task that is at work since `task`, or since now."""
    return Request([np.zeros(4, np.int16)] * count, options, Turn(lane, now if task is None else task), now)


def filled(*requests: Request) -> Batcher:
    """Return a batcher with these requests."""
    batcher = Batcher()
    for one in requests:
        batcher.add(one)
    return batcher


def places(batch: list[Item], *requests: Request) -> list[tuple[int, int]]:
    """Return which window of which request each item is."""
    return [(requests.index(item.request), item.index) for item in batch]


def test_requests_take_turns() -> None:
    """A long request does not keep a short one waiting."""
    long, short = request(5), request(1)
    batcher = filled(long, short)
    found = [places(batcher.take(1), long, short)[0] for _ in range(6)]
    assert found == [(0, 0), (1, 0), (0, 1), (0, 2), (0, 3), (0, 4)]
    assert not batcher


def test_tasks_of_a_size_end_one_after_another() -> None:
    """Of tasks that began together the first is done first, call after call, and the others have not all waited."""
    ended: list[int] = []
    calls = [[request(4, now=float(call), task=float(task)) for call in range(3)] for task in range(3)]
    batcher = filled(*(one[0] for one in calls))
    while batcher:
        (item,) = batcher.take(1)
        (task,) = [number for number, own in enumerate(calls) if item.request in own]
        if not item.request.waiting:
            later = calls[task].index(item.request) + 1
            if later < len(calls[task]):
                batcher.add(calls[task][later])
            else:
                ended.append(task)
    assert ended == [0, 1, 2]


def test_a_task_of_old_is_served_while_short_ones_keep_coming() -> None:
    """Half of the turns are its own, however many shorter requests come behind it."""
    old = request(10)
    batcher = filled(old)
    for number in range(20):
        batcher.add(request(1, now=number + 1.0))
        batcher.take(1)
    assert not old.waiting


def test_interactive_windows_come_first() -> None:
    """The bulk lane is served when the interactive one is empty."""
    bulk, interactive = request(2), request(2, lane="interactive")
    batcher = filled(bulk, interactive)
    found = [places(batcher.take(1), bulk, interactive)[0] for _ in range(4)]
    assert found == [(1, 0), (1, 1), (0, 0), (0, 1)]


def test_a_batch_holds_equal_options_only() -> None:
    """Windows in another language wait for a batch of their own; a batch is filled across lanes."""
    first, other, second = request(2), request(2, FRENCH), request(1, lane="interactive")
    batcher = filled(first, other, second)
    assert places(batcher.take(8), first, other, second) == [(2, 0), (0, 0), (0, 1)]
    assert places(batcher.take(8), first, other, second) == [(1, 0), (1, 1)]


def test_fill_tells_how_full_the_next_batch_is_and_since_when_it_waits() -> None:
    """What the pool needs to decide whether to wait for company."""
    batcher = filled(request(2, now=5.0), request(9, FRENCH, now=6.0), request(1, now=3.0))
    assert batcher.fill(8) == (3, 3.0)
    assert batcher.fill(2) == (2, 3.0)


def test_a_withdrawn_or_failed_request_is_not_served() -> None:
    """Windows that nobody waits for any more cost no engine time."""
    gone, failed, there = request(3), request(3), request(1)
    batcher = filled(gone, failed, there)
    batcher.withdraw(gone)
    failed.fail(EngineCrash("died"))
    assert places(batcher.take(8), gone, failed, there) == [(2, 0)]
    assert not batcher
    batcher.withdraw(there)


def test_a_request_is_done_with_its_last_result_or_its_first_error() -> None:
    """Results come back in the order of the windows, whatever the order of delivery."""
    one = request(2)
    one.deliver(1, WindowResult(language="b"))
    assert not one.done.is_set()
    one.deliver(0, WindowResult(language="a"))
    assert one.done.is_set()
    assert one.results() == [WindowResult(language="a"), WindowResult(language="b")]
    one.fail(EngineCrash("too late"))
    assert one.error is None
