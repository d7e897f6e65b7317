"""Errors as answers: `application/problem+json` (RFC 9457) with the member `error` that clients of OpenAI read."""

import json
import logging
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from sqlalchemy.exc import DataError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response

from voicejobs import errors
from voicejobs.errors import VoicejobsError

MEDIA_TYPE = "application/problem+json"
LONGEST_RETRY_S = 120
"""Clients of OpenAI wait no longer than this."""
DEFAULT_RETRY_S = 5
_logger = logging.getLogger(__name__)

STATUSES: Mapping[type[VoicejobsError], int] = {
    errors.KeyNeeded: 401,
    errors.AccessDenied: 403,
    errors.NoSuchRecord: 404,
    errors.NoSuchPath: 404,
    errors.MethodNotAllowed: 405,
    errors.TooSlow: 408,
    errors.WrongState: 409,
    errors.Expired: 410,
    errors.LengthMissing: 411,
    errors.TooLarge: 413,
    errors.TooLong: 413,
    errors.MessageTooLarge: 413,
    errors.NotAudio: 415,
    errors.BadMediaType: 415,
    errors.HostRefused: 421,
    errors.RangeRefused: 416,
    errors.InvalidRequest: 422,
    errors.KeyReused: 422,
    errors.RateLimited: 429,
    errors.QuotaReached: 429,
    errors.OutputExists: 500,
    errors.OutputUnwritable: 500,
    errors.Internal: 500,
    errors.SchemaMismatch: 503,
    errors.SecretUnusable: 503,
    errors.Transient: 503,
    errors.Interruption: 503,
    errors.VoicejobsError: 400,
}
"""The status of an error is that of the nearest class above it which stands here."""

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
FIRST_SERVER_STATUS = 500
_PERMANENT_CONFLICT = 409
_RETRIED = frozenset({429, 503})


def status_of(error: VoicejobsError) -> int:
    """Return the HTTP status of an error."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def problem(error: VoicejobsError, *, trace_id: str, instance: str = "") -> tuple[int, dict[str, Any]]:
    """Return status and body for an error.

    What went wrong inside is nobody else's business: from 500 on the body says what kind of error it was, and the log
    says the rest.
    """
    status = status_of(error)
    inside = status >= FIRST_SERVER_STATUS
    detail = _sentence(type(error)) if inside else error.message
    param = error.details.get("param")
    body: dict[str, Any] = {
        "type": f"/problems/{error.code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": instance,
        "code": error.code,
        "request_id": trace_id,
        "errors": list(error.details.get("errors", ())),
        "error": {
            "message": detail,
            "type": "server_error" if inside else _TYPES.get(status, "invalid_request_error"),
            "param": param,
            "code": error.code,
        },
    }
    if error.hint and not inside:
        body["hint"] = error.hint
    if param is not None and not body["errors"]:
        body["errors"] = [{"parameter": param, "detail": detail}]
    return status, body


def problem_headers(error: VoicejobsError) -> dict[str, str]:
    """Return the headers that belong to the answer to an error."""
    status = status_of(error)
    headers: dict[str, str] = {}
    if status in _RETRIED:
        headers["Retry-After"] = str(retry_after_s(error))
    if status == _PERMANENT_CONFLICT:
        headers["x-should-retry"] = "true" if error.details.get("retry") else "false"
    if isinstance(error, errors.KeyNeeded):
        headers["WWW-Authenticate"] = 'Bearer realm="voicejobs"'
    if isinstance(error, (errors.TooLarge, errors.TooSlow)):
        headers["Connection"] = "close"
    if "allow" in error.details:
        headers["Allow"] = str(error.details["allow"])
    headers.update(error.details.get("headers", {}))
    return headers


def retry_after_s(error: VoicejobsError) -> int:
    """Return after how many whole seconds it is worth trying again: 1 to 120."""
    if "retry_after_ms" in error.details:
        wanted_s = float(error.details["retry_after_ms"]) / 1000
    else:
        wanted_s = float(error.details.get("retry_after_s", DEFAULT_RETRY_S))
    return max(math.ceil(wanted_s), 1) if wanted_s < LONGEST_RETRY_S else LONGEST_RETRY_S


class ProblemResponse(Response):
    """Answer with an error."""

    media_type = MEDIA_TYPE

    def __init__(self, error: VoicejobsError, *, trace_id: str, instance: str = "") -> None:
        status, body = problem(error, trace_id=trace_id, instance=instance)
        super().__init__(
            json.dumps(body, ensure_ascii=True, default=str).encode(),
            status_code=status,
            headers=problem_headers(error),
        )


def answer(connection: HTTPConnection, error: VoicejobsError) -> ProblemResponse:
    """Return the answer to a request that ended with an error, and log what the answer does not tell."""
    if status_of(error) >= FIRST_SERVER_STATUS:
        _logger.warning(
            "a request failed", extra={"code": error.code, "error": error.message}, exc_info=error.__cause__ or error
        )
    trace_id = str(connection.scope.get("voicejobs.trace_id", ""))
    return ProblemResponse(error, trace_id=trace_id, instance=f"/requests/{trace_id}")


def install(app: FastAPI) -> None:
    """Let every error of the routes of an app end as a problem."""

    async def ours(connection: HTTPConnection, error: Exception) -> Response:
        assert isinstance(error, VoicejobsError)  # noqa: S101 - registered for no other
        return answer(connection, error)

    async def invalid(connection: HTTPConnection, error: Exception) -> Response:
        assert isinstance(error, (RequestValidationError, WebSocketRequestValidationError))  # noqa: S101
        return answer(connection, invalid_request(error.errors()))

    async def of_the_framework(connection: HTTPConnection, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for no other
        return answer(connection, from_http(error))

    async def unfit(connection: HTTPConnection, error: Exception) -> Response:
        return answer(
            connection,
            errors.BadOption(
                "the request holds a text or a number that cannot be kept",
                hint="Texts are valid Unicode without NUL characters, numbers have 64 bits at most.",
            ),
        )

    app.add_exception_handler(VoicejobsError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(WebSocketRequestValidationError, invalid)
    app.add_exception_handler(HTTPException, of_the_framework)
    app.add_exception_handler(DataError, unfit)
    app.add_exception_handler(UnicodeEncodeError, unfit)


def from_http(error: HTTPException) -> VoicejobsError:
    """Return our error for one that the framework raised; one of ours that it has wrapped comes out again."""
    if isinstance(error.__cause__, VoicejobsError):
        return error.__cause__
    if error.status_code == HTTPStatus.NOT_FOUND:
        return errors.NoSuchPath("nothing is served under this path")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "")
        return errors.MethodNotAllowed("the method is not allowed here", allow=allowed)
    if error.status_code >= FIRST_SERVER_STATUS:
        return errors.Internal(str(error.detail))
    return errors.BadOption("the body of the request cannot be read", hint="docs/service.md tells the forms of bodies.")


def invalid_request(faults: Any) -> errors.InvalidRequest:
    """Return the error for a request that does not fit its schema; the values themselves are not repeated."""
    found = [_fault(fault) for fault in faults]
    first = found[0] if found else {"detail": "the request does not fit its schema"}
    name = first.get("parameter") or first.get("pointer")
    message = f"{name}: {first['detail']}" if name else first["detail"]
    return errors.InvalidRequest(message, param=_param(faults), errors=found)


def _fault(fault: Mapping[str, Any]) -> dict[str, str]:
    """Return one member of `errors`: where the fault is, and what it is."""
    where, *rest = fault.get("loc", ("body",)) or ("body",)
    detail = str(fault.get("msg", "is not valid"))
    if where == "body":
        return {"pointer": "#" + "".join(f"/{part}" for part in rest), "detail": detail}
    return {"parameter": str(rest[0]) if rest else str(where), "detail": detail}


def _param(faults: Any) -> str | None:
    """Return the name of the parameter or member at fault."""
    for fault in faults:
        rest = list(fault.get("loc", ()))[1:]
        return ".".join(str(part) for part in rest) or None
    return None


def _sentence(kind: type[VoicejobsError]) -> str:
    """Return what a class of errors says of itself."""
    return (kind.__doc__ or "").strip().split("\n", maxsplit=1)[0]


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of problems that a route may answer with, beside those that every route has."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }
