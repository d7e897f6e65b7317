"""Whose message to a webhook is next: fair between tenants, and cheap however many messages wait.

What is under way is counted by its leases, so that every process of the service counts the same. The next message is of
the tenant with the fewest under way, and among those of the one that was served longest ago: neither many messages nor
many slow receivers of one tenant hold up another.
"""

import heapq
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from sqlalchemy import Connection, func, or_, select, text, union_all

from voicejobs.store.database import now_s
from voicejobs.store.schema import LEASED, UNDELIVERED, cursors, deliveries, qualified, webhooks
from voicejobs.store.webhooks import ACTIVE, CURSOR, Due, claim, is_free

MOST_REMEMBERED: Final = 10_000
"""Tenants and webhooks whose last turn a process remembers; who is forgotten was served long ago."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Bound what is under way at once in all processes together, for one tenant and for one webhook; 0 does not."""

    per_tenant: int = 0
    per_webhook: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """Hold a webhook to which something is due, the first of it since `due_at`."""

    tenant: str
    webhook_id: str
    due_at: float


class Turns:
    """Remember in which order tenants and webhooks were served last."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._served: OrderedDict[tuple[str, str], int] = OrderedDict()

    def note(self, tenant: str, webhook_id: str) -> None:
        """Note that a message of a tenant goes to a webhook."""
        for name in ((tenant, ""), (tenant, webhook_id)):
            self._served[name] = next(self._numbers)
            self._served.move_to_end(name)
        while len(self._served) > MOST_REMEMBERED:
            self._served.popitem(last=False)

    def of(self, tenant: str, webhook_id: str = "") -> int:
        """Return a number that is the greater the later the tenant, or one of its webhooks, was served."""
        return self._served.get((tenant, webhook_id), 0)


@dataclass(frozen=True, slots=True)
class Flying:
    """Count the messages under way by tenant and by webhook."""

    tenants: Counter[str] = field(default_factory=Counter)
    webhooks: Counter[str] = field(default_factory=Counter)


def take_next(connection: Connection, *, most: int, caps: Caps, turns: Turns, lease_s: float) -> list[Due]:
    """Take leases on the messages that are next, and return them; one process at a time does so.

    Args:
        connection: where to ask, in a transaction that writes.
        most: messages in all.
        caps: what may be under way.
        turns: who was served when; the caller notes who is served now.
        lease_s: length of a lease, longer than an attempt may take.
    """
    # Two that count at the same moment would both find the same place free.
    connection.execute(select(cursors.c.name).where(cursors.c.name == CURSOR).with_for_update())
    ids = find_due(connection, most=most, caps=caps, turns=turns)
    return claim(connection, ids, lease_s=lease_s) if ids else []


def find_due(connection: Connection, *, most: int, caps: Caps, turns: Turns) -> list[str]:
    """Return the messages that are next, as `take_next` takes them."""
    waiting = _waiting(connection)
    if not waiting:
        return []
    wanted = choose(waiting, _flying(connection), most=most, caps=caps, turns=turns)
    return _first_of(connection, wanted) if wanted else []


def choose(waiting: Sequence[Waiting], flying: Flying, *, most: int, caps: Caps, turns: Turns) -> dict[str, int]:
    """Return how many messages each webhook gets now; those that get none are left out."""
    lanes: dict[str, list[tuple[int, int, float, str]]] = {}
    for one in waiting:
        under_way = flying.webhooks[one.webhook_id]
        if _has_room(under_way, caps.per_webhook):
            served = turns.of(one.tenant, one.webhook_id)
            lanes.setdefault(one.tenant, []).append((under_way, served, one.due_at, one.webhook_id))
    for lane in lanes.values():
        heapq.heapify(lane)
    tenants = [(flying.tenants[name], turns.of(name), lane[0][2], name) for name, lane in lanes.items()]
    heapq.heapify(tenants)
    wanted: Counter[str] = Counter()
    while tenants and wanted.total() < most:
        under_way, served, due_at, tenant = heapq.heappop(tenants)
        if not _has_room(under_way, caps.per_tenant):
            break  # the others have no fewer
        lane = lanes[tenant]
        of_webhook, last, due_since, webhook_id = heapq.heappop(lane)
        wanted[webhook_id] += 1
        if _has_room(of_webhook + 1, caps.per_webhook):
            heapq.heappush(lane, (of_webhook + 1, last, due_since, webhook_id))
        if lane:
            heapq.heappush(tenants, (under_way + 1, served, due_at, tenant))
    return dict(wanted)


def _has_room(under_way: int, most: int) -> bool:
    """Tell whether there may be one more."""
    return not most or under_way < most


def _waiting(connection: Connection) -> list[Waiting]:
    """Return the webhooks to which something is due: one step into the index for each, whatever is owed to it.

    The time is compared outside: Postgres would walk through all that is due later to compare it inside.
    """
    first = (
        select(deliveries.c.next_at)
        .where(deliveries.c.webhook_id == webhooks.c.id, text(qualified("deliveries", UNDELIVERED)), is_free())
        .order_by(deliveries.c.next_at, deliveries.c.id)
        .limit(1)
        .scalar_subquery()
    )
    able = (
        select(webhooks.c.tenant, webhooks.c.id, first.label("due_at"))
        .where(
            webhooks.c.state == ACTIVE,
            or_(webhooks.c.paused_until.is_(None), webhooks.c.paused_until <= now_s()),
        )
        .subquery()
    )
    query = select(able.c.tenant, able.c.id, able.c.due_at).where(able.c.due_at <= now_s())
    return [Waiting(*row) for row in connection.execute(query)]


def _flying(connection: Connection) -> Flying:
    """Count what is under way in all processes; there is an index of the few rows that have a lease."""
    query = (
        select(webhooks.c.tenant, deliveries.c.webhook_id, func.count())
        .join(webhooks, webhooks.c.id == deliveries.c.webhook_id)
        .where(text(qualified("deliveries", LEASED)), deliveries.c.lease_until > now_s())
        .group_by(webhooks.c.tenant, deliveries.c.webhook_id)
    )
    flying = Flying()
    for tenant, webhook_id, number in connection.execute(query):
        flying.tenants[tenant] += number
        flying.webhooks[webhook_id] += number
    return flying


def _first_of(connection: Connection, wanted: Mapping[str, int]) -> list[str]:
    """Return so many messages of each of these webhooks, the first that are due."""
    parts: Iterable[Any] = (
        select(
            select(deliveries.c.id, deliveries.c.next_at)
            .where(deliveries.c.webhook_id == webhook_id, text(UNDELIVERED), is_free())
            .order_by(deliveries.c.next_at, deliveries.c.id)
            .limit(number)
            .subquery(f"of_{place}")
        )
        for place, (webhook_id, number) in enumerate(sorted(wanted.items()))
    )
    found = union_all(*parts).subquery("found")
    query = select(found.c.id).where(found.c.next_at <= now_s()).order_by(found.c.next_at, found.c.id)
    return list(connection.execute(query).scalars())
