"""Whose message to a webhook is next: fair between tenants, counted over all processes, and cheap."""

from collections import Counter
from typing import Any

import pytest
from sqlalchemy import event, insert, update

from tests import rows
from voicejobs.errors import QuotaReached
from voicejobs.receivers import MOST_PER_TENANT, Receivers
from voicejobs.settings import Settings
from voicejobs.store import webhooks as hooks
from voicejobs.store.database import Database
from voicejobs.store.ids import new_id
from voicejobs.store.schema import deliveries
from voicejobs.store.turns import Caps, Flying, Turns, Waiting, choose, find_due, take_next
from voicejobs.store.webhooks import Due, Outcome

CAPS = Caps(per_tenant=4, per_webhook=2)


def add_webhook(database: Database, tenant: str) -> str:
    """Insert a webhook."""
    url = "https://receiver.example/"
    return database.run(lambda connection: hooks.add(connection, tenant=tenant, url=url, types=hooks.TYPES))


def owe(database: Database, webhook_id: str, count: int, **values: Any) -> None:
    """Insert so many deliveries that are due."""
    row = {
        "webhook_id": webhook_id,
        "type": "job.succeeded",
        "body": '{"data":{}}',
        "state": hooks.PENDING,
        "next_at": 0.0,
        "created_at": 0.0,
        **values,
    }
    with database.begin() as connection:
        connection.execute(
            insert(deliveries), [{**row, "id": new_id("dlv"), "event_id": new_id("evt")} for _ in range(count)]
        )


def take(
    database: Database, *, most: int = 16, caps: Caps = CAPS, turns: Turns | None = None, lease_s: float = 1000.0
) -> list[Due]:
    """Take leases on what is next, as a process of the service does."""
    turns = turns or Turns()
    found = database.run(lambda connection: take_next(connection, most=most, caps=caps, turns=turns, lease_s=lease_s))
    for due in found:
        turns.note(due.tenant, due.webhook_id)
    return found


def deliver(database: Database, due: Due) -> None:
    """Note that a message has arrived."""
    assert database.run(lambda connection: hooks.record(connection, due, Outcome(hooks.DELIVERED, 200)))


def test_one_tenant_leaves_places_to_others(database: Database) -> None:
    """However many receivers of one tenant are slow, it has so many messages under way and no more."""
    for _ in range(10):
        owe(database, add_webhook(database, "many"), 5)
    few = add_webhook(database, "few")
    first = take(database)
    assert Counter(due.tenant for due in first) == {"many": CAPS.per_tenant}
    assert len({due.webhook_id for due in first}) == CAPS.per_tenant
    assert take(database) == []
    owe(database, few, 1)
    assert [due.webhook_id for due in take(database, most=1)] == [few]


def test_processes_count_together(database: Database) -> None:
    """Six that take at the same moment, each in another order, take for a tenant and a webhook what one may."""
    hooks_of_one = [add_webhook(database, "one") for _ in range(12)]
    for webhook_id in hooks_of_one:
        owe(database, webhook_id, 20)

    def take_in_turn(number: int) -> list[Due]:
        turns = Turns()
        for place in range(12):
            turns.note("one", hooks_of_one[(place + 2 * number) % 12])
        return take(database, turns=turns)

    taken = [due for found in rows.at_once(6, take_in_turn) for due in found]
    assert len(taken) == CAPS.per_tenant
    assert max(Counter(due.webhook_id for due in taken).values()) <= CAPS.per_webhook


def test_what_is_over_makes_room(database: Database) -> None:
    """A message that has ended, and one whose lease has run out, leave their places."""
    owe(database, add_webhook(database, "one"), 10)
    first, second = take(database)
    assert take(database) == []
    deliver(database, first)
    assert len(take(database)) == 1
    with database.begin() as connection:
        connection.execute(update(deliveries).where(deliveries.c.id == second.id).values(lease_until=0.0))
    assert len(take(database)) == 1


def test_the_tenant_with_the_fewest_under_way_is_next(database: Database) -> None:
    """Free places go to whoever has least, also where another has waited longer."""
    for tenant in ("old", "new"):
        for _ in range(3):
            owe(database, add_webhook(database, tenant), 5)
    assert Counter(due.tenant for due in take(database, most=4)) == {"old": 2, "new": 2}


def test_who_was_served_waits_for_the_others(database: Database) -> None:
    """With one place and quick receivers, tenants take turns, and so do the webhooks of each."""
    places = [("first", 1), ("second", 2)]
    for tenant, number in places:
        for _ in range(number):
            owe(database, add_webhook(database, tenant), 50)
    turns = Turns()
    served: list[Due] = []
    for _ in range(8):
        (due,) = take(database, most=1, turns=turns)
        deliver(database, due)
        served.append(due)
    assert [one.tenant for one in served] in (["first", "second"] * 4, ["second", "first"] * 4)
    assert set(Counter(due.webhook_id for due in served).values()) == {2, 4}


def test_turns_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of who was served has an end; the oldest is forgotten first."""
    monkeypatch.setattr("voicejobs.store.turns.MOST_REMEMBERED", 4)
    turns = Turns()
    for name in ("a", "b", "c"):
        turns.note(name, "wh")
    assert (turns.of("a"), turns.of("a", "wh")) == (0, 0)
    assert turns.of("b") < turns.of("c")


def test_without_caps_all_is_taken() -> None:
    """0 sets no limit."""
    waiting = [Waiting("one", "a", 0.0), Waiting("one", "b", 0.0)]
    flying = Flying(Counter(one=100), Counter(a=50, b=50))
    assert choose(waiting, flying, most=6, caps=Caps(), turns=Turns()) == {"a": 3, "b": 3}
    assert choose(waiting, flying, most=6, caps=Caps(100, 60), turns=Turns()) == {}


@pytest.fixture
def crowded(database: Database) -> Database:
    """Return a database with webhooks to which thousands of messages are owed, now and later."""
    for number in range(20):
        webhook_id = add_webhook(database, f"tenant{number % 5}")
        owe(database, webhook_id, 300)
        owe(database, webhook_id, 300, next_at=1e12)
    later = add_webhook(database, "later")
    owe(database, later, 3000, next_at=1e12)
    owe(database, add_webhook(database, "other"), 3, lease_until=1e12)
    with database.begin() as connection:
        connection.exec_driver_sql("ANALYZE")
    return database


def test_looking_costs_little_however_much_is_owed(crowded: Database) -> None:
    """Each query steps into an index for each webhook, and reads neither what waits behind nor what is due later."""
    asked: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        asked.append((statement, parameters))

    with crowded.read() as connection:
        event.listen(connection, "before_cursor_execute", note)
        found = find_due(connection, most=16, caps=CAPS, turns=Turns())
        event.remove(connection, "before_cursor_execute", note)
        assert len(found) == 16
        assert len(asked) == 3
        for statement, parameters in asked:
            if crowded.is_sqlite:
                plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
                steps = [row.detail for row in plan if "deliveries" in row.detail]
                assert steps
                assert all("USING INDEX ix_deliveries_" in step or "USING COVERING INDEX" in step for step in steps), (
                    steps
                )
                assert not [step for step in steps if step.startswith("SCAN") and "leased" not in step], steps
            else:
                told: Any = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
                assert read_rows(told.scalar_one()[0]["Plan"]) < 200


def read_rows(plan: dict[str, Any]) -> float:
    """Return how many rows of deliveries a plan of Postgres has read, those that it threw away included."""
    own = 0.0
    if plan.get("Relation Name") == "deliveries":
        own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return own + sum(read_rows(part) for part in plan.get("Plans", ()))


def test_two_that_are_made_at_once_stay_within_the_number(database: Database, store_url: str, tmp_path: Any) -> None:
    """Of many webhooks that are made at the same moment so many are made as a tenant may have."""
    settings = Settings.from_env({"HOME": str(tmp_path), "VOICEJOBS_WEBHOOK_SECRET": "s" * 40})
    receivers = Receivers(settings, database)
    for _ in range(MOST_PER_TENANT - 2):
        add_webhook(database, "one")

    def make(number: int) -> int:
        try:
            receivers.add("one", "https://receiver.example/")
        except QuotaReached:
            return 0
        return 1

    assert sum(rows.at_once(8, make)) == 2
    with database.read() as connection:
        assert hooks.count(connection, "one") == MOST_PER_TENANT
