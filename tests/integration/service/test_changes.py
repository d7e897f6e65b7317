"""Following jobs and batches: backlog, then what happens, each event once, for many listeners with one reader."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from fastapi import Request

from tests import rows
from tests.rows import opened
from voicejobs.api import changes as module
from voicejobs.api import following
from voicejobs.api.changes import Changes, Dropped
from voicejobs.api.following import Topic
from voicejobs.api.problems import problem_headers, status_of
from voicejobs.api.sse import Streams
from voicejobs.errors import DatabaseUnavailable
from voicejobs.store import jobs as store
from voicejobs.store.database import Database
from voicejobs.store.events import Cursor, Event, Scope
from voicejobs.store.states import JobState
from voicejobs.store.wakes import Wakes


@pytest.fixture
def database(store_url: str) -> Iterator[Database]:
    """Return an open, empty store of each kind."""
    with opened(store_url) as database:
        yield database


def add(database: Database, count: int = 1, tenant: str = "default") -> tuple[str, list[str]]:
    """Insert a watched batch with so many jobs."""
    new = [rows.new_job(seq=number, watched=True) for number in range(count)]
    with database.begin() as connection:
        batch_id = store.insert_batch(connection, store.NewBatch("bulk", "t", {}, tenant=tenant, watched=True))
        store.insert_jobs(connection, batch_id, new, tenant=tenant)
    return batch_id, [job.id for job in new]


def end(database: Database, job_id: str) -> None:
    """End a job."""
    database.run(lambda connection: store.finish_job(connection, job_id, JobState.SUCCEEDED))


async def take(changes: Changes, count: int, **scope: object) -> list[Event]:
    """Return the first `count` events of a subscription."""
    found: list[Event] = []
    stream = changes.subscribe(**scope)  # type: ignore[arg-type]
    async for event in stream:
        found.append(event)
        if len(found) == count:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return found


def test_a_waiter_learns_of_the_end(database: Database) -> None:
    """Waiting for a job returns its state soon after its end, at once where it has ended, and None in time."""

    async def main() -> None:
        changes = Changes(database)
        _, (first, second) = await asyncio.to_thread(add, database, 2)
        waiting = asyncio.create_task(changes.wait_for_end(first, 20.0))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await asyncio.to_thread(end, database, first)
        assert await asyncio.wait_for(waiting, 5.0) == "succeeded"
        assert await changes.wait_for_end(first, 5.0) == "succeeded"
        assert await changes.wait_for_end(second, 0.2) is None
        await asyncio.sleep(2 * module.POLL_S)
        assert changes.listening == 0
        assert changes._watcher is None
        await changes.close()

    asyncio.run(main())


def test_who_comes_while_the_database_is_away_is_told_so(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new listener does not wait for ever: 503 says when to come back, and nothing of it stays."""

    async def main() -> None:
        changes = Changes(database)
        streams = Streams()
        fault = DatabaseUnavailable("It is away")
        with monkeypatch.context() as patch:
            patch.setattr(module, "READY_S", 0.2)
            patch.setattr(changes, "_newest", Mock(side_effect=fault))
            with pytest.raises(DatabaseUnavailable) as caught:
                await changes.wait_for_end("job_1", 30.0)
            context: Any = SimpleNamespace(
                changes=changes, database=database, run=asyncio.to_thread, settings=SimpleNamespace(api_streams=1)
            )
            caller: Any = SimpleNamespace(key_id="key_1", limits={"streams": 1}, tenant="default")
            app = SimpleNamespace(state=SimpleNamespace(streams=streams))
            scope = {"type": "http", "headers": [(b"accept", b"text/event-stream")], "query_string": b"", "app": app}
            with pytest.raises(DatabaseUnavailable):
                await following.answer(Request(scope), context, caller, Topic(Scope("default")))
        assert problem_headers(caught.value)["Retry-After"]
        assert status_of(caught.value) == 503
        assert (streams.total, changes.listening) == (0, 0)
        _, (job_id,) = await asyncio.to_thread(add, database)
        await asyncio.to_thread(end, database, job_id)
        assert await changes.wait_for_end(job_id, 5.0) == "succeeded"
        await changes.close()

    asyncio.run(main())


def test_backlog_and_news_make_one_story(database: Database) -> None:
    """Whoever comes back with a place hears what was missed and what follows, without gap, double or other's events."""

    async def main() -> None:
        changes = Changes(database)
        batch_id, ids = await asyncio.to_thread(add, database, 40)
        await asyncio.to_thread(add, database, 1, "other")

        async def work() -> None:
            for job_id in ids:
                await asyncio.to_thread(end, database, job_id)

        working = asyncio.create_task(work())
        early = await take(changes, 30, tenant="default", after=Cursor())
        late = await take(changes, 51, tenant="default", batch_id=batch_id, after=early[-1].cursor)
        await working
        story = early + late
        assert len({event.id for event in story}) == 81
        assert [event.job_id for event in story if event.type == "job.succeeded"] == ids
        assert {event.tenant for event in story} == {"default"}
        await changes.close()

    asyncio.run(main())


def test_a_slow_reader_is_dropped(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that leaves too much unread hears no more, and the others go on."""
    monkeypatch.setattr(module, "MOST_WAITING", 5)

    async def main() -> None:
        changes = Changes(database)
        async with changes.listen(tenant="default") as slow, changes.listen(tenant="default") as quick:
            adding = asyncio.create_task(asyncio.to_thread(add, database, 4))
            heard = [await quick.next(5.0) for _ in range(5)]
            await adding
            _, _ids = await asyncio.to_thread(add, database, 1)
            heard += [await quick.next(5.0) for _ in range(2)]
            assert None not in heard
            with pytest.raises(Dropped):
                await slow.next(1.0)
        await changes.close()

    asyncio.run(main())


def test_news_wait_for_no_look(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """With hours between two looks, what happens is told all the same."""
    monkeypatch.setattr(module, "POLL_S", 3600.0)

    async def main() -> None:
        changes = Changes(database)
        async with changes.listen() as listener:
            # Again and again: on Postgres another transaction, say of its own upkeep, may hide an event for longer.
            for _ in range(60):
                await asyncio.to_thread(add, database)
                if await listener.next(1.0) is not None:
                    break
            else:
                pytest.fail("nothing was told")
        await changes.close()

    asyncio.run(main())


def test_whoever_hears_nothing_looks(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no wake-up ever comes, events are told at the next look."""
    monkeypatch.setattr(Wakes, "_ask", lambda _: None)
    monkeypatch.setattr(Wakes, "_listen", lambda _: None)

    async def main() -> None:
        changes = Changes(database)
        _, (job_id,) = await asyncio.to_thread(add, database, 1)
        async with changes.listen(job_id=job_id) as listener:
            await asyncio.to_thread(end, database, job_id)
            heard = await listener.next(60.0)
            assert heard is not None
            assert heard.state == "succeeded"
        await changes.close()

    asyncio.run(main())


def test_closing_lets_everybody_go(database: Database) -> None:
    """When the service ends, those who wait are told so at once."""

    async def main() -> None:
        changes = Changes(database)
        _, (job_id,) = await asyncio.to_thread(add, database, 1)
        waiting = asyncio.create_task(changes.wait_for_end(job_id, 30.0))
        await asyncio.sleep(0.2)
        await changes.close()
        with pytest.raises(Dropped):
            await asyncio.wait_for(waiting, 2.0)

    asyncio.run(main())
