"""What happened to watched jobs and batches, read in an order in which nothing can appear behind a reader.

Triggers write the rows. On Postgres transactions commit in another order than they begin, so that rows count as final,
and are shown, once every transaction up to theirs has ended; they are read in the order of (transaction, id). SQLite
has one writer at a time, and ids decide. The newest event stays, whatever its age: SQLite gives ids anew from the
greatest that is there, and a reader whose place lies above would hear of nothing more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    and_,
    delete,
    exists,
    func,
    literal,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)

from voicejobs.errors import BadOption
from voicejobs.store.database import now_s
from voicejobs.store.schema import cursors, events

PREFIX: Final = "evt_"
ID_DIGITS: Final = 16
_LAST: Final = (1 << 63) - 1
_XMIN: Final[ColumnElement[int]] = literal_column("pg_snapshot_xmin(pg_current_snapshot())::text::bigint", BigInteger)
"""The oldest transaction under way: nothing below it can still appear."""
_XMAX: Final[ColumnElement[int]] = literal_column("pg_snapshot_xmax(pg_current_snapshot())::text::bigint", BigInteger)
"""The first transaction that has not ended: no row that can be seen was written by it, or by a later one."""
_AGED: Final = 7 * 86_400.0


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """Say up to which event somebody has read; the least one is before all events."""

    tx: int = 0
    id: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """Tell that a job or a batch has come into a state; `type` is `job.succeeded`, `batch.completed` and the like."""

    id: int
    tx: int
    tenant: str
    type: str
    batch_id: str
    job_id: str | None
    created_at: float

    @property
    def cursor(self) -> Cursor:
        """Return the place right behind it."""
        return Cursor(self.tx, self.id)

    @property
    def public_id(self) -> str:
        """Return `evt_` and 16 hexadecimal digits."""
        return f"{PREFIX}{self.id:0{ID_DIGITS}x}"

    @property
    def state(self) -> str:
        """Return the state that the job or the batch has come into."""
        return self.type.partition(".")[2]


@dataclass(frozen=True, slots=True)
class Scope:
    """Choose events: those of a tenant, and of a job or a batch of it; an empty name chooses all."""

    tenant: str = ""
    job_id: str = ""
    batch_id: str = ""

    def has(self, event: Event) -> bool:
        """Tell whether an event is one of those."""
        return (
            (not self.tenant or event.tenant == self.tenant)
            and (not self.job_id or event.job_id == self.job_id)
            and (not self.batch_id or event.batch_id == self.batch_id)
        )


ALL: Final = Scope()


def newest(connection: Connection) -> Cursor:
    """Return the place behind all events that are final now."""
    if connection.dialect.name == "postgresql":
        return Cursor(int(connection.execute(select(_XMIN)).scalar_one()) - 1, _LAST)
    return Cursor(0, int(connection.execute(select(func.coalesce(func.max(events.c.id), 0))).scalar_one()))


def read(connection: Connection, after: Cursor, scope: Scope = ALL, *, limit: int = 500) -> list[Event]:
    """Return the final events behind a place, in order, `limit` at most."""
    query = (
        select(
            events.c.id,
            events.c.tx,
            events.c.tenant,
            events.c.type,
            events.c.batch_id,
            events.c.job_id,
            events.c.created_at,
        )
        .where(_behind(connection, after))
        .order_by(events.c.tx, events.c.id)
        .limit(limit)
    )
    for column, wanted in (("tenant", scope.tenant), ("job_id", scope.job_id), ("batch_id", scope.batch_id)):
        if wanted:
            query = query.where(events.c[column] == wanted)
    if connection.dialect.name == "postgresql":
        query = query.where(events.c.tx < _XMIN)
    return [Event(*row) for row in connection.execute(query)]


def _behind(connection: Connection, after: Cursor) -> ColumnElement[bool]:
    """Tell which rows lie behind a place, in the words by which each database begins there in the index."""
    if connection.dialect.name == "postgresql":
        return tuple_(events.c.tx, events.c.id) > tuple_(literal(after.tx), literal(after.id))
    return and_(events.c.tx == 0, events.c.id > after.id)


def place_of(connection: Connection, public_id: str) -> Cursor | None:
    """Return the place right behind an event; None where it is not kept any more.

    Raises:
        BadOption: that is no id of an event.
    """
    number = number_of(public_id)
    row = connection.execute(select(events.c.tx, events.c.id).where(events.c.id == number)).first()
    return None if row is None else Cursor(row.tx, row.id)


def number_of(public_id: str) -> int:
    """Return the number in the id of an event.

    Raises:
        BadOption: that is no id of an event.
    """
    digits = public_id.removeprefix(PREFIX)
    if digits == public_id or len(digits) != ID_DIGITS or not set(digits) <= set("0123456789abcdef"):
        raise BadOption(f"{public_id!r} is no id of an event", hint="Send the last id that you have read, or none.")
    number = int(digits, 16)
    if number > _LAST:
        raise BadOption(f"{public_id!r} is no id of an event", hint="Send the last id that you have read, or none.")
    return number


def newest_of(connection: Connection, scope: Scope, *, limit: int = 100) -> Sequence[Event]:
    """Return the last events of a scope, in order."""
    query = select(
        events.c.id,
        events.c.tx,
        events.c.tenant,
        events.c.type,
        events.c.batch_id,
        events.c.job_id,
        events.c.created_at,
    ).order_by(events.c.tx.desc(), events.c.id.desc())
    for column, wanted in (("tenant", scope.tenant), ("job_id", scope.job_id), ("batch_id", scope.batch_id)):
        if wanted:
            query = query.where(events.c[column] == wanted)
    if connection.dialect.name == "postgresql":
        query = query.where(events.c.tx < _XMIN)
    return [Event(*row) for row in connection.execute(query.limit(limit))][::-1]


def adopt(connection: Connection) -> bool:
    """Let events be read that another server has written, from which this database was restored; tell if there were.

    A server counts its transactions from the beginning: events of a dump may lie far ahead of its own, where nobody
    would see them, and readers whose place lies there would see nothing new. They are put before all of its own.
    """
    if connection.dialect.name != "postgresql":
        return False
    is_ahead = exists(select(literal(1)).where(events.c.tx >= _XMAX))
    readers = connection.execute(select(cursors).where(cursors.c.tx >= _XMAX).with_for_update()).all()
    if not readers and not connection.execute(select(is_ahead)).scalar():
        return False
    last_id = connection.execute(select(func.max(events.c.id)).where(events.c.tx >= _XMAX)).scalar() or 0
    for reader in readers:
        unread = or_(
            events.c.id > last_id,
            and_(events.c.tx >= _XMAX, tuple_(events.c.tx, events.c.id) > tuple_(reader.tx, reader.event_id)),
        )
        # In the order of ids it may hear again what it has heard, and misses nothing.
        first = connection.execute(select(func.min(events.c.id)).where(unread)).scalar()
        place = (last_id if first is None else min(first - 1, last_id)) or 0
        connection.execute(update(cursors).where(cursors.c.name == reader.name).values(tx=0, event_id=place))
    connection.execute(update(events).where(events.c.tx >= _XMAX).values(tx=0))
    return True


def past(before: ColumnElement[float]) -> ColumnElement[bool]:
    """Tell which events may go: those from before a time that every reader who must miss nothing has read."""
    others = events.alias("others")
    newest_id = select(func.max(others.c.id)).scalar_subquery()
    behind = or_(cursors.c.tx < events.c.tx, and_(cursors.c.tx == events.c.tx, cursors.c.event_id < events.c.id))
    return and_(events.c.created_at < before, events.c.id < newest_id, ~exists(select(literal(1)).where(behind)))


def forget(connection: Connection, *, older_than_s: float = _AGED) -> int:
    """Remove events that are older than any reader needs; return how many."""
    return int(connection.execute(delete(events).where(past(now_s() - older_than_s))).rowcount)
