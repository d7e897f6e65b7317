"""Answers of the native surface: records as JSON, 202 for what was begun, and the same answer to the same request."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from fastapi import Request
from sqlalchemy import Connection
from starlette.responses import JSONResponse, Response

from voicejobs.api.access import Caller
from voicejobs.api.context import Context
from voicejobs.api.times import moment
from voicejobs.errors import KeyReused, WrongState
from voicejobs.store import idempotency
from voicejobs.store.database import Database
from voicejobs.store.idempotency import Answer, AnsweredMeanwhile, Place

IDEMPOTENCY_KEY: Final = "idempotency-key"
REPLAYED: Final = "Idempotency-Replayed"
POLL_S: Final = 2
"""What those are told to wait who ask again and again for the state of what they have begun."""
TRIES: Final = 3


def wire(record: Any) -> Any:
    """Return a record as the native surface writes it: unix seconds under names that end in `_at` become RFC 3339."""
    if isinstance(record, Mapping):
        return {
            name: moment(value) if name.endswith("_at") and isinstance(value, (int, float)) else wire(value)
            for name, value in record.items()
        }
    if isinstance(record, (list, tuple)):
        return [wire(one) for one in record]
    return record


def accepted(record: Mapping[str, Any], location: str) -> Answer:
    """Return the answer to a request that began something: 202 with where it is, and the record of it."""
    return Answer(202, {"Location": location, "Retry-After": str(POLL_S)}, wire(record))


def respond(answer: Answer, **headers: str) -> Response:
    """Return an answer as a response."""
    return JSONResponse(answer.body, answer.status_code, headers={**answer.headers, **headers})


@dataclass(slots=True)
class Keeper:
    """Keep the answer of a request in the transaction that it tells of."""

    place: Place | None
    answer: Answer | None = None

    def keep(self, connection: Connection, answer: Answer) -> None:
        """Note the answer, and write it down where the request has a key.

        Raises:
            AnsweredMeanwhile: another request with the same key was quicker.
        """
        self.answer = answer
        if self.place is not None:
            idempotency.keep(connection, self.place, answer)


async def once(
    context: Context, caller: Caller, request: Request, asked: Any, act: Callable[[Keeper], None]
) -> Response:
    """Do what a request asks for, or give again the answer that it has got already.

    Args:
        context: of the app.
        caller: who asks.
        request: the request; its header `Idempotency-Key` is optional.
        asked: JSON of what it asks for; the same key for something else is refused.
        act: does it in one transaction, in which it calls `keep`; runs in a thread.

    Raises:
        KeyReused: the key was used for another request.
        BadOption: the key is none.
    """
    key = request.headers.get(IDEMPOTENCY_KEY)
    place = None if key is None else await context.run(_place, caller, request, idempotency.check_key(key), asked)
    for _ in range(TRIES):
        if place is not None:
            known = await context.run(_find, context.database, place)
            if known is not None:
                return _replayed(known, place)
        keeper = Keeper(place)
        try:
            await context.run(act, keeper)
        except AnsweredMeanwhile:
            continue
        if keeper.answer is None:
            raise AssertionError("nothing was answered")
        return respond(keeper.answer)
    raise WrongState("requests with this Idempotency-Key get in each other's way", retry=True)


def _place(caller: Caller, request: Request, key: str, asked: Any) -> Place:
    """Return what a request is known by."""
    route = f"{request.method} {request.scope['route'].path}"
    text = json.dumps(asked, sort_keys=True, ensure_ascii=True)
    return Place(caller.tenant, route, key, sha256(text.encode()).hexdigest())


def _find(database: Database, place: Place) -> Answer | None:
    """Return a kept answer."""
    with database.read() as connection:
        return idempotency.find(connection, place)


def _replayed(known: Answer, place: Place) -> Response:
    """Return a kept answer again.

    Raises:
        KeyReused: it is that of another request.
    """
    if known.fingerprint != place.fingerprint:
        raise KeyReused("this Idempotency-Key belongs to another request", param="Idempotency-Key")
    return respond(known, **{REPLAYED: "true"})
