"""The outermost layer: who is asked (Host), on whose behalf (Origin), under which trace id; headers of every answer.

Whatever fails below ends here as a problem without a word of what was inside.
"""

import ipaddress
import logging
import re
import time
from collections.abc import Iterable
from http import HTTPStatus
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voicejobs import __version__, logs
from voicejobs.api.context import Context
from voicejobs.api.problems import answer
from voicejobs.errors import BadOption, HostRefused, Internal, OriginRefused, RateLimited, VoicejobsError
from voicejobs.settings import Settings

_logger = logging.getLogger(__name__)
_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252}))(?::[0-9]{1,5})?")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_OF_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "[::1]"})
_PROBES = frozenset({"/healthz", "/readyz"})
"""Asked by name of a container or its address; they tell nobody anything."""
_NO_TRACE = "0" * 32
UNKNOWN_ROUTE = "(none)"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"})
UNKNOWN_METHOD = "(other)"

CONSTANT_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "voicejobs-version": __version__,
}
DEFAULT_HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "cache-control": "no-store",
}
"""Those that a route may set to something else."""


class Envelope:
    """Check what every request must keep to, and complete every answer.

    Args:
        app: the layers below.
        context: of the app.
        loopback: whether the service listens on this machine alone; then only its own names are hosts by default.
    """

    def __init__(self, app: ASGIApp, context: Context, *, loopback: bool) -> None:
        self._app = app
        self._context = context
        self._hosts = _hosts(context.settings, loopback=loopback)
        self._origins = frozenset(words(context.settings.api_origins))
        self._constant = dict(CONSTANT_HEADERS)
        if context.settings.api_hsts_s:
            self._constant["strict-transport-security"] = f"max-age={int(context.settings.api_hsts_s)}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or WebSocket."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        trace_id = trace_id_in(headers)
        scope["voicejobs.trace_id"] = trace_id
        story = _Story(scope, send, self._constant)
        with logs.bind(trace_id=trace_id):
            await self._serve(scope, headers, receive, story)

    async def _serve(self, scope: Scope, headers: Headers, receive: Receive, story: "_Story") -> None:
        """Serve a request whose trace id is known."""
        requests = self._context.requests
        since = time.monotonic()
        requests.running += 1
        try:
            try:
                self._check(scope, headers)
                await self._app(scope, receive, story.send)
            except VoicejobsError as error:
                await story.refuse(receive, error)
            except Exception:
                _logger.exception("a request failed")
                await story.refuse(receive, Internal("an error that was not foreseen"))
        finally:
            requests.running -= 1
            leave = scope.get("voicejobs.leave")
            if leave is not None:
                leave()
            self._note(scope, story, time.monotonic() - since)

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Refuse what no route needs to see.

        Raises:
            HostRefused, OriginRefused, RateLimited, BadOption: as their names say.
        """
        if self._context.requests.running > self._context.settings.api_max_requests:
            raise RateLimited("the service has as many requests as it takes", retry_after_s=1)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
            raise HostRefused("the header Host names no host")
        name = _name_of(hosts[0])
        if self._hosts is not None and name not in self._hosts and scope["path"] not in _PROBES:
            raise HostRefused("the header Host names another host")
        origin = headers.get("origin")
        unsafe = scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS
        if unsafe and origin is not None and origin not in self._origins and not _is_of(origin, hosts[0]):
            raise OriginRefused("a page of another site may not ask this")
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            raise BadOption("the address holds a NUL character")

    def _note(self, scope: Scope, story: "_Story", seconds: float) -> None:
        """Count a request and log it."""
        method = method_of(scope)
        route = route_of(scope)
        self._context.requests.note(method, route, story.status, seconds)
        caller = scope.get("voicejobs.caller")
        _logger.info(
            "request",
            extra={
                "method": method,
                "route": route,
                "status": story.status,
                "ms": round(seconds * 1000, 1),
                "key": caller.key_id if caller else None,
                "tenant": caller.tenant if caller else None,
            },
        )


class _Story:
    """Send the answer to one request, and know how far that has come."""

    def __init__(self, scope: Scope, send: Send, constant: dict[str, str]) -> None:
        self.status = 0
        self._scope = scope
        self._send = send
        self._constant = constant

    async def send(self, message: Message) -> None:
        """Send a message, the start of an answer with its headers."""
        if message["type"] in {"http.response.start", "websocket.http.response.start"}:
            self.status = message["status"]
            self._complete(MutableHeaders(scope=message))
        elif message["type"] == "websocket.accept":
            self.status = HTTPStatus.SWITCHING_PROTOCOLS
            message.setdefault("headers", [])
            self._complete(MutableHeaders(scope=message))
        await self._send(message)

    def _complete(self, headers: MutableHeaders) -> None:
        """Add what every answer has."""
        for name, value in self._constant.items():
            headers[name] = value
        for name, value in DEFAULT_HEADERS.items():
            headers.setdefault(name, value)
        headers["x-request-id"] = self._scope["voicejobs.trace_id"]
        standing = self._scope.get("voicejobs.standing")
        if standing is not None:
            for name, value in standing.to_headers().items():
                headers[name] = value

    async def refuse(self, receive: Receive, error: VoicejobsError) -> None:
        """Answer with an error, unless an answer has begun: then its end is cut off, and the client sees that."""
        if self.status:
            raise error
        await answer(HTTPConnection(self._scope), error)(self._scope, receive, self.send)


def trace_id_in(headers: Headers) -> str:
    """Return the trace id that a request brings (`traceparent`, `x-request-id`), or a new one."""
    parent = _PARENT.fullmatch(headers.get("traceparent", ""))
    if parent and parent[1] != _NO_TRACE:
        return parent[1]
    own = headers.get("x-request-id", "").replace("-", "").lower()
    return own if _TRACE_ID.fullmatch(own) else uuid4().hex


def route_of(scope: Scope) -> str:
    """Return the template of the route that serves a request, so that ids in paths stay out of logs and metrics."""
    return str(getattr(scope.get("route"), "path", UNKNOWN_ROUTE))


def method_of(scope: Scope) -> str:
    """Return the method of a request: anybody may invent others, and each would be counted for itself for ever."""
    method = str(scope.get("method", "WEBSOCKET"))
    return method if method in _METHODS else UNKNOWN_METHOD


def words(text: str) -> Iterable[str]:
    """Yield the words of a setting, which commas part."""
    return (word.strip() for word in text.split(",") if word.strip())


def _hosts(settings: Settings, *, loopback: bool) -> frozenset[str] | None:
    """Return the names that the service goes by; None for any."""
    named = [word.lower() for word in words(settings.api_hosts)]
    if "*" in named or not (named or loopback):
        return None
    return frozenset([*named, *_OF_THIS_MACHINE]) if loopback else frozenset(named)


def _name_of(host: str) -> str:
    """Return the host without its port, in small letters and without a dot at its end."""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return name.lower().rstrip(".")


def _is_of(origin: str, host: str) -> bool:
    """Tell whether an origin is the host that was asked."""
    return origin.partition("://")[2].lower() == host.lower()


def is_loopback(host: str) -> bool:
    """Tell whether an address that is listened on is of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
