"""Answers that are given again: kept with what they tell of, for a day, by tenant, route and key."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import func, select, update

from voicejobs.errors import BadOption
from voicejobs.store import idempotency
from voicejobs.store.database import Database
from voicejobs.store.idempotency import Answer, AnsweredMeanwhile, Place
from voicejobs.store.schema import idempotency_keys as keys

PLACE = Place("default", "POST /api/v1/jobs", "k", "f" * 64)
ANSWER = Answer(202, {"Location": "/x"}, {"id": "job_1", "text": "ä"}, "f" * 64)


def keep(database: Database, place: Place = PLACE, answer: Answer = ANSWER) -> None:
    """Keep an answer in a transaction of its own."""
    database.run(lambda connection: idempotency.keep(connection, place, answer))


def find(database: Database, place: Place = PLACE) -> Answer | None:
    """Return the kept answer."""
    with database.read() as connection:
        return idempotency.find(connection, place)


def test_an_answer_is_found_again(database: Database) -> None:
    """Status, headers and body come back as they were; another tenant, route or key has none of it."""
    keep(database)
    assert find(database) == ANSWER
    others = [Place("b", PLACE.route, "k", "f"), Place("default", "POST /other", "k", "f")]
    others.append(Place("default", PLACE.route, "l", "f"))
    assert [find(database, other) for other in others] == [None, None, None]


def test_an_answer_lasts_a_day(database: Database) -> None:
    """After 24 hours the key is new again, and its row can be taken over or forgotten."""
    keep(database)
    with database.begin() as connection:
        connection.execute(update(keys).values(created_at=keys.c.created_at - idempotency.KEPT_S - 1))
    assert find(database) is None
    keep(database, answer=Answer(202, {}, {"id": "job_2"}, "f" * 64))
    found = find(database)
    assert found is not None
    assert found.body == {"id": "job_2"}
    assert database.run(idempotency.forget) == 0


def test_one_of_two_at_the_same_moment_wins(database: Database) -> None:
    """Of requests with one key at one moment a single one is answered; the others learn of it and undo their work."""
    barrier = Barrier(4)

    def ask(number: int) -> str:
        barrier.wait()
        try:
            keep(database, answer=Answer(202, {}, {"id": number}, "f" * 64))
        except AnsweredMeanwhile:
            return "meanwhile"
        return "kept"

    with ThreadPoolExecutor(4) as pool:
        outcomes = sorted(pool.map(ask, range(4)))
    assert outcomes == ["kept", "meanwhile", "meanwhile", "meanwhile"]
    with database.read() as connection:
        assert connection.execute(select(func.count()).select_from(keys)).scalar_one() == 1


@pytest.mark.parametrize("key", ["", "x" * 256, "with\nline", "mit-ü", "\x7f"])
def test_a_wrong_key_is_refused(key: str) -> None:
    """A key has 1 to 255 printable ASCII characters."""
    assert idempotency.check_key("a b-1") == "a b-1"
    with pytest.raises(BadOption):
        idempotency.check_key(key)
