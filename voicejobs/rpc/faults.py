"""Our errors as gRPC statuses and back: the status is for everybody, the trailing metadata have the rest."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import grpc

from voicejobs.errors import (
    AccessDenied,
    BadOption,
    Cancelled,
    DeadlinePassed,
    DecoderCrash,
    DecoderTimeout,
    DiskFull,
    EngineCrash,
    EngineTimeout,
    EngineUnavailable,
    InputError,
    Internal,
    MemoryLow,
    MessageTooLarge,
    NoSuchRecord,
    NotServed,
    OutOfMemory,
    Permanent,
    QueueFull,
    ShuttingDown,
    UnknownEngine,
    UnknownModel,
    VoicejobsError,
    WaitedTooLong,
    error_from_json,
)

Metadata = tuple[tuple[str, str | bytes], ...]

CODE_KEY, HINT_KEY = "error-code", "error-hint"
ERROR_KEY = "error-bin"
"""The whole error as UTF-8 JSON; the two before it are for people and for other clients."""
RETRY_KEY = "retry-after-ms"
TRACE_KEY = "x-trace-id"
MOST_ERROR_BYTES = 4096
"""gRPC drops a call whose metadata pass 8 KiB."""

_STATUSES: tuple[tuple[tuple[type[VoicejobsError], ...], grpc.StatusCode], ...] = (
    ((MessageTooLarge, QueueFull, OutOfMemory, MemoryLow, DiskFull), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ((InputError, BadOption), grpc.StatusCode.INVALID_ARGUMENT),
    ((UnknownEngine, UnknownModel, NoSuchRecord), grpc.StatusCode.NOT_FOUND),
    ((AccessDenied,), grpc.StatusCode.UNAUTHENTICATED),
    ((NotServed,), grpc.StatusCode.UNIMPLEMENTED),
    ((WaitedTooLong, DeadlinePassed, EngineTimeout, DecoderTimeout), grpc.StatusCode.DEADLINE_EXCEEDED),
    ((EngineCrash, EngineUnavailable, DecoderCrash, ShuttingDown), grpc.StatusCode.UNAVAILABLE),
    ((Cancelled,), grpc.StatusCode.CANCELLED),
    ((Permanent,), grpc.StatusCode.FAILED_PRECONDITION),
)

_KINDS: Mapping[grpc.StatusCode, type[VoicejobsError]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlinePassed,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.UNAUTHENTICATED: AccessDenied,
    grpc.StatusCode.PERMISSION_DENIED: AccessDenied,
    grpc.StatusCode.UNIMPLEMENTED: NotServed,
    grpc.StatusCode.INVALID_ARGUMENT: BadOption,
    grpc.StatusCode.UNAVAILABLE: EngineUnavailable,
}
"""What a status means where the server says no more: it is not ours, or the call did not reach it."""
_TOO_LARGE = "larger than max"
"""In the words of gRPC itself for a message that passes the limit of either side."""


def status_of(error: VoicejobsError) -> grpc.StatusCode:
    """Return the status that says the most about an error."""
    return next((status for kinds, status in _STATUSES if isinstance(error, kinds)), grpc.StatusCode.INTERNAL)


def metadata_of(error: VoicejobsError, trace_id: str = "") -> Metadata:
    """Return the trailing metadata that go with an error; text that is not ASCII goes in the binary entry alone."""
    whole = _dump(error.to_json())
    if len(whole) > MOST_ERROR_BYTES:
        whole = _dump({**error.to_json(), "message": error.message[: MOST_ERROR_BYTES // 8], "details": {}})
    entries: list[tuple[str, str | bytes]] = [(CODE_KEY, error.code), (ERROR_KEY, whole)]
    if error.hint and error.hint.isascii() and error.hint.isprintable():
        entries.append((HINT_KEY, error.hint))
    if "retry_after_ms" in error.details:
        entries.append((RETRY_KEY, str(int(error.details["retry_after_ms"]))))
    if trace_id:
        entries.append((TRACE_KEY, trace_id))
    return tuple(entries)


def _dump(value: Mapping[str, Any]) -> bytes:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode()


def error_of(
    status: grpc.StatusCode, details: str, trailing: Iterable[Sequence[str | bytes]], address: str
) -> VoicejobsError:
    """Return the error of our tree for a call that failed, whoever ended it.

    Args:
        status: of the call.
        details: what the server, or gRPC itself, says of it.
        trailing: its trailing metadata.
        address: of the server, for messages.
    """
    sent = {str(entry[0]): entry[1] for entry in trailing}
    if isinstance(known := sent.get(ERROR_KEY), bytes):
        try:
            return error_from_json(json.loads(known))
        except (ValueError, KeyError, TypeError):  # not from a server of ours
            pass
    said = f"{address}: {details or status.name}"
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED:
        if _TOO_LARGE in details:
            return MessageTooLarge(said)
        return QueueFull(said, retry_after_ms=_number(sent.get(RETRY_KEY)))
    return _KINDS.get(status, Internal)(said)


def _number(text: str | bytes | None) -> int:
    """Return the milliseconds of a metadata entry; 1000 where there are none."""
    return int(text) if text is not None and text.isdigit() else 1000
