"""Wake-ups: they come soon after a commit, are few however many are sent, and come back after an outage."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests import rows
from tests.rows import cut_listeners, opened
from tests.waiting import wait_until
from voicejobs.store.database import Database
from voicejobs.store.wakes import EVENTS, JOBS, News, Wakes, tell

FLOOD = 300


@pytest.fixture
def database(store_url: str) -> Iterator[Database]:
    """Return an open, empty store of each kind."""
    with opened(store_url) as database:
        yield database


class Calls:
    """Count the calls of a function that can be made to wait."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self) -> None:
        """Wait for the gate."""
        self.count += 1
        self.gate.wait(60)


@contextmanager
def hearing(database: Database, news: News = JOBS) -> Iterator[tuple[Wakes, Calls]]:
    """Hear, from the first call on."""
    calls = Calls()
    wakes = Wakes(database, news, calls)
    wakes.start()
    try:
        wait_until(lambda: calls.count == 1)
        yield wakes, calls
    finally:
        calls.gate.set()
        wakes.close()
        wait_until(lambda: not wakes._thread.is_alive())


def test_a_submission_is_heard_of(database: Database) -> None:
    """So is one by another process, and so are events, each by those who listen for them."""
    with hearing(database) as (_, calls), opened(database.url) as other, hearing(database, EVENTS) as (_, told):
        rows.add_job(other)
        wait_until(lambda: calls.count == 2)
        assert told.count == 1  # the job is not watched
        rows.add_job(other, watched=True)
        wait_until(lambda: calls.count == 3)
        wait_until(lambda: told.count == 2)


def test_nobody_is_woken_for_what_was_undone(database: Database) -> None:
    """A submission that is rolled back is none."""

    def fail() -> None:
        with database.begin() as connection:
            tell(connection, JOBS)
            raise LookupError

    with hearing(database) as (_, calls):
        with pytest.raises(LookupError):
            fail()
        rows.add_job(database)
        wait_until(lambda: calls.count == 2)


def test_a_flood_is_a_few_calls(postgres_url: str) -> None:
    """What is said while somebody is being woken is one wake-up more, or a few."""
    with opened(postgres_url) as database, hearing(database) as (_, calls):
        calls.gate.clear()
        for _ in range(FLOOD):
            with database.at_once() as connection:
                tell(connection, JOBS)
        calls.gate.set()
        wait_until(lambda: calls.count >= 2)
        rows.add_job(database, watched=True)
        assert calls.count < FLOOD / 2


def test_whoever_paused_hears_again(database: Database) -> None:
    """Who wants to hear nothing for some time hears what comes afterwards."""
    with hearing(database) as (wakes, calls), hearing(database) as (_, others):
        wakes.pause()
        rows.add_job(database)
        wait_until(lambda: others.count == 2)
        wakes.resume()
        rows.add_job(database)
        wait_until(lambda: calls.count >= 2)


def test_a_lost_connection_is_made_again(postgres_url: str) -> None:
    """Its loss is a call, because something may have been missed; then what is said is heard as before."""
    with opened(postgres_url) as database, hearing(database) as (_, calls):
        cut_listeners(database)
        wait_until(lambda: calls.count == 2)
        rows.add_job(database)
        wait_until(lambda: calls.count == 3)


def test_what_cannot_be_heard_does_no_harm(store_url: str, tmp_path: object) -> None:
    """A database that is not there is waited for, and the thread ends when it is told to."""
    url = f"sqlite:///{tmp_path}/none/none.db" if "sqlite" in store_url else store_url.replace("/test_", "/none_")
    with opened(url) as database:
        wakes = Wakes(database, JOBS, Calls())
        wakes.start()
        wakes.close()
        wait_until(lambda: not wakes._thread.is_alive())
    Wakes(database, JOBS, Calls()).close()
