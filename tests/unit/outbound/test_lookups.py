"""Looking up names: the resolver of the system knows no time limit, and the threads that wait for it have a number."""

import threading
from collections.abc import Sequence

import pytest

from tests.waiting import wait_until
from voicejobs.errors import AddressUnavailable
from voicejobs.outbound.address import LOOKUP_RETRY_S, Lookups, read_url

URL = read_url("https://receiver.example/")


def test_look_ups_that_nobody_waits_for_any_more_have_a_number() -> None:
    """With a resolver that hangs, so many threads hang and no more; the next is told to come later, and later may."""
    released = threading.Event()
    running: list[str] = []

    def hang(host: str, port: int) -> Sequence[str]:
        running.append(host)
        released.wait(60)
        return ["192.0.2.1"]

    lookups = Lookups(2)
    try:
        for _ in range(2):
            with pytest.raises(AddressUnavailable, match="no answer within"):
                lookups.ask(hang, URL, 0.01)
        for _ in range(3):
            with pytest.raises(AddressUnavailable, match="2 others are") as caught:
                lookups.ask(hang, URL, 0.01)
            assert caught.value.details["retry_after_s"] == LOOKUP_RETRY_S
            assert "later" in caught.value.hint
        assert len(running) == 2
    finally:
        released.set()
    assert lookups.ask(hang, URL, 30) == ["192.0.2.1"]


def test_a_look_up_waits_for_a_place_as_long_as_it_may() -> None:
    """One that comes while all are at work gets its turn when one of them ends in time."""
    released = threading.Event()

    def hold(host: str, port: int) -> Sequence[str]:
        released.wait(60)
        return ["192.0.2.1"]

    lookups = Lookups(1)
    with pytest.raises(AddressUnavailable):
        lookups.ask(hold, URL, 0.01)
    found: list[Sequence[str]] = []
    waiting = threading.Thread(target=lambda: found.append(lookups.ask(lambda host, port: ["192.0.2.2"], URL, 60)))
    waiting.start()
    released.set()
    waiting.join(60)
    assert found == [["192.0.2.2"]]


@pytest.mark.parametrize("error", [OSError(2, "no such name"), UnicodeError("label too long")])
def test_a_look_up_that_fails_leaves_its_place(error: Exception) -> None:
    """What the resolver says is told, and does not use up the threads."""

    def fail(host: str, port: int) -> Sequence[str]:
        raise error

    lookups = Lookups(1)
    for _ in range(3):
        with pytest.raises(AddressUnavailable, match=r"no such name|label too long"):
            lookups.ask(fail, URL, 60)
    wait_until(lambda: not [one for one in threading.enumerate() if one.name == "voicejobs-resolve"], 30)
