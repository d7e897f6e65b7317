"""Whether the process is up, and whether it can do its work; and what a `type` of a problem means."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from sqlalchemy import text

from voicejobs import errors
from voicejobs.api.access import public
from voicejobs.api.context import Context, Here
from voicejobs.api.problems import responses, status_of
from voicejobs.errors import NoSuchRecord, VoicejobsError
from voicejobs.outbound.signing import source_of

router = APIRouter(tags=["service"], dependencies=[public()])
MEASURED_EVERY_S = 0.05
ANSWER_S = 3.0


@router.get("/healthz", operation_id="get_health")
async def get_health() -> dict[str, str]:
    """Tell that the process is up."""
    return {"status": "ok"}


@router.get("/readyz", operation_id="get_readiness", responses={503: {"description": "Something does not answer."}})
async def get_readiness(context: Here, response: Response) -> dict[str, Any]:
    """Tell whether database and broker answer, and whether webhooks can be signed; without that all else works."""
    needed = {
        "database": await _outcome(context, _ask_database),
        "broker": await _outcome(context, _ask_broker),
    }
    checks = {**needed, "webhooks": await _outcome(context, _ask_for_secret)}
    if any(outcome != "ok" for outcome in needed.values()):
        response.status_code = 503
        return {"status": "unavailable", "checks": checks}
    return {"status": "ok" if checks["webhooks"] == "ok" else "degraded", "checks": checks}


async def _outcome(context: Context, ask: Any) -> str:
    """Return `ok` where an answer comes in time."""
    try:
        async with asyncio.timeout(ANSWER_S):
            await context.run(ask, context)
    except (VoicejobsError, TimeoutError, OSError):
        return "unavailable"
    return "ok"


def _ask_database(context: Context) -> None:
    """Ask the database."""
    with context.database.read() as connection:
        connection.execute(text("SELECT 1"))


def _ask_broker(context: Context) -> None:
    """Ask the broker that the settings name, or the stack that has one of its own."""
    if context.settings.broker_url:
        from voicejobs.notices import ping  # noqa: PLC0415 - it needs the client of the broker

        ping(context.settings.broker_url)
    elif context.check_stack is not None:
        context.check_stack()


def _ask_for_secret(context: Context) -> None:
    """Look for what the secrets of webhooks are derived from."""
    source_of(context.settings)


def _kinds() -> Iterator[type[VoicejobsError]]:
    """Yield every class of errors that the library declares."""
    waiting: list[type[VoicejobsError]] = [VoicejobsError]
    while waiting:
        kind = waiting.pop()
        if kind.__module__ == errors.__name__:
            yield kind
        waiting += kind.__subclasses__()


@router.get("/problems/{code}", operation_id="get_problem_type", responses=responses(404))
async def get_problem_type(code: Annotated[str, Path(max_length=64)]) -> dict[str, Any]:
    """Tell what the `type` of a problem means."""
    for kind in _kinds():
        if kind.code == code:
            sentence = (kind.__doc__ or "").strip().split("\n", maxsplit=1)[0]
            status = status_of(kind("", hint=""))
            return {"code": code, "title": sentence, "hint": kind.default_hint, "status": status}
    raise NoSuchRecord("no problem has this code")


@asynccontextmanager
async def measure_lag(context: Context) -> AsyncIterator[None]:
    """Measure how late the event loop is, for as long as the service runs."""

    async def measure() -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + MEASURED_EVERY_S
            await asyncio.sleep(MEASURED_EVERY_S)
            context.lag.note(max(loop.time() - due, 0.0))

    task = asyncio.create_task(measure())
    try:
        yield
    finally:
        task.cancel()
