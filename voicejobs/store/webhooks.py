"""Webhooks, what is owed to them, and what became of it.

An event becomes a delivery for each webhook that wants it in the transaction that moves the cursor behind it: exactly
once, whoever spreads and whenever he dies. A delivery is sent under a lease, which its number of attempts fences: what
is owed by a process that died is sent again, with the same id.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, or_, select, text, update
from sqlalchemy.dialects import postgresql, sqlite

from voicejobs.store import events
from voicejobs.store.database import now_s
from voicejobs.store.events import Cursor, Event
from voicejobs.store.ids import new_id
from voicejobs.store.schema import UNDELIVERED, batches, cursors, deliveries, jobs, webhooks

CURSOR: Final = "webhooks"
ACTIVE, DISABLED = "active", "disabled"
PENDING, DELIVERED, FAILED, DROPPED = "pending", "delivered", "failed", "dropped"
TEST_TYPE: Final = "webhook.test"
TYPES: Final = (
    "job.succeeded", "job.failed", "job.cancelled", "job.expired",
    "batch.completed", "batch.failed", "batch.cancelled", "batch.expired",
)  # fmt: skip
"""What webhooks hear of: the ends of jobs and of batches."""
SINGLE: Final = "single"

Body = Callable[[Event, Mapping[str, Any]], str]
"""Writes what is sent for an event; the mapping has the `trace_id` of its job."""


@dataclass(frozen=True, slots=True)
class Due:
    """Hold a delivery whose lease is ours; `attempt` is its number, from 1, and the fence of what becomes of it."""

    id: str
    tenant: str
    webhook_id: str
    url: str
    generation: int
    rotated_at: float | None
    event_id: str
    type: str
    body: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Tell what became of an attempt.

    Args:
        state: `delivered`, `failed`, or `pending` where it is to be tried again.
        status_code: what the receiver answered; None where it did not.
        error: what went wrong, in a sentence.
        again_in_s: seconds until the next attempt.
        pause_s: seconds for which nothing at all is sent to the webhook.
        disable: why the webhook is not told any more; empty where it is.
    """

    state: str
    status_code: int | None = None
    error: str = ""
    again_in_s: float = 0.0
    pause_s: float = 0.0
    disable: str = ""


def add_one_at_a_time(connection: Connection) -> None:
    """Let no other transaction add a webhook, or spread events, until this one ends: what is counted stays true."""
    if _locked_cursor(connection) is None:
        _locked_cursor(connection)  # who has made the cursor is not the one who has it locked, where two did so at once


def add(connection: Connection, *, tenant: str, url: str, types: Sequence[str]) -> str:
    """Insert a webhook and return its id; from now on at the latest there is a cursor."""
    _locked_cursor(connection)
    webhook_id = new_id("wh")
    connection.execute(
        insert(webhooks).values(
            id=webhook_id,
            tenant=tenant,
            url=url,
            types=json.dumps(list(types)),
            state=ACTIVE,
            generation=1,
            created_at=now_s(),
        )
    )
    return webhook_id


def get(connection: Connection, webhook_id: str, *, tenant: str, lock: bool = False) -> Any | None:
    """Return the row of a webhook of a tenant, None where there is none."""
    query = select(webhooks).where(webhooks.c.id == webhook_id, webhooks.c.tenant == tenant)
    return connection.execute(query.with_for_update() if lock else query).first()


def count(connection: Connection, tenant: str) -> int:
    """Return how many webhooks a tenant has."""
    return int(connection.execute(select(func.count()).where(webhooks.c.tenant == tenant)).scalar_one())


def of_tenant(connection: Connection, tenant: str) -> list[Any]:
    """Return the webhooks of a tenant, the oldest first."""
    query = select(webhooks).where(webhooks.c.tenant == tenant).order_by(webhooks.c.id)
    return list(connection.execute(query))


def count_pending(connection: Connection, webhook_ids: Sequence[str]) -> dict[str, int]:
    """Return how many deliveries are owed to each of these webhooks; those to which none is are left out."""
    query = (
        select(deliveries.c.webhook_id, func.count())
        .where(deliveries.c.webhook_id.in_(webhook_ids), text(UNDELIVERED))
        .group_by(deliveries.c.webhook_id)
    )
    return {row[0]: row[1] for row in connection.execute(query)}


def change(connection: Connection, webhook_id: str, values: Mapping[str, Any]) -> None:
    """Change columns of a webhook."""
    connection.execute(update(webhooks).where(webhooks.c.id == webhook_id).values(**values))


def remove(connection: Connection, webhook_id: str) -> None:
    """Remove a webhook, and the log of its deliveries with it."""
    connection.execute(delete(deliveries).where(deliveries.c.webhook_id == webhook_id))
    connection.execute(delete(webhooks).where(webhooks.c.id == webhook_id))


def drop_pending(connection: Connection, webhook_id: str, reason: str) -> int:
    """Give up what is owed to a webhook; return how many deliveries that were."""
    return int(
        connection.execute(
            update(deliveries)
            .where(deliveries.c.webhook_id == webhook_id, text(UNDELIVERED))
            .values(state=DROPPED, error=reason, lease_until=None, finished_at=now_s())
        ).rowcount
    )


def is_behind(connection: Connection) -> bool:
    """Tell whether there are events that have not become deliveries yet."""
    row = connection.execute(select(cursors).where(cursors.c.name == CURSOR)).first()
    return row is None or bool(events.read(connection, Cursor(row.tx, row.event_id), limit=1))


def spread(connection: Connection, body: Body, *, limit: int = 500) -> int:
    """Make deliveries of the next events, and move the cursor behind them; return how many events that were.

    Where there is no cursor yet it is only set: a webhook hears of what ends after it was made.
    """
    place = _locked_cursor(connection)
    if place is None:
        return 0
    found = events.read(connection, place, limit=limit)
    if not found:
        return 0
    wanted = [event for event in found if event.type in TYPES]
    receivers = _receivers(connection, {event.tenant for event in wanted})
    facts = _facts(connection, [event for event in wanted if event.tenant in receivers])
    rows = [
        _delivery(webhook_id, event, body(event, facts[event.id]))
        for event in wanted
        for webhook_id in _listening(event, receivers.get(event.tenant, ()), facts.get(event.id))
    ]
    _insert_new(connection, rows)
    last = found[-1].cursor
    connection.execute(update(cursors).where(cursors.c.name == CURSOR).values(tx=last.tx, event_id=last.id))
    return len(found)


def _locked_cursor(connection: Connection) -> Cursor | None:
    """Return the place up to which events are spread, its row locked; None where it was only made now."""
    query = select(cursors).where(cursors.c.name == CURSOR).with_for_update()
    row = connection.execute(query).first()
    if row is not None:
        return Cursor(row.tx, row.event_id)
    newest = events.newest(connection)
    values = {"name": CURSOR, "tx": newest.tx, "event_id": newest.id}
    _insert_unless_there(connection, cursors, [values], ["name"])
    return None


def _receivers(connection: Connection, tenants: Collection[str]) -> dict[str, list[tuple[str, frozenset[str]]]]:
    """Return id and types of the active webhooks of these tenants, by tenant."""
    query = (
        select(webhooks.c.tenant, webhooks.c.id, webhooks.c.types)
        .where(webhooks.c.tenant.in_(sorted(tenants)), webhooks.c.state == ACTIVE)
        .order_by(webhooks.c.id)
    )
    found: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for row in connection.execute(query):
        found.setdefault(row.tenant, []).append((row.id, frozenset(json.loads(row.types))))
    return found


def _facts(connection: Connection, wanted: Sequence[Event]) -> dict[int, dict[str, Any]]:
    """Return by event what its rows say: the webhooks that are to hear of it, trace id, kind of its batch."""
    of_jobs = {
        row.id: row
        for row in connection.execute(
            select(jobs.c.id, jobs.c.request, jobs.c.trace_id).where(
                jobs.c.id.in_({event.job_id for event in wanted if event.job_id})
            )
        )
    }
    of_batches = {
        row.id: row
        for row in connection.execute(
            select(batches.c.id, batches.c.request, batches.c.kind).where(
                batches.c.id.in_({event.batch_id for event in wanted})
            )
        )
    }
    facts: dict[int, dict[str, Any]] = {}
    for event in wanted:
        job, batch = of_jobs.get(event.job_id), of_batches.get(event.batch_id)
        requests = [json.loads(row.request) for row in (job, batch) if row is not None and row.request]
        ids = next((request["webhook_ids"] for request in requests if request.get("webhook_ids")), None)
        facts[event.id] = {
            "webhook_ids": ids,
            "trace_id": "" if job is None else job.trace_id,
            "kind": "" if batch is None else batch.kind,
        }
    return facts


def _listening(
    event: Event, receivers: Iterable[tuple[str, frozenset[str]]], facts: Mapping[str, Any] | None
) -> list[str]:
    """Return the webhooks that hear of an event: those that the request named, else all that want its type."""
    if facts is None or (event.job_id is None and facts["kind"] == SINGLE):
        return []  # the batch that a single job has for itself is no business of anybody
    named = facts["webhook_ids"]
    return [name for name, types in receivers if event.type in types and (named is None or name in named)]


def _delivery(webhook_id: str, event: Event, body: str) -> dict[str, Any]:
    """Return the row of a delivery that is due at once."""
    return {
        "id": new_id("dlv"),
        "webhook_id": webhook_id,
        "event_id": event.public_id,
        "type": event.type,
        "body": body,
        "state": PENDING,
        "next_at": 0.0,
        "created_at": event.created_at,
    }


def _insert_new(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert deliveries; one that is there for this webhook and event already stays as it is."""
    _insert_unless_there(connection, deliveries, rows, ["webhook_id", "event_id"])


def _insert_unless_there(
    connection: Connection, table: Any, rows: Sequence[Mapping[str, Any]], unique: Sequence[str]
) -> None:
    """Insert rows whose unique columns no row has yet."""
    if rows:
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        connection.execute(dialect.insert(table).on_conflict_do_nothing(index_elements=list(unique)), list(rows))


def add_test(connection: Connection, webhook_id: str, event_id: str, body: str, *, lease_s: float) -> str:
    """Insert the delivery of a test, whose lease the caller has; return its id."""
    delivery_id = new_id("dlv")
    connection.execute(
        insert(deliveries).values(
            id=delivery_id,
            webhook_id=webhook_id,
            event_id=event_id,
            type=TEST_TYPE,
            body=body,
            state=PENDING,
            attempts=1,
            next_at=now_s(),
            lease_until=now_s() + lease_s,
            created_at=now_s(),
        )
    )
    return delivery_id


def claim(connection: Connection, ids: Sequence[str], *, lease_s: float) -> list[Due]:
    """Take leases on deliveries and return those that nobody else was faster to take.

    Args:
        connection: where to ask.
        ids: deliveries that were due a moment ago.
        lease_s: length of a lease, longer than an attempt may take.
    """
    taken = connection.execute(
        update(deliveries)
        .where(deliveries.c.id.in_(ids), text(UNDELIVERED), is_free())
        .values(lease_until=now_s() + lease_s, attempts=deliveries.c.attempts + 1)
        .returning(deliveries.c.id)
    )
    return _due(connection, list(taken.scalars()))


def is_free() -> ColumnElement[bool]:
    """Tell whether nobody sends a delivery now."""
    return or_(deliveries.c.lease_until.is_(None), deliveries.c.lease_until <= now_s())


def _due(connection: Connection, ids: Sequence[str]) -> list[Due]:
    """Return what is needed to send these deliveries."""
    query = (
        select(
            deliveries.c.id,
            webhooks.c.tenant,
            deliveries.c.webhook_id,
            webhooks.c.url,
            webhooks.c.generation,
            webhooks.c.rotated_at,
            deliveries.c.event_id,
            deliveries.c.type,
            deliveries.c.body,
            deliveries.c.attempts,
        )
        .join(webhooks, webhooks.c.id == deliveries.c.webhook_id)
        .where(deliveries.c.id.in_(ids))
        .order_by(deliveries.c.id)
    )
    found: Iterable[Any] = connection.execute(query)
    return [Due(*row) for row in found]


def due_one(connection: Connection, delivery_id: str) -> Due | None:
    """Return what is needed to send one delivery, None where it is gone."""
    found = _due(connection, [delivery_id])
    return found[0] if found else None


def record(connection: Connection, due: Due, outcome: Outcome) -> bool:
    """Write down what became of an attempt; False where its lease had run out and another attempt has begun."""
    ended = outcome.state != PENDING
    changed = connection.execute(
        update(deliveries)
        .where(deliveries.c.id == due.id, deliveries.c.attempts == due.attempt, text(UNDELIVERED))
        .values(
            state=outcome.state,
            status_code=outcome.status_code,
            error=outcome.error or None,
            lease_until=None,
            next_at=now_s() + outcome.again_in_s,
            finished_at=now_s() if ended else None,
        )
    )
    if changed.rowcount != 1:
        return False
    if outcome.pause_s:
        change(connection, due.webhook_id, {"paused_until": now_s() + outcome.pause_s})
    if outcome.disable:
        disable(connection, due.webhook_id, outcome.disable)
    return True


def disable(connection: Connection, webhook_id: str, reason: str) -> None:
    """Tell a webhook nothing any more, and give up what is owed to it."""
    change(connection, webhook_id, {"state": DISABLED, "reason": reason})
    drop_pending(connection, webhook_id, "the webhook was disabled")


def of_webhook(webhook_id: str, *, state: str = "") -> Any:
    """Return the query of the deliveries of a webhook, those in one state where it is given."""
    query = select(deliveries).where(deliveries.c.webhook_id == webhook_id)
    return query.where(deliveries.c.state == state) if state else query


def delivery(connection: Connection, webhook_id: str, delivery_id: str) -> Any | None:
    """Return the row of a delivery of a webhook, None where there is none."""
    query = select(deliveries).where(deliveries.c.id == delivery_id, deliveries.c.webhook_id == webhook_id)
    return connection.execute(query).first()


def send_again(connection: Connection, delivery_id: str) -> bool:
    """Owe a delivery that has ended once more, from its first attempt on; False where it has not ended."""
    changed = connection.execute(
        update(deliveries)
        .where(deliveries.c.id == delivery_id, deliveries.c.state != PENDING)
        .values(
            state=PENDING, attempts=0, next_at=now_s(), lease_until=None, status_code=None, error=None, finished_at=None
        )
    )
    return bool(changed.rowcount == 1)


def forget(connection: Connection, *, older_than_s: float) -> int:
    """Remove deliveries that ended longer ago than that; return how many."""
    ended = and_(deliveries.c.finished_at.is_not(None), deliveries.c.finished_at < now_s() - older_than_s)
    return int(connection.execute(delete(deliveries).where(ended)).rowcount)
