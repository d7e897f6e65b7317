"""Who may call what: every route says `allow(scope)` or `public()`, and the app takes no other.

The key is looked at before the first byte of a body is read (`bodies.py` asks for that), and never again: what was
found stays with the request.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute, iter_route_contexts
from starlette.requests import HTTPConnection

from voicejobs.api.context import Context, context_of
from voicejobs.errors import DatabaseUnavailable, KeyNeeded, ScopeMissing
from voicejobs.store.keys import SCOPES, split_key

OPEN_TENANT = "default"
_OPEN_NAME = "open"
_PROTOCOL = "voicejobs.key."
"""Browsers cannot set headers of a WebSocket: there the key may be one of the protocols that the client offers."""
_noting: set["asyncio.Future[None]"] = set()


@dataclass(frozen=True, slots=True)
class Caller:
    """Say who calls.

    Args:
        tenant: whose rows the caller reaches.
        key_id: its key; None where no key is needed.
        name: of the key.
        scopes: what it may.
        limits: limits of its own.
    """

    tenant: str
    key_id: str | None
    name: str
    scopes: frozenset[str]
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def gauge_name(self) -> str:
        """Return the name under which its requests are counted."""
        return self.key_id or _OPEN_NAME

    def may(self, scope: str) -> bool:
        """Tell whether the caller has a scope."""
        return scope in self.scopes or "admin" in self.scopes


_EVERYBODY = Caller(OPEN_TENANT, None, _OPEN_NAME, frozenset({"admin"}))


class Need:
    """Be the dependency of a route that needs a scope, or none."""

    def __init__(self, scope: str | None) -> None:
        self.scope = scope

    async def __call__(self, connection: HTTPConnection) -> Caller | None:
        """Return the caller; None where anybody may call.

        Raises:
            KeyNeeded, ScopeMissing, RateLimited: the caller may not.
        """
        return await admit(connection, self)


def allow(scope: str) -> Any:
    """Return the dependency of a route for callers with a scope; its value is the `Caller`."""
    if scope not in SCOPES:
        raise ValueError(scope)
    return Depends(Need(scope))


def public() -> Any:
    """Return the dependency of a route that needs no key."""
    return Depends(Need(None))


async def admit(connection: HTTPConnection, need: Need) -> Caller | None:
    """Return the caller of a request once it is known that it may go on.

    Raises:
        KeyNeeded: it has no valid key.
        ScopeMissing: the key does not allow this.
        RateLimited: it asks too often, or too much at once.
    """
    if need.scope is None:
        return None
    scope = connection.scope
    caller: Caller | None = scope.get("voicejobs.caller")
    if caller is None:
        context = context_of(connection)
        caller = await _caller_of(connection, context)
        scope["voicejobs.caller"] = caller
        _count(scope, context, caller)
    if not caller.may(need.scope):
        raise ScopeMissing(f"the key {caller.name!r} has not the scope {need.scope!r}")
    return caller


def _count(scope: Any, context: Context, caller: Caller) -> None:
    """Count a request of a caller, and leave word for whoever ends it."""
    name = caller.gauge_name
    scope["voicejobs.standing"] = context.gauge.take(name, caller.limits)
    context.gauge.enter(name, caller.limits)
    scope["voicejobs.leave"] = lambda: context.gauge.leave(name)


async def _caller_of(connection: HTTPConnection, context: Context) -> Caller:
    """Return who calls."""
    ring = context.keys
    text = key_in(connection)
    if not text:
        if context.open_to_all:
            if not ring.knows_whether_any:
                await context.run(ring.look_for_any)
            if not ring.has_any:
                return _EVERYBODY
        raise KeyNeeded("a key is needed")
    parts = split_key(text)
    if parts is None:
        raise KeyNeeded("the key is unknown, revoked or expired")
    if not ring.is_fresh(parts[0]):
        await context.run(ring.look_up, parts[0])
    key = ring.opened_by(*parts)
    if key is None:
        raise KeyNeeded("the key is unknown, revoked or expired")
    if ring.is_use_due(key.id):
        noting = asyncio.ensure_future(context.run(ring.note_use, key.id))
        _noting.add(noting)
        noting.add_done_callback(_forget)
    return Caller(key.tenant, key.id, key.name or key.id, key.scopes, key.limits)


async def is_admitted_still(context: Context, caller: Caller) -> bool:
    """Tell whether somebody who was let in would be now; what lasts long asks again and again.

    Who came while no key was needed stays until the first key is made. While the database is away, all stay.
    """
    ring = context.keys
    try:
        if caller.key_id is None:
            if not ring.knows_whether_any:
                await context.run(ring.look_for_any)
            return not ring.has_any
        if not ring.is_fresh(caller.key_id):
            await context.run(ring.look_up, caller.key_id)
    except DatabaseUnavailable:
        return True
    return ring.is_valid(caller.key_id)


def _forget(noting: "asyncio.Future[None]") -> None:
    """Let go of a note that is written, or could not be."""
    _noting.discard(noting)
    if not noting.cancelled():
        noting.exception()


def key_in(connection: HTTPConnection) -> str:
    """Return the key of a request: `Authorization: Bearer KEY` or `x-api-key: KEY`; empty where there is none."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip()
    if "x-api-key" in connection.headers:
        return connection.headers["x-api-key"].strip()
    if connection.scope["type"] == "websocket":
        for protocol in connection.scope.get("subprotocols", ()):
            if protocol.startswith(_PROTOCOL):
                return str(protocol).removeprefix(_PROTOCOL)
    return ""


def needs(app: FastAPI) -> Iterator[tuple[str, Any, Need | None]]:
    """Yield path, endpoint and need of every route of an app; None where a route names none."""
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, (APIRoute, APIWebSocketRoute)):
            yield context.path or "", route.endpoint, need_of(context)
        else:
            yield getattr(route, "path", repr(route)), getattr(route, "endpoint", None), None


def need_of(context: Any) -> Need | None:
    """Return the need that the dependencies of a route tell, or those that these have."""
    waiting = list(context.dependant.dependencies)
    while waiting:
        dependency = waiting.pop()
        if isinstance(dependency.call, Need):
            return dependency.call
        waiting += dependency.dependencies
    return None
