"""Webhooks in the store: an event becomes a delivery once, a delivery is sent by one at a time, and ends."""

import json
from typing import Any

import pytest
from sqlalchemy import select, update

from tests import rows
from voicejobs import receivers
from voicejobs.receivers import DELAYS_S, body_of
from voicejobs.store import jobs as store
from voicejobs.store import webhooks as hooks
from voicejobs.store.database import Database
from voicejobs.store.schema import cursors, deliveries, events, webhooks
from voicejobs.store.turns import Caps, Turns, take_next
from voicejobs.store.webhooks import Due, Outcome


def add_webhook(database: Database, *types: str, tenant: str = "default") -> str:
    """Insert a webhook."""
    return database.run(
        lambda connection: hooks.add(
            connection, tenant=tenant, url="https://receiver.example/", types=types or hooks.TYPES
        )
    )


def end_job(
    database: Database, *, tenant: str = "default", kind: Any = "batch", request: Any = None
) -> tuple[str, str]:
    """Insert a watched batch of one job and cancel it; return the ids of both."""
    job = rows.new_job(watched=True, request=request, trace_id="t" * 32)
    with database.begin() as connection:
        batch_id = store.insert_batch(
            connection, store.NewBatch("bulk", "test", {}, tenant=tenant, watched=True, kind=kind, request=request)
        )
        store.insert_jobs(connection, batch_id, [job], tenant=tenant)
        store.seal_batch(connection, batch_id)
    database.run(lambda connection: store.cancel_jobs(connection, job_id=job.id))
    database.run(store.complete_batches)
    return batch_id, job.id


def spread(database: Database) -> int:
    """Spread all events and return how many they were."""
    total = 0
    while found := database.run(lambda connection: hooks.spread(connection, body_of)):
        total += found
    return total


def owed(database: Database) -> list[Any]:
    """Return the deliveries."""
    with database.read() as connection:
        return list(connection.execute(select(deliveries).order_by(deliveries.c.id)))


def claim(
    database: Database, *, lease_s: float = 20.0, most: int = 100, per_webhook: int = 100, per_tenant: int = 0
) -> list[Due]:
    """Take leases on what is next."""
    caps = Caps(per_tenant, per_webhook)
    return database.run(lambda connection: take_next(connection, most=most, caps=caps, turns=Turns(), lease_s=lease_s))


def record(database: Database, due: Due, outcome: Outcome) -> bool:
    """Note what became of an attempt."""
    return database.run(lambda connection: hooks.record(connection, due, outcome))


def make_due(database: Database) -> None:
    """Let everything that is owed be due now."""
    with database.begin() as connection:
        connection.execute(update(deliveries).values(next_at=0.0))
        connection.execute(update(webhooks).values(paused_until=None))


def test_the_end_of_a_job_and_of_its_batch_is_told(database: Database) -> None:
    """Only ends become deliveries; the body is thin, and names job, batch and trace."""
    webhook_id = add_webhook(database)
    batch_id, job_id = end_job(database)
    assert spread(database) == 4
    first, second = owed(database)
    assert {first.webhook_id, second.webhook_id} == {webhook_id}
    body = json.loads(first.body)
    assert body["data"] == {"id": job_id, "batch_id": batch_id, "trace_id": "t" * 32}
    assert (body["object"], body["type"], body["id"]) == ("event", "job.cancelled", first.event_id)
    assert body["timestamp"].endswith("Z")
    assert abs(body["created_at"] - rows.job(database, job_id).finished_at) < 2
    assert json.loads(second.body)["data"] == {"id": batch_id}
    assert second.type == "batch.completed"
    assert len(first.body) < receivers.MAX_BODY_BYTES
    assert spread(database) == 0
    assert len(owed(database)) == 2


def test_who_hears_of_a_job(database: Database) -> None:
    """A webhook hears of its own tenant and its own types; where the request names webhooks, of those alone."""
    one, other = add_webhook(database), add_webhook(database)
    jobs_only = add_webhook(database, "job.cancelled")
    foreign = add_webhook(database, tenant="other")
    off = add_webhook(database)
    database.run(lambda connection: hooks.disable(connection, off, "test"))
    _, plain = end_job(database)
    batch_named, named = end_job(database, request={"webhook_ids": [other, foreign]})
    _, single = end_job(database, kind="single")
    spread(database)
    heard: dict[str, set[str]] = {}
    for row in owed(database):
        heard.setdefault(row.webhook_id, set()).add(json.loads(row.body)["data"]["id"])
    assert heard[jobs_only] == {plain, single}
    assert named not in heard[one]
    assert {named, batch_named, plain, single} <= heard[other]
    assert len(heard[other]) == 5  # and the batch of the plain job; that of the single job is nobody's business
    assert not {foreign, off} & set(heard)


def test_a_webhook_hears_of_nothing_that_ended_before_it(database: Database) -> None:
    """The cursor is set when the first webhook is made."""
    end_job(database)
    add_webhook(database)
    assert spread(database) == 0
    assert owed(database) == []


def test_many_spread_each_event_once(database: Database) -> None:
    """Six that spread at the same moment make one delivery for each event and webhook."""
    for _ in range(2):
        add_webhook(database, "job.cancelled")
    for _ in range(10):
        end_job(database)
    counts = rows.at_once(6, lambda number: spread(database))
    assert sum(counts) == 40
    found = [(row.webhook_id, row.event_id) for row in owed(database)]
    assert len(found) == len(set(found)) == 20


def test_spreading_goes_on_where_a_dead_one_stopped(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliveries and cursor move in one transaction: one that breaks off leaves neither."""
    add_webhook(database)
    end_job(database)

    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(hooks, "_insert_new", die)
        with pytest.raises(KeyboardInterrupt):
            spread(database)
    assert owed(database) == []
    assert spread(database) == 4
    assert len(owed(database)) == 2


def test_one_sends_at_a_time(database: Database) -> None:
    """Six that ask at the same moment get each delivery once; a lease that runs out frees it, with the same id."""
    add_webhook(database, "job.cancelled")
    for _ in range(12):
        end_job(database)
    spread(database)
    taken = [due for found in rows.at_once(6, lambda number: claim(database, lease_s=1000.0)) for due in found]
    assert len(taken) == len({due.id for due in taken}) == 12
    assert claim(database) == []
    with database.begin() as connection:
        connection.execute(update(deliveries).values(lease_until=0.0))
    again = claim(database)
    assert {(due.id, due.event_id, due.body) for due in again} == {(due.id, due.event_id, due.body) for due in taken}
    assert {due.attempt for due in again} == {2}


def test_a_late_outcome_changes_nothing(database: Database) -> None:
    """Once another attempt has begun, what the one before it notes is dropped."""
    add_webhook(database, "job.cancelled")
    end_job(database)
    spread(database)
    (first,) = claim(database, lease_s=0.0)
    (second,) = claim(database)
    assert not record(database, first, Outcome(hooks.FAILED, 500, "late", disable="late"))
    assert record(database, second, Outcome(hooks.DELIVERED, 200))
    assert not record(database, second, Outcome(hooks.FAILED, 500))
    (row,) = owed(database)
    assert (row.state, row.status_code, row.error, row.lease_until) == (hooks.DELIVERED, 200, None, None)


def test_a_slow_webhook_holds_up_no_other(database: Database) -> None:
    """Of what is due each webhook gets a few, whatever is owed to the others."""
    slow, quick = add_webhook(database, "job.cancelled"), add_webhook(database, "job.cancelled")
    for _ in range(5):
        end_job(database, request={"webhook_ids": [slow]})
    end_job(database, request={"webhook_ids": [quick]})
    spread(database)
    assert sorted(due.webhook_id for due in claim(database, per_webhook=2)) == sorted([slow, slow, quick])


def test_a_delivery_that_fails_comes_again_and_ends(database: Database) -> None:
    """Ten attempts with growing pauses; then the webhook is disabled, says why, and owes nothing any more."""
    webhook_id = add_webhook(database, "job.cancelled")
    end_job(database)
    end_job(database)
    spread(database)
    waits = []
    for number in range(1, 11):
        due = claim(database, most=1)[0]
        outcome = receivers._failure(due, 500, "it answered 500")
        assert due.attempt == number
        assert record(database, due, outcome)
        waits.append(outcome.again_in_s)
        with database.begin() as connection:
            connection.execute(update(deliveries).where(deliveries.c.id == due.id).values(next_at=0.0))
            connection.execute(update(deliveries).where(deliveries.c.id != due.id).values(next_at=1e12))
    for wait_s, delay_s in zip(waits, DELAYS_S, strict=False):
        assert delay_s <= wait_s <= delay_s * 1.2
    states = sorted(row.state for row in owed(database))
    assert states == [hooks.DROPPED, hooks.FAILED]
    with database.read() as connection:
        row = hooks.get(connection, webhook_id, tenant="default")
    assert row is not None
    assert row.state == hooks.DISABLED
    assert "10 attempts" in row.reason


def test_gone_disables_at_once(database: Database) -> None:
    """410 means that nobody lives there any more."""
    webhook_id = add_webhook(database, "job.cancelled")
    end_job(database)
    spread(database)
    (due,) = claim(database)
    record(database, due, receivers._failure(due, 410, "it answered 410"))
    with database.read() as connection:
        row = hooks.get(connection, webhook_id, tenant="default")
    assert row is not None
    assert (row.state, row.reason) == (hooks.DISABLED, "its receiver answered 410: it is gone")
    end_job(database)
    spread(database)
    assert [row.state for row in owed(database)] == [hooks.FAILED]


@pytest.mark.parametrize(
    ("status", "retry_after_s", "pause_s"),
    [(429, None, 60), (502, None, 60), (504, None, 60), (429, 600.0, 600), (503, 700.0, 700), (500, None, 0)],
)
def test_an_overloaded_receiver_is_left_alone(
    database: Database, status: int, retry_after_s: float | None, pause_s: float
) -> None:
    """After 429, 502, 504 or a Retry-After nothing at all is sent there for that time."""
    add_webhook(database, "job.cancelled")
    for _ in range(2):
        end_job(database)
    spread(database)
    (due,) = claim(database, most=1)
    outcome = receivers._failure(due, status, "", retry_after_s)
    assert outcome.pause_s == pause_s
    assert outcome.again_in_s >= max(pause_s, 5)
    record(database, due, outcome)
    assert len(claim(database)) == (0 if pause_s else 1)
    make_due(database)
    assert len(claim(database)) == (2 if pause_s else 1)


def test_a_webhook_goes_with_its_log(database: Database) -> None:
    """Removing a webhook removes what it was sent, and what it is owed."""
    webhook_id = add_webhook(database)
    end_job(database)
    spread(database)
    database.run(lambda connection: hooks.remove(connection, webhook_id))
    assert owed(database) == []
    with database.read() as connection:
        assert connection.execute(select(webhooks)).first() is None
        assert (
            connection.execute(select(cursors)).one().event_id
            == connection.execute(select(events.c.id).order_by(events.c.id.desc()).limit(1)).scalar_one()
        )


def test_the_log_forgets(database: Database) -> None:
    """What ended long ago leaves the log; what is owed stays."""
    add_webhook(database, "job.cancelled")
    end_job(database)
    end_job(database)
    spread(database)
    due = claim(database, most=1)[0]
    record(database, due, Outcome(hooks.DELIVERED, 200))
    assert database.run(lambda connection: hooks.forget(connection, older_than_s=100.0)) == 0
    assert database.run(lambda connection: hooks.forget(connection, older_than_s=-1.0)) == 1
    assert [row.state for row in owed(database)] == [hooks.PENDING]
