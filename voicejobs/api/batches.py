"""Batches: many jobs submitted, followed, cancelled and fetched together."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from sqlalchemy import Connection
from starlette.responses import JSONResponse, StreamingResponse

from voicejobs import control, formats, records
from voicejobs.api import following
from voicejobs.api.access import Caller, allow
from voicejobs.api.answers import Keeper, accepted, once, wire
from voicejobs.api.archive import Archive
from voicejobs.api.bodies import takes_up_to
from voicejobs.api.bodies_native import (
    MAX_MANIFEST_BYTES,
    BatchIn,
    ItemIn,
    items_of,
    parse_batch,
    read_items,
    whole_schema,
)
from voicejobs.api.context import Context, Here, TraceId
from voicejobs.api.jobs import intake_of
from voicejobs.api.pages import Page, Paging, answer_page, fetch_page, list_of
from voicejobs.api.problems import responses
from voicejobs.api.ranges import disposition
from voicejobs.errors import BadManifest, BadOption, WrongState
from voicejobs.formats import RenderOptions
from voicejobs.intake import Taken, naming, submit_many
from voicejobs.store import files
from voicejobs.store.schema import batches, jobs
from voicejobs.store.states import BatchState, JobState
from voicejobs.submit import cancel_batch as cancel

router = APIRouter(prefix="/api/v1/batches", tags=["batches"])
MAX_BODY_BYTES: Final = 32 << 20

Reader = Annotated[Caller, allow("jobs:read")]
Writer = Annotated[Caller, allow("jobs:write")]
BatchId = Annotated[str, Path(max_length=64, description="Id of a batch.")]


def batch_path(batch_id: str) -> str:
    """Return where a batch is."""
    return f"/api/v1/batches/{batch_id}"


@router.post(
    "",
    operation_id="create_batch",
    status_code=202,
    responses=responses(400, 404, 409, 413, 422, 429, 503),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": whole_schema(BatchIn)}},
        }
    },
)
@takes_up_to(MAX_BODY_BYTES)
async def create_batch(request: Request, context: Here, caller: Writer, trace_id: TraceId) -> Response:
    """Submit up to 10,000 jobs, named here or in an uploaded file with one JSON object a line; all or none of them."""
    data = await request.body()
    body, given = await context.run(parse_batch, data)
    intake = intake_of(context, caller, trace_id)

    def act(keeper: Keeper) -> None:
        def within(connection: Connection, taken: Taken) -> None:
            record = records.batch_of(connection, caller.tenant, taken.batch_id)
            keeper.keep(connection, accepted(record, batch_path(record["id"])))

        found = items_of(_items(context, caller, given, body.input_file_id), body.defaults)
        submit_many(intake, found, body.batch_terms(), within=within)

    return await once(context, caller, request, await context.run(_digest, data), act)


def _digest(data: bytes) -> str:
    """Return the SHA-256 of a body."""
    return sha256(data).hexdigest()


def _items(context: Context, caller: Caller, given: list[ItemIn], file_id: str) -> list[ItemIn]:
    """Return the items of a batch: those of the body, or those of the file that it names.

    Raises:
        BadOption: there are both, or none.
        NoSuchRecord: there is no such file.
        BadManifest: a line of it cannot be read.
    """
    if bool(given) == bool(file_id):
        raise BadOption("A batch has either items or an input_file_id", param="items")
    if given:
        return given
    with naming("input_file_id"):
        file = files.get_file(context.database, caller.tenant, file_id)
        if file.size_bytes > MAX_MANIFEST_BYTES:
            raise BadManifest(f"The manifest is larger than {MAX_MANIFEST_BYTES} bytes")
        with context.blobs.open_raw(file.sha256) as stream:
            return read_items(stream)


@router.get("", operation_id="list_batches", responses=responses(400, 422), response_model=dict[str, Any])
async def list_batches(
    request: Request,
    context: Here,
    caller: Reader,
    page: Page,
    status: Annotated[BatchState | None, Query(description="Only batches in this state.")] = None,
) -> Response:
    """List batches, newest first."""
    query = records.select_batches(caller.tenant)
    if status is not None:
        query = query.where(batches.c.state == status)
    checked = page.checked("batch_")

    def read() -> dict[str, Any]:
        with context.database.read() as connection:
            rows, more = fetch_page(connection, query, batches.c.id, checked)
            return list_of(wire(records.batch_records(connection, rows)), more=more)

    return await answer_page(request, context, read)


def _look(context: Context, tenant: str, batch_id: str) -> dict[str, Any]:
    """Return the record of a batch as it goes out."""
    with context.database.read() as connection:
        record: dict[str, Any] = wire(records.batch_of(connection, tenant, batch_id))
    return record


@router.get("/{batch_id}", operation_id="get_batch", responses=responses(404))
async def get_batch(batch_id: BatchId, context: Here, caller: Reader) -> dict[str, Any]:
    """Tell how a batch is."""
    return await context.run(_look, context, caller.tenant, batch_id)


@dataclass(frozen=True, slots=True)
class ItemFilter:
    """Choose a page of the jobs of a batch."""

    page: Page
    status: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None


@router.get(
    "/{batch_id}/items",
    operation_id="list_batch_items",
    responses=responses(400, 404, 422),
    response_model=dict[str, Any],
)
async def list_batch_items(
    request: Request,
    context: Here,
    caller: Reader,
    batch_id: BatchId,
    chosen: Annotated[ItemFilter, Depends()],
) -> Response:
    """List the jobs of a batch; `order=asc` is the order of its items."""
    checked: Paging = chosen.page.checked("job_")

    def read() -> dict[str, Any]:
        with context.database.read() as connection:
            records.demand_batch(connection, caller.tenant, batch_id)
            mine = records.select_jobs(caller.tenant)
            query = records.filtered(mine, status=chosen.status or "", batch_id=batch_id)
            rows, more = fetch_page(connection, query, jobs.c.id, checked)
            return list_of(wire(records.job_records(connection, rows)), more=more)

    return await answer_page(request, context, read)


@router.get("/{batch_id}/events", operation_id="list_batch_events", responses=responses(400, 404, 429))
async def list_batch_events(batch_id: BatchId, request: Request, context: Here, caller: Reader) -> Response:
    """Follow a batch and its jobs as a stream (`Accept: text/event-stream`), or read what has happened as JSON."""
    return await following.answer(request, context, caller, following.batch_topic(caller.tenant, batch_id))


@router.post("/{batch_id}/cancel", operation_id="cancel_batch", status_code=202, responses=responses(404, 409))
async def cancel_batch(batch_id: BatchId, context: Here, caller: Writer) -> Response:
    """Cancel what a batch has not finished; what has ended stays. Asking again changes nothing."""
    status, record = await context.run(_cancel, context, caller.tenant, batch_id)
    return JSONResponse(record, status, headers={"Location": batch_path(batch_id)})


def _cancel(context: Context, tenant: str, batch_id: str) -> tuple[int, dict[str, Any]]:
    """Cancel a batch.

    Raises:
        NoSuchRecord: there is none.
        WrongState: it has ended otherwise.
    """
    with context.database.read() as connection:
        state = records.demand_batch(connection, tenant, batch_id)
    if state not in {BatchState.IN_PROGRESS, BatchState.CANCELLING, BatchState.CANCELLED}:
        raise WrongState(f"The batch {batch_id} is {state}, and cannot be cancelled")
    if state == BatchState.IN_PROGRESS:
        cancel(context.database, batch_id)
    return (202 if state == BatchState.IN_PROGRESS else 200), _look(context, tenant, batch_id)


@router.post("/{batch_id}/retry-failed", operation_id="retry_batch", status_code=202, responses=responses(404))
async def retry_batch(batch_id: BatchId, context: Here, caller: Writer) -> Response:
    """Take up again the jobs of a batch that failed or expired; `retried` and `refused` tell how many."""

    def act() -> dict[str, Any]:
        with context.database.read() as connection:
            records.demand_batch(connection, caller.tenant, batch_id)
        outcome = control.retry_batch(context.database, batch_id, (JobState.FAILED, JobState.EXPIRED))
        record = _look(context, caller.tenant, batch_id)
        return {**record, "retried": len(outcome.queued), "refused": len(outcome.refused)}

    record = await context.run(act)
    return JSONResponse(record, 202, headers={"Location": batch_path(batch_id), "Retry-After": "2"})


@router.get(
    "/{batch_id}/archive",
    operation_id="get_batch_archive",
    responses={200: {"content": {"application/zip": {}}}, **responses(400, 404)},
    response_class=Response,
)
async def get_batch_archive(
    batch_id: BatchId,
    context: Here,
    caller: Annotated[Caller, allow("artifacts:read")],
    output_formats: Annotated[str, Query(max_length=200, description="Names with commas between.")] = "",
) -> Response:
    """Return what the jobs of a batch have left as a ZIP file, made while it is sent; `results.jsonl` lists all."""

    def prepare() -> Iterator[bytes]:
        with context.database.read() as connection:
            records.demand_batch(connection, caller.tenant, batch_id)
        with naming("output_formats"):
            names = formats.chosen([output_formats]) if output_formats else []
        return Archive(context, caller.tenant, batch_id, names, RenderOptions()).chunks()

    chunks = await context.run(prepare)
    headers = {"Content-Disposition": disposition(f"{batch_id}.zip"), "Cache-Control": "no-store"}
    return StreamingResponse(chunks, media_type="application/zip", headers=headers)
