"""Answers to requests that named a key of their own, so that asking again changes nothing and says the same.

The row is written in the transaction of what the request made: either both are there, or neither. Two requests with
the same key at one moment wait for each other at that row, and the later one finds the answer of the first.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from voicejobs.errors import BadOption
from voicejobs.store.database import now_s
from voicejobs.store.schema import idempotency_keys as keys

KEPT_S: Final = 86_400.0
"""How long an answer is given again."""
MAX_KEY_CHARS: Final = 255
_INSERT: Final[dict[str, Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class AnsweredMeanwhile(Exception):  # noqa: N818 - no failure: the transaction is given up for the answer that is there
    """Another request with the same key has been answered since we looked."""


@dataclass(frozen=True, slots=True)
class Place:
    """Name a request: whose, at which route, under which key; `fingerprint` is SHA-256 of what it asks for."""

    tenant: str
    route: str
    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold an answer: status, headers and JSON body, with the fingerprint of the request that got it."""

    status_code: int
    headers: Mapping[str, str]
    body: Any
    fingerprint: str = ""


def check_key(key: str) -> str:
    """Return a key if it is one.

    Raises:
        BadOption: it is empty, longer than 255 characters, or not printable ASCII.
    """
    if not key or len(key) > MAX_KEY_CHARS or not key.isascii() or not key.isprintable():
        raise BadOption(
            f"Idempotency-Key takes 1 to {MAX_KEY_CHARS} printable ASCII characters", param="Idempotency-Key"
        )
    return key


def find(connection: Connection, place: Place) -> Answer | None:
    """Return the answer that this key got within the last day, whatever was asked for then; None for a new key."""
    row = connection.execute(
        select(keys.c.status_code, keys.c.headers, keys.c.body, keys.c.fingerprint).where(
            *_same(place), keys.c.created_at > now_s() - KEPT_S
        )
    ).first()
    if row is None:
        return None
    return Answer(row.status_code, json.loads(row.headers), json.loads(row.body), row.fingerprint)


def keep(connection: Connection, place: Place, answer: Answer) -> None:
    """Keep the answer of a request in the transaction of what it made.

    Raises:
        AnsweredMeanwhile: there is one already; let the transaction fail, and look for it.
    """
    connection.execute(delete(keys).where(*_same(place), keys.c.created_at <= now_s() - KEPT_S))
    new = _INSERT[connection.dialect.name](keys).values(
        tenant=place.tenant,
        route=place.route,
        key=place.key,
        fingerprint=place.fingerprint,
        status_code=answer.status_code,
        headers=json.dumps(dict(answer.headers)),
        body=json.dumps(answer.body, ensure_ascii=False),
        created_at=now_s(),
    )
    if connection.execute(new.on_conflict_do_nothing().returning(keys.c.key)).first() is None:
        raise AnsweredMeanwhile(place.key)


def forget(connection: Connection) -> int:
    """Remove the answers that are not given again; return how many."""
    return int(connection.execute(delete(keys).where(keys.c.created_at <= now_s() - KEPT_S)).rowcount)


def _same(place: Place) -> tuple[Any, ...]:
    """Return what tells the row of a request."""
    return keys.c.tenant == place.tenant, keys.c.route == place.route, keys.c.key == place.key
