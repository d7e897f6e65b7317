"""Webhooks of a tenant: make, change, test and remove them, and make one attempt to tell one of them something."""

import json
import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final

from sqlalchemy import Connection

from voicejobs.errors import AddressRefused, AddressUnavailable, BadOption, NoSuchRecord, QuotaReached, WrongState
from voicejobs.outbound import signing
from voicejobs.outbound.address import Policy, Resolver, resolve
from voicejobs.settings import Settings
from voicejobs.store import webhooks as rows
from voicejobs.store.database import Database, now_s
from voicejobs.store.events import Event
from voicejobs.store.ids import new_id
from voicejobs.store.webhooks import Due, Outcome

logger = logging.getLogger(__name__)

DELAYS_S: Final = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Times between the attempts at a delivery, of which there is one more than there are delays."""
JITTER = 0.2
"""Share by which a delay may be longer, so that what failed together does not come again together."""
PAUSE_S = 60.0
"""How long a receiver is left alone that is overloaded and does not say for how long."""
ROTATION_S = 86_400.0
"""Time after a rotation in which messages are signed with the old secret as well."""
LEASE_MARGIN_S = 5.0
"""A lease outlives the time that a receiver has by this much."""
MOST_PER_TENANT = 50
MAX_BODY_BYTES = 20_000
MAX_ERROR_CHARS = 300
_OVERLOADED = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT})


@dataclass(frozen=True, slots=True)
class Made:
    """Hold a webhook and its secret, which is shown now and never again."""

    webhook: Any
    secret: str


@dataclass(frozen=True)
class Receivers:
    """Keep the webhooks of one installation.

    Args:
        settings: which addresses may be told, what secrets are derived from.
        database: the store.
        resolver: gives the addresses of a host.
    """

    settings: Settings
    database: Database
    resolver: Resolver = resolve

    @cached_property
    def _installation(self) -> bytes:
        """Return what all secrets are derived from."""
        return signing.installation_secret(self.settings)

    @cached_property
    def _policy(self) -> Policy:
        """Return which addresses may be told."""
        return Policy.of_webhooks(self.settings)

    @property
    def lease_s(self) -> float:
        """Return the length of a lease on a delivery."""
        return self.settings.webhook_timeout_s + LEASE_MARGIN_S

    def check(self) -> None:
        """Do nothing where the settings can be used.

        Raises:
            BadOption: one has the wrong form.
        """
        self._policy  # noqa: B018 - reading it is the check
        signing.check_setting(self.settings)

    def require_secret(self) -> None:
        """Do nothing where there is a secret of the installation to derive others from.

        Raises:
            SecretUnusable: there is none.
        """
        self._installation  # noqa: B018 - reading it is the check

    def _target(self, url: str) -> str:
        """Return the address of a webhook in its plain form.

        Raises:
            AddressRefused: it may not be told.
        """
        try:
            return str(self._policy.check(url))
        except AddressRefused as error:
            error.details["param"] = "url"
            raise

    def add(self, tenant: str, url: str, types: Sequence[str] = ()) -> Made:
        """Make a webhook that hears of these types of events, of all where none is named.

        Raises:
            AddressRefused: the address may not be told.
            BadOption: there is no such type.
            SecretUnusable: there is no secret to derive from.
            QuotaReached: the tenant has as many as it may have.
        """
        target = self._target(url)
        wanted = expanded(types)
        self.require_secret()  # where there is none, nothing is made

        def insert(connection: Connection) -> Any:
            rows.add_one_at_a_time(connection)
            if rows.count(connection, tenant) >= MOST_PER_TENANT:
                raise QuotaReached(f"There are {MOST_PER_TENANT} webhooks already", hint="Remove one first.")
            webhook_id = rows.add(connection, tenant=tenant, url=target, types=wanted)
            return rows.get(connection, webhook_id, tenant=tenant)

        row = self.database.run(insert)
        return Made(row, self._secret(row.id, row.generation))

    def get(self, tenant: str, webhook_id: str) -> Any:
        """Return the row of a webhook.

        Raises:
            NoSuchRecord: the tenant has none with this id.
        """
        with self.database.read() as connection:
            return _demand(connection, tenant, webhook_id)

    def change(self, tenant: str, webhook_id: str, changes: Mapping[str, Any]) -> Any:
        """Change `url`, `types` or `enabled` of a webhook and return its row.

        One that is enabled again hears of what ends from now on; what it missed can be delivered again by hand.

        Raises:
            NoSuchRecord, AddressRefused, BadOption: as their names say.
        """
        values: dict[str, Any] = {}
        if changes.get("url") is not None:
            values["url"] = self._target(changes["url"])
        if changes.get("types") is not None:
            values["types"] = json.dumps(expanded(changes["types"]))
        if changes.get("enabled") is True:
            values |= {"state": rows.ACTIVE, "reason": None, "paused_until": None}

        def act(connection: Connection) -> Any:
            _demand(connection, tenant, webhook_id, lock=True)
            if values:
                rows.change(connection, webhook_id, values)
            if changes.get("enabled") is False:
                rows.disable(connection, webhook_id, "it was disabled by hand")
            return _demand(connection, tenant, webhook_id)

        return self.database.run(act)

    def remove(self, tenant: str, webhook_id: str) -> None:
        """Remove a webhook and the log of its deliveries.

        Raises:
            NoSuchRecord: the tenant has none with this id.
        """

        def act(connection: Connection) -> None:
            _demand(connection, tenant, webhook_id, lock=True)
            rows.remove(connection, webhook_id)

        self.database.run(act)

    def rotate(self, tenant: str, webhook_id: str) -> Made:
        """Give a webhook a new secret; for a day messages are signed with the old one as well.

        Raises:
            NoSuchRecord: the tenant has none with this id.
            SecretUnusable: there is no secret to derive from.
        """
        self.require_secret()  # or the new one would count, and nobody would have seen it

        def act(connection: Connection) -> Any:
            row = _demand(connection, tenant, webhook_id, lock=True)
            rows.change(connection, webhook_id, {"generation": row.generation + 1, "rotated_at": now_s()})
            return _demand(connection, tenant, webhook_id)

        row = self.database.run(act)
        return Made(row, self._secret(row.id, row.generation))

    def test(self, tenant: str, webhook_id: str) -> Any:
        """Send a test now and return the row of its delivery, which is not tried again.

        Raises:
            NoSuchRecord: the tenant has no such webhook.
            SecretUnusable: there is no secret to sign with.
        """
        self.require_secret()
        event_id, now = new_id("evt"), time.time()
        body = _written(event_id, rows.TEST_TYPE, now, {"id": webhook_id})

        def begin(connection: Connection) -> Due | None:
            _demand(connection, tenant, webhook_id)
            delivery_id = rows.add_test(connection, webhook_id, event_id, body, lease_s=self.lease_s)
            return rows.due_one(connection, delivery_id)

        due = self.database.run(begin)
        if due is None:
            raise _unknown(webhook_id)
        outcome = self.attempt(due)
        self.database.run(lambda connection: rows.record(connection, due, outcome))
        return self.delivery(tenant, webhook_id, due.id)

    def delivery(self, tenant: str, webhook_id: str, delivery_id: str) -> Any:
        """Return the row of a delivery.

        Raises:
            NoSuchRecord: the tenant has no such webhook, or that no such delivery.
        """
        with self.database.read() as connection:
            _demand(connection, tenant, webhook_id)
            row = rows.delivery(connection, webhook_id, delivery_id)
        if row is None:
            raise NoSuchRecord(f"There is no delivery {delivery_id!r}")
        return row

    def redeliver(self, tenant: str, webhook_id: str, delivery_id: str) -> Any:
        """Owe a delivery that has ended once more, with the same id and body; return its row.

        Raises:
            NoSuchRecord: there is no such webhook or delivery.
            WrongState: the webhook is disabled, or the delivery has not ended.
        """

        def act(connection: Connection) -> None:
            if _demand(connection, tenant, webhook_id, lock=True).state != rows.ACTIVE:
                raise WrongState(f"The webhook {webhook_id} is disabled", hint="Enable it first.")
            row = rows.delivery(connection, webhook_id, delivery_id)
            if row is None:
                raise NoSuchRecord(f"There is no delivery {delivery_id!r}")
            if not rows.send_again(connection, delivery_id):
                raise WrongState(f"The delivery {delivery_id} is still being tried", hint="It is sent by itself.")

        self.database.run(act)
        return self.delivery(tenant, webhook_id, delivery_id)

    def attempt(self, due: Due) -> Outcome:
        """Send a delivery once and return what becomes of it; nothing is written here."""
        from voicejobs.outbound.fetch import Fetcher  # noqa: PLC0415 - only who sends needs httpcore

        body = due.body.encode()
        headers = signing.headers(self._signing(due), due.event_id, int(time.time()), body)
        try:
            answer = Fetcher(self._policy, self.resolver).post(
                due.url, headers, body, total_s=self.settings.webhook_timeout_s
            )
        except (AddressRefused, AddressUnavailable) as error:
            return _failure(due, None, error.message, error.details.get("retry_after_s"))
        if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            return Outcome(rows.DELIVERED, answer.status)
        return _failure(due, answer.status, f"it answered {answer.status}", answer.retry_after_s)

    def _signing(self, due: Due) -> list[bytes]:
        """Return the secrets that a message is signed with: for a day after a rotation also the one before."""
        generations = [due.generation]
        if due.rotated_at is not None and time.time() - due.rotated_at < ROTATION_S:
            generations.append(due.generation - 1)
        return [signing.derive(self._installation, due.webhook_id, number) for number in generations]

    def _secret(self, webhook_id: str, generation: int) -> str:
        """Return a secret as people keep it."""
        return signing.written(signing.derive(self._installation, webhook_id, generation))


def expanded(types: Sequence[str]) -> list[str]:
    """Return the types of events that names mean; `job.*` and `batch.*` are all of a kind, no name means all.

    Raises:
        BadOption: there is no such type.
    """
    wanted: set[str] = set()
    for name in types or ("*",):
        found = {kind for kind in rows.TYPES if name in {kind, "*", kind.partition(".")[0] + ".*"}}
        if not found:
            raise BadOption(
                f"There is no type of events {name!r}", hint="They are " + ", ".join(rows.TYPES) + ".", param="types"
            )
        wanted |= found
    return [kind for kind in rows.TYPES if kind in wanted]


def body_of(event: Event, facts: Mapping[str, Any]) -> str:
    """Return what is sent for an event: which thing ended how and when, and nothing of what is in it."""
    data = {"id": event.job_id or event.batch_id}
    if event.job_id and facts["kind"] != rows.SINGLE:
        data["batch_id"] = event.batch_id
    if facts["trace_id"]:
        data["trace_id"] = facts["trace_id"]
    return _written(event.public_id, event.type, event.created_at, data)


def _written(event_id: str, kind: str, at_s: float, data: Mapping[str, Any]) -> str:
    """Return the JSON of an event."""
    when = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    event = {
        "id": event_id,
        "object": "event",
        "type": kind,
        "created_at": int(at_s),
        "timestamp": when,
        "data": data,
    }
    return json.dumps(event, separators=(",", ":"))


def _failure(due: Due, status: int | None, error: str, retry_after_s: float | None = None) -> Outcome:
    """Return what follows from an attempt that failed."""
    error = error[:MAX_ERROR_CHARS]
    if due.type == rows.TEST_TYPE:
        return Outcome(rows.FAILED, status, error)
    if status == HTTPStatus.GONE:
        return Outcome(rows.FAILED, status, error, disable="its receiver answered 410: it is gone")
    if due.attempt > len(DELAYS_S):
        reason = f"{due.attempt} attempts to deliver {due.event_id} failed, the last: {error}"
        return Outcome(rows.FAILED, status, error, disable=reason)
    delay_s = DELAYS_S[due.attempt - 1] * random.uniform(1.0, 1.0 + JITTER)  # noqa: S311 - spreads load, guards nothing
    pause_s = retry_after_s or (PAUSE_S if status in _OVERLOADED else 0.0)
    return Outcome(rows.PENDING, status, error, again_in_s=max(delay_s, pause_s), pause_s=pause_s)


def _demand(connection: Connection, tenant: str, webhook_id: str, *, lock: bool = False) -> Any:
    """Return the row of a webhook of a tenant.

    Raises:
        NoSuchRecord: it has none with this id.
    """
    row = rows.get(connection, webhook_id, tenant=tenant, lock=lock)
    if row is None:
        raise _unknown(webhook_id)
    return row


def _unknown(webhook_id: str) -> NoSuchRecord:
    """Return the error for a webhook that is not there."""
    return NoSuchRecord(f"There is no webhook {webhook_id!r}", hint="`voicejobs webhook list` shows them.")
