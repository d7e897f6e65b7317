"""`/v1/batches`: many requests as the lines of a file, and their answers as the lines of another."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, Row

from voicejobs import control
from voicejobs.api import line_batches, line_requests
from voicejobs.api.access import Caller, allow
from voicejobs.api.answers import Keeper, once
from voicejobs.api.bodies import PatientRoute
from voicejobs.api.context import Context, Here, TraceId
from voicejobs.api.jobs import intake_of
from voicejobs.api.jsonl import BadLine, failed_line, output_line, undone_line
from voicejobs.api.line_batches import KEY, Order
from voicejobs.api.openai_answers import answer_document
from voicejobs.api.openai_calls import error_of, sound_of, transcript_of
from voicejobs.api.openai_files import life_s
from voicejobs.api.pages import Page, fetch_page, link_next, list_of
from voicejobs.api.problems import problem, responses
from voicejobs.api.shapes import batch_object
from voicejobs.errors import BadOption, TooLarge, VoicejobsError, WrongState
from voicejobs.intake import Intake, Taken, Terms, check_metadata, submit_in_parts, submit_many
from voicejobs.store import files
from voicejobs.store.idempotency import Answer
from voicejobs.store.schema import batches
from voicejobs.store.states import JobState
from voicejobs.submit import cancel_batch as cancel_rows

router = APIRouter(tags=["openai batches"], route_class=PatientRoute)
Reader = Annotated[Caller, allow("jobs:read")]
Writer = Annotated[Caller, allow("jobs:write")]
FILES_WAIT_S: Final = 10.0
"""Time in which the files of a batch are made while somebody waits; one with very many lines is `finalizing` then."""
_WINDOW = re.compile(r"(\d{1,3})h")
_HOUR_S = 3600.0
_LONGEST_WINDOW_H = 168
_making: "dict[tuple[int, str], asyncio.Future[None]]" = {}
"""Files of batches that are being made in this process, by loop and batch."""


class OutputLifetime(BaseModel):
    """Say when the files of answers go."""

    model_config = ConfigDict(extra="forbid")

    anchor: str
    seconds: int


class NewBatch(BaseModel):
    """Say what is to be done."""

    model_config = ConfigDict(extra="forbid")

    input_file_id: str = Field(min_length=1, max_length=64)
    endpoint: Literal["/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech"]
    completion_window: str = Field(max_length=8, description="24h, or another number of hours up to 168h.")
    metadata: dict[str, str] | None = None
    output_expires_after: OutputLifetime | None = None


@router.post(
    "/v1/batches",
    operation_id="create_openai_batch",
    responses=responses(400, 404, 409, 413, 415, 422, 503),
    response_model=dict[str, Any],
)
async def create_batch(
    wanted: NewBatch, request: Request, context: Here, caller: Writer, trace_id: TraceId
) -> Response:
    """Begin a batch whose requests are the lines of an uploaded file.

    A line that is no request ends in the file of errors; the others go on. A custom_id that comes twice, and a file
    without any request, fail the batch.
    """
    intake = intake_of(context, caller, trace_id)
    window_s = _window_s(wanted.completion_window)
    metadata = wanted.metadata or {}
    check_metadata(metadata)
    life = None if wanted.output_expires_after is None else wanted.output_expires_after.model_dump()
    order = Order(wanted.endpoint, wanted.input_file_id, wanted.completion_window, window_s, metadata, life_s(life))

    def act(keeper: Keeper) -> None:
        def within(connection: Connection, batch_id: str) -> None:
            row = line_batches.find(connection, caller.tenant, batch_id)
            keeper.keep(connection, Answer(200, {}, batch_object(line_batches.standings(connection, [row])[0])))

        _create(intake, order, within)

    return await once(context, caller, request, wanted.model_dump(mode="json"), act)


@router.get("/v1/batches", operation_id="list_openai_batches", responses=responses(400))
async def list_batches(
    request: Request, response: Response, context: Here, caller: Reader, page: Page
) -> dict[str, Any]:
    """List batches, newest first."""

    def look() -> tuple[list[Row[Any]], list[dict[str, Any]], bool]:
        with context.database.read() as connection:
            query = line_batches.select_batches(caller.tenant)
            found, more = fetch_page(connection, query, batches.c.id, page.checked("batch_"))
            return found, line_batches.standings(connection, found), more

    found, standings, more = await context.run(look)
    for row in found:
        if line_batches.needs_files(row):
            _files_of(context, caller.tenant, row.id)
    return link_next(request, response, list_of([batch_object(one) for one in standings], more=more))


@router.get("/v1/batches/{batch_id}", operation_id="retrieve_batch", responses=responses(400, 404))
async def retrieve_batch(batch_id: str, context: Here, caller: Reader) -> dict[str, Any]:
    """Tell how a batch stands; once it has ended, with the files of its answers and errors."""
    return await _shown(context, caller.tenant, batch_id)


@router.post("/v1/batches/{batch_id}/cancel", operation_id="cancel_openai_batch", responses=responses(400, 404, 409))
async def cancel_batch(batch_id: str, context: Here, caller: Writer) -> dict[str, Any]:
    """Cancel what a batch has not finished; its answers so far are kept."""

    def cancel() -> None:
        with context.database.read() as connection:
            row = line_batches.find(connection, caller.tenant, batch_id)
        if row.finished_at is not None:
            raise WrongState(f"The batch {batch_id} has ended", hint="There is nothing to cancel.")
        cancel_rows(context.database, batch_id)

    await context.run(cancel)
    return await _shown(context, caller.tenant, batch_id)


async def _shown(context: Context, tenant: str, batch_id: str) -> dict[str, Any]:
    """Return a batch, its files made if it has ended."""

    def look() -> tuple[Row[Any], dict[str, Any]]:
        with context.database.read() as connection:
            row = line_batches.find(connection, tenant, batch_id)
            return row, line_batches.standings(connection, [row])[0]

    row, standing = await context.run(look)
    if row.finished_at is None and not standing["live"]:
        await context.run(control.settle, context.database)  # the upkeep of a worker would do so a little later
        row, standing = await context.run(look)
    if line_batches.needs_files(row):
        making = _files_of(context, tenant, batch_id)
        if (await asyncio.wait({making}, timeout=FILES_WAIT_S))[0]:
            making.result()
        _, standing = await context.run(look)
    return batch_object(standing)


def _files_of(context: Context, tenant: str, batch_id: str) -> "asyncio.Future[None]":
    """Return the task that makes the files of a batch: one for all who ask in this process."""
    key = (id(asyncio.get_running_loop()), batch_id)
    task = _making.get(key)
    if task is None:

        def answer(row: Row[Any]) -> tuple[bytes, bool]:
            return _line_of(context, row)

        make = context.run(line_batches.make_files, context.database, context.blobs, tenant, batch_id, answer)
        task = _making[key] = asyncio.ensure_future(make)
        task.add_done_callback(lambda done: _forget(key, done))
    return task


def _forget(key: tuple[int, str], done: "asyncio.Future[None]") -> None:
    """Let go of a task; whoever waits for it hears of its error."""
    _making.pop(key, None)
    if not done.cancelled():
        done.exception()


def _window_s(text: str) -> float:
    """Return a window of some hours in seconds.

    Raises:
        BadOption: it has another form, or is too long.
    """
    match = _WINDOW.fullmatch(text)
    if match is None or not 1 <= int(match[1]) <= _LONGEST_WINDOW_H:
        raise BadOption(f"completion_window is none of 1h to {_LONGEST_WINDOW_H}h", param="completion_window")
    return int(match[1]) * _HOUR_S


def _create(intake: Intake, order: Order, within: Callable[[Connection, str], None]) -> None:
    """Read the file of a batch and insert what it asks for; `within` gets the id in the same transaction.

    Raises:
        NoSuchRecord, BadOption, TooLarge, QueueFull: as their names say.
    """
    settings = intake.settings
    file = files.get_file(intake.database, intake.tenant, order.input_file_id)
    if file.purpose != "batch":
        raise BadOption(f"The file {file.id} is for {file.purpose}, not for a batch", param="input_file_id")
    if file.size_bytes > settings.api_batch_bytes:
        raise TooLarge(f"The file of a batch has at most {settings.api_batch_bytes} bytes", param="input_file_id")
    checked = line_requests.check(intake, file, order.endpoint)
    if checked.bad and checked.bad[-1].is_fatal:
        line_batches.add_failed(intake.database, intake.tenant, replace(order, bad=checked.bad[-1:]), within)
        return
    if not checked.requests:
        none = BadLine(1, "empty_file", "The file holds no request")
        line_batches.add_failed(intake.database, intake.tenant, replace(order, bad=checked.bad or [none]), within)
        return
    order = replace(order, bad=checked.bad)
    terms = Terms(expires_after_s=order.window_s, label=file.name, metadata=order.metadata)
    parts = line_requests.parts(intake, file, order.endpoint, checked.requests)
    request = {KEY: order.to_json()}
    if checked.requests > line_requests.LINES_AT_ONCE:
        submit_in_parts(intake, parts, terms, request=request, within=within)
        return

    def finish(connection: Connection, taken: Taken) -> None:
        within(connection, taken.batch_id)

    items = [item for part in parts for item in part]
    submit_many(intake, items, terms, request=request, within=finish)


def _line_of(context: Context, row: Row[Any]) -> tuple[bytes, bool]:
    """Return the line for a job that has ended, and whether it is an answer."""
    wanted = (json.loads(row.request) if row.request else {}).get(KEY, {})
    custom_id = str(wanted.get("custom_id", ""))
    if row.state == JobState.CANCELLED:
        return undone_line(row.id, custom_id, "batch_cancelled", "The batch was cancelled before"), False
    if row.state == JobState.EXPIRED:
        return undone_line(row.id, custom_id, "batch_expired", "The batch was not done within its window"), False
    try:
        if row.state != JobState.SUCCEEDED:
            raise error_of(row)
        body = _body_of(context, row.id, wanted)
    except VoicejobsError as error:
        status, told = problem(error, trace_id=row.id)
        return failed_line(row.id, custom_id, told["error"], status_code=status), False
    return output_line(row.id, custom_id, body), True


def _body_of(context: Context, job_id: str, wanted: Mapping[str, Any]) -> Any:
    """Return the answer to one request; sound lies in an artifact, which the answer names."""
    if "response_format" in wanted:
        return answer_document(transcript_of(context, job_id), wanted)
    spoken = sound_of(context, job_id)
    return {
        "object": "speech",
        "artifact_id": spoken.artifact_id,
        "content_url": f"/api/v1/artifacts/{spoken.artifact_id}/content",
        "format": spoken.format,
        "media_type": spoken.media_type,
        "bytes": spoken.size_bytes,
    }
