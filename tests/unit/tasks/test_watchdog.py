"""When a worker counts as standing still."""

import logging
from dataclasses import dataclass, field

import pytest

from voicejobs.tasks.watchdog import EXIT_STALLED, Signs, Watchdog


@dataclass
class Worker:
    """Hold the signs of a worker, and the clock."""

    now: float = 0.0
    turned_at: float = 0.0
    taken: int = 0
    is_idle: bool = True
    is_closing: bool = False
    waiting: int | None = 0
    answers: bool = True
    ended: list[int] = field(default_factory=list)

    def watchdog(self) -> Watchdog:
        """Return a watchdog that allows a hundred seconds."""
        signs = Signs(
            lambda: self.turned_at, lambda: self.taken, lambda: self.is_idle, lambda: self.is_closing,
            lambda: self.waiting, lambda: self.answers,
        )  # fmt: skip
        return Watchdog(signs, 100.0, self.ended.append, lambda: self.now)

    def live(self, watchdog: Watchdog, seconds: int, *, turns: bool = True, takes: bool = False) -> list[int]:
        """Let time pass, with a look each ten seconds; return the exit codes."""
        for _ in range(0, seconds, 10):
            self.now += 10
            self.turned_at = self.now if turns else self.turned_at
            self.taken += takes
            watchdog.look()
        return self.ended


def test_a_worker_that_turns_is_left_alone() -> None:
    """Whether there is anything to do or not."""
    worker = Worker()
    watchdog = worker.watchdog()
    assert worker.live(watchdog, 500) == []
    worker.waiting = 5
    assert worker.live(watchdog, 500, takes=True) == []
    worker.is_idle = False
    assert worker.live(watchdog, 500) == [], "a long step is no standstill"


def test_upkeep_that_does_not_turn_ends_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    """After its time, with a code of its own, and the stacks of all threads in the log."""
    worker = Worker()
    watchdog = worker.watchdog()
    assert worker.live(watchdog, 100, turns=False) == []
    with caplog.at_level(logging.CRITICAL):
        assert worker.live(watchdog, 10, turns=False) == [EXIT_STALLED]
    (record,) = caplog.records
    assert "has not turned for 110 s" in record.__dict__["reason"]
    assert any("MainThread" in name and "test_watchdog" in stack for name, stack in record.__dict__["stacks"].items())


def test_messages_that_nobody_takes_end_the_worker() -> None:
    """Its threads are idle, and none takes a message, for as long."""
    worker = Worker(waiting=3)
    watchdog = worker.watchdog()
    assert worker.live(watchdog, 100) == []
    assert worker.live(watchdog, 30)[:1] == [EXIT_STALLED]


@pytest.mark.parametrize("away", [{"waiting": None}, {"answers": False}, {"is_closing": True}])
def test_a_server_that_is_away_excuses_it(away: dict[str, object]) -> None:
    """So does going down: nothing is known of a worker that cannot work."""
    worker = Worker(**away)  # type: ignore[arg-type]
    assert worker.live(worker.watchdog(), 500, turns=False) == []


def test_a_worker_that_was_stopped_gets_its_time_again() -> None:
    """After SIGSTOP, or a night's sleep, all signs are old: it is judged by what it does from then on."""
    worker = Worker()
    watchdog = worker.watchdog()
    worker.now = 10_000
    watchdog.look()
    assert worker.live(watchdog, 100, turns=False) == []
    assert worker.live(watchdog, 20, turns=False)[:1] == [EXIT_STALLED]
