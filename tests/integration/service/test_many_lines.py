"""Batches with very many lines: a part at a time, unseen until they are whole, and gone where they cannot be."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from tests import rows
from tests.rows import opened
from voicejobs import dispatch
from voicejobs.api import line_requests
from voicejobs.api.jsonl import SPEECH
from voicejobs.errors import BadOption, QuotaReached, WrongState
from voicejobs.intake import Intake, submit_in_parts
from voicejobs.settings import Settings
from voicejobs.store import drafts, files, outbox
from voicejobs.store import jobs as store
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database, now_s
from voicejobs.store.files import File, NewFile
from voicejobs.store.schema import batches, jobs, step_runs

LINES = 12
AT_ONCE = 5


@pytest.fixture
def database(store_url: str) -> Iterator[Database]:
    """Return an open, empty store of each kind."""
    with opened(store_url) as database:
        yield database


@pytest.fixture
def intake(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Intake:
    """Return where requests go, some lines at a time."""
    monkeypatch.setattr(line_requests, "LINES_AT_ONCE", AT_ONCE)
    return Intake(Settings(tmp_path / "state", tmp_path / "models"), database, BlobStore(tmp_path / "blobs"))


def line(number: int, **body: Any) -> bytes:
    """Return a request."""
    wanted = {"model": "fake_voice", "input": f"Number {number}.", "voice": "low", **body}
    return json.dumps({"custom_id": f"c{number}", "method": "POST", "url": SPEECH, "body": wanted}).encode() + b"\n"


def keep(intake: Intake, *lines: bytes) -> File:
    """Upload a file of lines."""
    return files.add_file(intake.database, "default", intake.blobs.put_stream(lines), NewFile("b.jsonl", "batch"))


def counts(database: Database) -> list[int]:
    """Return how many batches, jobs and step runs there are."""
    with database.read() as connection:
        tables = (batches, jobs, step_runs)
        return [connection.execute(select(func.count()).select_from(one)).scalar_one() for one in tables]


def to_send(database: Database) -> int:
    """Return how many jobs the dispatcher would send."""
    with database.begin() as connection:
        return len(dispatch._choose(connection, outbox.open_batches(connection), 100))


def test_a_batch_is_seen_when_its_last_part_is_there(intake: Intake) -> None:
    """Its parts have transactions of their own; before the last nobody is shown it, and nothing of it is sent."""
    database = intake.database
    file = keep(intake, *map(line, range(LINES)))
    checked = line_requests.check(intake, file, SPEECH)
    assert (checked.requests, checked.bad) == (LINES, [])
    seen: list[tuple[int, int]] = []

    def watched() -> Iterator[Any]:
        for part in line_requests.parts(intake, file, SPEECH, LINES):
            seen.append((counts(database)[1], to_send(database)))
            yield part

    batch_id = submit_in_parts(intake, watched())
    assert seen == [(0, 0), (AT_ONCE, 0), (2 * AT_ONCE, 0)]
    row = rows.batch(database, batch_id)
    assert (row.kind, row.state, row.sealed_at is None) == ("batch", "in_progress", False)
    assert (counts(database)[:2], to_send(database)) == ([1, LINES], LINES)
    with database.read() as connection:
        told = connection.execute(select(jobs.c.request).order_by(jobs.c.seq)).scalars()
        assert [json.loads(one)["openai"]["custom_id"] for one in told] == [f"c{number}" for number in range(LINES)]


def test_a_batch_that_cannot_be_whole_leaves_nothing(intake: Intake) -> None:
    """What goes wrong in the middle or at the end takes all its jobs with it; others stay."""
    database = intake.database
    other = rows.add_job(database)
    before = counts(database)
    file = keep(intake, *map(line, range(LINES)))

    def parts() -> Iterator[Any]:
        return line_requests.parts(intake, file, SPEECH, LINES)

    def broken() -> Iterator[Any]:
        yield next(parts())
        raise BadOption("It is wrong")

    def full(_connection: object, _tenant: str, _count: int) -> None:
        if counts(database)[1] > AT_ONCE:
            raise QuotaReached("No more")

    def cancelled() -> Iterator[Any]:
        yield from parts()
        with database.begin() as connection:
            connection.execute(update(batches).where(batches.c.kind == "draft").values(state="cancelling"))

    with pytest.raises(BadOption):
        submit_in_parts(intake, broken())
    with pytest.raises(QuotaReached):
        submit_in_parts(Intake(intake.settings, database, intake.blobs, limit=full), parts())
    with pytest.raises(WrongState, match="cancelled"):
        submit_in_parts(intake, cancelled())
    with pytest.raises(WrongState, match="deleted"):
        submit_in_parts(intake, line_requests.parts(intake, file, SPEECH, LINES + 1))
    assert counts(database) == before
    assert rows.job(database, other).state == "queued"


def test_what_a_dead_process_left_behind_goes(intake: Intake) -> None:
    """A draft that nobody works on any more is removed by the upkeep, a fresh one is not."""
    database = intake.database
    ids = []
    for age_s in (0.0, drafts.DRAFT_LIFE_S + 60):
        with database.begin() as connection:
            new = store.insert_batch(connection, store.NewBatch("bulk", "x", {}, kind="draft"))
            connection.execute(update(batches).where(batches.c.id == new).values(created_at=now_s() - age_s))
        rows.add_job(database, new)
        ids.append(new)
    assert drafts.expire(database) == 1
    with database.read() as connection:
        assert list(connection.execute(select(batches.c.id)).scalars()) == ids[:1]
        assert list(connection.execute(select(jobs.c.batch_id)).scalars()) == ids[:1]


def test_a_file_of_faults_is_none(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with lines is told of each, up to a number; with more the whole is refused."""
    monkeypatch.setattr(line_requests, "MOST_BAD_LINES", 3)
    some = line_requests.check(intake, keep(intake, *(line(n, speed=9 if n < 3 else 1) for n in range(LINES))), SPEECH)
    assert (some.requests, [one.number for one in some.bad]) == (LINES - 3, [1, 2, 3])
    many = line_requests.check(intake, keep(intake, *(line(n, speed=9) for n in range(LINES))), SPEECH)
    assert (many.bad[-1].code, many.bad[-1].number, many.bad[-1].is_fatal) == ("too_many_bad_lines", 4, True)
