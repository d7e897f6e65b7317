"""Who may call: keys as metadata, compared in constant time, by their SHA-256."""

import hmac
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any

import grpc

from voicejobs.errors import AccessDenied, BadOption
from voicejobs.rpc.faults import metadata_of, status_of

_HEALTH = "/grpc.health.v1.Health/"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
SHORTEST_KEY = 16
_HASHED = "sha256:"


class Keys:
    """Know the keys by their hashes.

    Args:
        text: `NAME=KEY` or `NAME=sha256:HEX`, separated by commas or lines; lines that begin with # say nothing.

    Raises:
        BadOption: an entry has another form, or a key is too short.
    """

    def __init__(self, text: str) -> None:
        self._digests: list[tuple[str, bytes]] = [_parsed(entry) for entry in _entries(text)]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def name_of(self, key: str) -> str | None:
        """Return the name of a key, None where it is unknown; takes as long whichever it is."""
        digest = sha256(key.encode()).digest()
        found: str | None = None
        for name, known in self._digests:
            if hmac.compare_digest(digest, known):
                found = name
        return found


def _entries(text: str) -> Iterable[str]:
    """Yield the entries of a text."""
    for line in text.splitlines():
        if not line.strip().startswith("#"):
            yield from (entry.strip() for entry in line.split(",") if entry.strip())


def _parsed(entry: str) -> tuple[str, bytes]:
    """Return name and digest of an entry."""
    name, equals, key = entry.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise BadOption("a key has no name", hint="Write each as NAME=KEY or NAME=sha256:HEX.")
    if key.startswith(_HASHED):
        if not _DIGEST.fullmatch(key.removeprefix(_HASHED)):
            raise BadOption(f"the key {name!r} is no SHA-256", hint="After sha256: come 64 digits in small letters.")
        return name, bytes.fromhex(key.removeprefix(_HASHED))
    if len(key) < SHORTEST_KEY:
        raise BadOption(f"the key {name!r} is too short", hint=f"A key has {SHORTEST_KEY} characters at least.")
    return name, sha256(key.encode()).digest()


def key_in(metadata: Iterable[Sequence[str | bytes]]) -> str:
    """Return the key of a call: `authorization: Bearer KEY` or `x-api-key: KEY`; empty where there is none."""
    sent = {str(entry[0]): entry[1] for entry in metadata}
    scheme, _, token = str(sent.get("authorization", "")).partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip()
    return str(sent.get("x-api-key", "")).strip()


class KeyCheck(grpc.aio.ServerInterceptor):
    """Refuse calls without a key that is known, before their first message is read; health stays open for probes."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """Let the call go on, or put a handler in its place that ends it."""
        if handler_call_details.method.startswith(_HEALTH):
            return await continuation(handler_call_details)
        key = key_in(handler_call_details.invocation_metadata or ())
        if self._keys.name_of(key) is not None:
            return await continuation(handler_call_details)
        return grpc.stream_stream_rpc_method_handler(_deny_nameless if not key else _deny)


async def _deny(requests: Any, context: Any) -> None:
    """End a call with a key that nobody knows."""
    await _end(context, AccessDenied("the key is unknown"))


async def _deny_nameless(requests: Any, context: Any) -> None:
    """End a call without a key."""
    await _end(context, AccessDenied("a key is needed"))


async def _end(context: Any, error: AccessDenied) -> None:
    """End a call with an error."""
    await context.abort(status_of(error), error.message, metadata_of(error))
