"""Events of watched jobs and batches: written with the change, and read in an order that nothing slips behind."""

from typing import Any

import pytest
from sqlalchemy import Connection, func, select, update

from tests import rows
from voicejobs.errors import BadOption
from voicejobs.store import events, webhooks
from voicejobs.store import jobs as store
from voicejobs.store.database import Database
from voicejobs.store.events import Cursor, Scope
from voicejobs.store.schema import cursors, deliveries, jobs
from voicejobs.store.schema import events as events_table
from voicejobs.store.states import JobState


def add_watched(database: Database, tenant: str = "default", **fields: Any) -> tuple[str, str]:
    """Insert a batch with one job, both watched; return their ids."""
    job = rows.new_job(watched=True, **fields)
    with database.begin() as connection:
        batch_id = store.insert_batch(connection, store.NewBatch("bulk", "test", {}, tenant=tenant, watched=True))
        store.insert_jobs(connection, batch_id, [job], tenant=tenant)
        store.seal_batch(connection, batch_id)
    return batch_id, job.id


def read(database: Database, after: Cursor, scope: Scope = events.ALL, limit: int = 500) -> list[events.Event]:
    """Return events."""
    with database.read() as connection:
        return events.read(connection, after, scope, limit=limit)


def test_each_change_of_state_is_an_event(database: Database) -> None:
    """A watched job and its batch leave an event for each state, in order; one that nobody watches leaves none."""
    batch_id, job_id = add_watched(database)
    rows.add_job(database)
    database.run(lambda connection: store.cancel_jobs(connection, job_id=job_id))
    database.run(store.complete_batches)
    found = read(database, Cursor())
    assert [(one.type, one.batch_id, one.job_id) for one in found] == [
        ("batch.in_progress", batch_id, None),
        ("job.queued", batch_id, job_id),
        ("job.cancelled", batch_id, job_id),
        ("batch.completed", batch_id, None),
    ]
    assert found[2].state == JobState.CANCELLED
    assert abs(found[0].created_at - rows.batch(database, batch_id).created_at) < 1.0


def test_pages_go_on_where_the_last_one_ended(database: Database) -> None:
    """The place behind an event, found by its public id as well, gives all that came after it and nothing before."""
    for _ in range(3):
        add_watched(database)
    whole = read(database, Cursor())
    pages = []
    place = Cursor()
    while page := read(database, place, limit=2):
        pages += page
        place = page[-1].cursor
    assert pages == whole
    assert len(whole) == 6
    with database.read() as connection:
        assert events.place_of(connection, whole[3].public_id) == whole[3].cursor
        assert read(database, events.newest(connection)) == []


def test_a_scope_chooses(database: Database) -> None:
    """Tenant, batch and job each choose their events; those of another tenant are never among them."""
    batch_id, job_id = add_watched(database, tenant="a")
    add_watched(database, tenant="b")
    assert {one.tenant for one in read(database, Cursor(), Scope(tenant="a"))} == {"a"}
    assert [one.type for one in read(database, Cursor(), Scope("a", batch_id=batch_id))] == [
        "batch.in_progress",
        "job.queued",
    ]
    assert [one.type for one in read(database, Cursor(), Scope("a", job_id=job_id))] == ["job.queued"]
    assert read(database, Cursor(), Scope("b", job_id=job_id)) == []


def test_nothing_appears_behind_a_reader(database: Database) -> None:
    """While an older transaction is under way, what a younger one has committed is not shown before it."""
    if database.is_sqlite:
        pytest.skip("SQLite has one writer at a time")
    _, first = add_watched(database)
    _, second = add_watched(database)
    with database.read() as connection:
        place = events.newest(connection)
    with database.begin() as older:
        older.execute(update(jobs).where(jobs.c.id == first).values(state=JobState.RUNNING))
        with database.begin() as younger:
            younger.execute(update(jobs).where(jobs.c.id == second).values(state=JobState.RUNNING))
        assert read(database, place) == []
        with database.read() as connection:
            assert events.newest(connection) <= place
    assert [one.job_id for one in read(database, place)] == [first, second]


@pytest.mark.parametrize("wrong", ["", "evt_", "12", "evt_12", "evt_zzzzzzzzzzzzzzzz", "job_0000000000000001"])
def test_a_wrong_id_is_refused(wrong: str) -> None:
    """What is no id of an event is refused; one that was never given, or is kept no more, has no place."""
    with pytest.raises(BadOption):
        events.number_of(wrong)


def test_old_events_are_forgotten(database: Database) -> None:
    """Events above an age go, and the place of one that went is unknown; the newest stays."""
    add_watched(database)
    (first, *_) = read(database, Cursor())
    assert database.run(events.forget) == 0
    assert database.run(lambda connection: events.forget(connection, older_than_s=-1.0)) == 1
    with database.read() as connection:
        assert events.place_of(connection, first.public_id) is None


def test_a_reader_hears_what_comes_after_all_was_forgotten(database: Database) -> None:
    """What happens after all events were old and went is behind the place of whoever has read them."""
    for _ in range(3):
        add_watched(database)
    place = read(database, Cursor())[-1].cursor
    database.run(lambda connection: events.forget(connection, older_than_s=-1.0))
    _, job_id = add_watched(database)
    assert [one.job_id for one in read(database, place)] == [None, job_id]


def test_what_a_webhook_has_not_heard_is_not_forgotten(database: Database) -> None:
    """Events that have not become deliveries stay, however old they are, and go afterwards."""
    with database.begin() as connection:
        webhooks.add(connection, tenant="default", url="https://example.org/", types=list(webhooks.TYPES))
    _, job_id = add_watched(database)
    database.run(lambda connection: store.cancel_jobs(connection, job_id=job_id))
    database.run(lambda connection: events.forget(connection, older_than_s=-1.0))
    assert database.run(lambda connection: webhooks.spread(connection, lambda event, facts: event.type)) == 3
    assert database.run(lambda connection: events.forget(connection, older_than_s=-1.0)) == 2


def test_events_of_a_restored_dump_are_heard(database: Database) -> None:
    """On a server that counts its transactions anew, readers hear what the dump had for them and what comes then."""
    if database.is_sqlite:
        pytest.skip("SQLite counts no transactions")

    def spread(connection: Connection) -> int:
        return webhooks.spread(connection, lambda event, facts: event.type)

    with database.begin() as connection:
        webhooks.add(connection, tenant="default", url="https://example.org/", types=list(webhooks.TYPES))
    heard, unheard = add_watched(database)[1], add_watched(database)[1]
    database.run(lambda connection: store.cancel_jobs(connection, job_id=heard))
    assert database.run(spread) == 5
    database.run(lambda connection: store.cancel_jobs(connection, job_id=unheard))
    with database.begin() as connection:  # what a dump brings along is the same rows; the server is another
        for table in (events_table, cursors):
            connection.execute(update(table).values(tx=table.c.tx + 1_000_000))
    last = database.run(lambda connection: connection.execute(select(func.max(events_table.c.id))).scalar_one())
    new = add_watched(database)[1]
    database.run(lambda connection: store.cancel_jobs(connection, job_id=new))
    assert database.run(spread) == 0
    assert database.run(events.adopt)
    assert not database.run(events.adopt)
    assert database.run(spread) == 4
    with database.read() as connection:
        told = connection.execute(select(deliveries.c.event_id)).scalars().all()
    assert len(told) == 3
    assert [one.job_id for one in read(database, Cursor()) if one.id > last] == [None, new, new]
    assert [one.id for one in read(database, Cursor())] == sorted(one.id for one in read(database, Cursor()))
