"""Bodies of requests: nothing is read for a stranger, and never more than the route takes.

Frameworks read a body before they ask who sends it. This layer asks first: when a route wants the first bytes, the
caller is admitted, and what then comes is counted as it arrives, whatever Content-Length says.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voicejobs import piecewise
from voicejobs.api.access import Need, admit
from voicejobs.api.context import Context, context_of
from voicejobs.errors import BadOption, InvalidRequest, KeyNeeded, TooLarge, TooSlow

F = TypeVar("F", bound=Callable[..., Any])
PATIENCE_S = 30.0
"""After this time a body has come at the least rate, on average."""
LEAST_BYTES_PER_S = 1024
SHORT_BODY_BYTES: Final = 64 * 1024
"""What is read in one call, on the event loop."""
MOST_VALUES: Final = 10_000
"""What lists and objects of one request may hold together, the items of a batch counted each for itself."""
_CEILING = "voicejobs_body_ceiling"


def takes_up_to(ceiling: int | str) -> Callable[[F], F]:
    """Return a decorator for a route that takes larger (or smaller) bodies than others; it stands next to the function.

    Args:
        ceiling: bytes, or the name of a setting that holds them (`api_max_upload_bytes`).
    """

    def mark(endpoint: F) -> F:
        setattr(endpoint, _CEILING, ceiling)
        return endpoint

    return mark


class _PatientRequest(Request):
    """Read a large body of JSON in a thread, in pieces: nobody else waits for it."""

    async def json(self) -> Any:
        """Return the value of the body.

        Raises:
            ValueError: it is no JSON.
            RecursionError: it has too many levels.
            InvalidRequest: it has more values than any request needs; to check them takes one long call.
        """
        data = await self.body()
        if len(data) <= SHORT_BODY_BYTES:
            return await super().json()
        if not hasattr(self, "_json"):
            self._json = await context_of(self).run(_read, data)
        return self._json


def _read(data: bytes) -> Any:
    """Return the value of a body; see `_PatientRequest.json`."""
    value = piecewise.loads(data)
    if piecewise.has_more_values(value, MOST_VALUES):
        raise InvalidRequest(f"The body holds more than {MOST_VALUES} values")
    return value


class PatientRoute(APIRoute):
    """Be a route whose handler takes JSON that may be large."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, given requests that are read with patience."""
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            return await handle(_PatientRequest(request.scope, request.receive))

        return handler


class Bodies:
    """Admit callers before their bodies, and count these.

    Args:
        app: the layers below.
        context: of the app.
        needs: by endpoint, what its route needs; an endpoint that is not there gets no body.
    """

    def __init__(self, app: ASGIApp, context: Context, needs: Mapping[Any, Need]) -> None:
        self._app = app
        self._context = context
        self._needs = needs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(scope, receive, self._context, self._needs)
        await self._app(scope, body.receive, send)


class _Body:
    """Hand out the body of one request."""

    def __init__(self, scope: Scope, receive: Receive, context: Context, needs: Mapping[Any, Need]) -> None:
        self._scope = scope
        self._receive = receive
        self._context = context
        self._needs = needs
        self._ceiling: int | None = None
        self._bytes = 0
        self._since = 0.0
        self._ended = False

    async def receive(self) -> Message:
        """Return the next part of the body, or that the client has left.

        Raises:
            KeyNeeded, ScopeMissing, RateLimited: the caller may not send one.
            TooLarge, TooSlow: the body is.
        """
        if self._ended:
            return await self._receive()
        if self._ceiling is None:
            await self._begin()
        try:
            async with asyncio.timeout(self._context.settings.api_body_wait_s or None):
                message = await self._receive()
        except TimeoutError:
            raise TooSlow(f"no more of the body came within {self._context.settings.api_body_wait_s:g} s") from None
        self._count(message)
        return message

    async def _begin(self) -> None:
        """Admit the caller, and find out how much it may send."""
        endpoint = self._scope.get("endpoint")
        need = self._needs.get(endpoint)
        if need is None:
            raise KeyNeeded("nothing takes a body here")
        await admit(HTTPConnection(self._scope), need)
        ceiling = getattr(endpoint, _CEILING, self._context.settings.api_max_body_bytes)
        self._ceiling = int(getattr(self._context.settings, ceiling)) if isinstance(ceiling, str) else int(ceiling)
        stated = Headers(scope=self._scope).get("content-length")
        if stated is not None and not stated.isdigit():
            raise BadOption("Content-Length is no number")
        if stated is not None and int(stated) > self._ceiling:
            raise self._too_large()
        self._since = time.monotonic()

    def _count(self, message: Message) -> None:
        """Count a part of the body."""
        if message["type"] != "http.request":
            self._ended = True
            return
        size = len(message.get("body", b""))
        self._bytes += size
        self._context.requests.received_bytes += size
        self._ended = not message.get("more_body", False)
        if self._bytes > (self._ceiling or 0):
            self._ended = True
            raise self._too_large()
        elapsed_s = time.monotonic() - self._since
        if not self._ended and elapsed_s > PATIENCE_S and self._bytes < LEAST_BYTES_PER_S * elapsed_s:
            raise TooSlow(f"less than {LEAST_BYTES_PER_S} bytes of the body came in a second")

    def _too_large(self) -> TooLarge:
        """Return the error for a body over the ceiling."""
        return TooLarge(f"the body is larger than {self._ceiling} bytes", max_bytes=self._ceiling)
