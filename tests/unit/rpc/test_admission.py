"""Who may work, who waits, who is turned away: whatever happens, no slot is lost."""

import asyncio
import random
import time
from threading import Event, Lock

import pytest

from voicejobs.errors import QueueFull, WaitedTooLong
from voicejobs.rpc.admission import Admission, Asked, Limits


def limits(**changes: float) -> Limits:
    """Return limits of two slots and four places in the queue, with changes."""
    values = {"slots": 2, "queue_length": 4, "wait_s": 5.0, "held_bytes": 1000, "streams": 1, **changes}
    return Limits(**values)  # type: ignore[arg-type]


def test_slots_are_never_passed_and_the_queue_keeps_its_order() -> None:
    """Of ten at once two work, four wait in the order in which they came, and four are refused at once."""
    order: list[int] = []
    most, now, lock = 0, 0, Lock()

    def work(number: int) -> int:
        nonlocal most, now
        with lock:
            order.append(number)
            now += 1
            most = max(most, now)
        time.sleep(0.03)
        with lock:
            now -= 1
        return number

    async def all_at_once() -> list[int | BaseException]:
        admission = Admission(limits())
        calls = [
            admission.run(lambda _, n=number: work(n), size_bytes=1, remaining_s=None)  # type: ignore[misc]
            for number in range(10)
        ]
        found = await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0.05)
        assert (admission.working, admission.waiting, admission._held_bytes) == (0, 0, 0)
        assert (admission.counts.accepted, admission.counts.refused, admission.counts.most_waiting) == (6, 4, 4)
        admission.close()
        return found

    found = asyncio.run(all_at_once())
    assert found[:6] == [0, 1, 2, 3, 4, 5]
    assert all(isinstance(one, QueueFull) for one in found[6:])
    assert sorted(order[:2]) == [0, 1]
    assert order[2:] == sorted(order[2:])
    assert most == 2


def test_what_waits_is_bounded_in_bytes() -> None:
    """One request of any size may wait; a second only where both are within the limit."""

    async def three() -> list[str]:
        admission = Admission(limits(slots=1))
        end = Event()

        def work(asked: Asked) -> str:
            end.wait(5)
            return "ok"

        calls = [
            asyncio.create_task(admission.run(work, size_bytes=size, remaining_s=None)) for size in (9000, 5000, 1)
        ]
        await asyncio.sleep(0.05)
        end.set()
        found = await asyncio.gather(*calls, return_exceptions=True)
        admission.close()
        return [one if isinstance(one, str) else type(one).__name__ for one in found]

    assert asyncio.run(three()) == ["ok", "ok", "QueueFull"]


@pytest.mark.parametrize("remaining_s", [None, 60.0, 0.05])
def test_waiting_ends_with_the_shorter_of_both_limits(remaining_s: float | None) -> None:
    """The waiting time of the server and the deadline of the request both end the wait, without any work."""

    async def wait() -> float:
        admission = Admission(limits(slots=1, wait_s=0.15))
        end = Event()
        first = asyncio.create_task(admission.run(lambda _: end.wait(5), size_bytes=1, remaining_s=None))
        await asyncio.sleep(0.01)
        since = time.monotonic()
        with pytest.raises(WaitedTooLong):
            await admission.run(lambda _: pytest.fail("it must not work"), size_bytes=1, remaining_s=remaining_s)
        took_s = time.monotonic() - since
        assert (admission.waiting, admission.counts.expired) == (0, 1)
        end.set()
        assert await first
        admission.close()
        return took_s

    took_s = asyncio.run(wait())
    assert (0.04 if remaining_s == 0.05 else 0.14) <= took_s < 1.0


def test_work_that_fails_gives_its_slot_back() -> None:
    """An error of the work is the caller's, and the next one works."""

    def fail(asked: Asked) -> None:
        raise ValueError("broken")

    async def several() -> None:
        admission = Admission(limits(slots=1))
        for _ in range(5):
            with pytest.raises(ValueError, match="broken"):
                await admission.run(fail, size_bytes=1, remaining_s=None)
        assert await admission.run(lambda _: 5, size_bytes=1, remaining_s=None) == 5
        admission.close()

    asyncio.run(several())


@pytest.mark.parametrize("seed", range(5))
def test_no_slot_is_lost_whoever_cancels_when(seed: int) -> None:
    """After hundreds of requests, of which many leave at random moments, all slots are free and the queue is empty."""
    chance = random.Random(seed)

    async def storm() -> None:
        admission = Admission(limits(slots=3, queue_length=20, wait_s=0.05))
        told: list[bool] = []

        def work(asked: Asked) -> None:
            time.sleep(chance.random() * 0.004)
            told.append(asked())

        async def one() -> str:
            task = asyncio.create_task(admission.run(work, size_bytes=10, remaining_s=None))
            if chance.random() < 0.5:
                await asyncio.sleep(chance.random() * 0.02)
                task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                return "cancelled"
            except QueueFull:
                return "refused"
            except WaitedTooLong:
                return "expired"
            return "ok"

        outcomes: list[str] = []
        for _ in range(20):
            outcomes += await asyncio.gather(*(one() for _ in range(20)))
        await asyncio.sleep(0.05)
        assert (admission.working, admission.waiting, admission._held_bytes) == (0, 0, 0)
        counts = admission.counts
        assert counts.accepted == len(told)
        assert counts.most_waiting <= 20
        assert counts.refused == outcomes.count("refused")
        assert counts.expired == outcomes.count("expired")
        assert counts.cancelled == outcomes.count("cancelled")
        assert any(told)
        admission.close()

    asyncio.run(storm())
