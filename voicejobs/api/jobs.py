"""Jobs: submit, look, follow, cancel, retry, delete."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from sqlalchemy import Connection, delete, exists, literal, select
from starlette.responses import JSONResponse

from voicejobs import control, records
from voicejobs.api import following
from voicejobs.api.access import Caller, allow
from voicejobs.api.answers import Keeper, accepted, once, wire
from voicejobs.api.bodies import PatientRoute, takes_up_to
from voicejobs.api.bodies_native import JobIn, form_schema, job_of_form
from voicejobs.api.context import Context, Here, trace_id_of
from voicejobs.api.pages import Page, Paging, answer_page, fetch_page, list_of
from voicejobs.api.problems import responses
from voicejobs.api.sinks import received
from voicejobs.errors import BadOption, WrongState
from voicejobs.intake import Intake, Item, Source, Taken, submit_one
from voicejobs.store import prune
from voicejobs.store.paths import display_name
from voicejobs.store.schema import batches, jobs
from voicejobs.store.states import FINAL_JOB, JobState
from voicejobs.submit import Blob

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], route_class=PatientRoute)

Reader = Annotated[Caller, allow("jobs:read")]
Writer = Annotated[Caller, allow("jobs:write")]
JobId = Annotated[str, Path(max_length=64, description="Id of a job.")]


def intake_of(context: Context, caller: Caller, trace_id: str) -> Intake:
    """Return where the requests of a caller go."""

    def limit(connection: Connection, tenant: str, count: int) -> None:
        context.require_room(connection, tenant)

    return Intake(context.settings, context.database, context.blobs, caller.tenant, trace_id, limit=limit)


def job_path(job_id: str) -> str:
    """Return where a job is."""
    return f"/api/v1/jobs/{job_id}"


@router.post(
    "", operation_id="create_job", status_code=202, responses=responses(400, 404, 409, 413, 415, 422, 429, 503)
)
async def create_job(body: JobIn, request: Request, context: Here, caller: Writer) -> Response:
    """Submit one job: a recording to transcribe, or a text to speak."""
    return await submit(context, caller, request, body.item(), body)


async def submit(context: Context, caller: Caller, request: Request, item: Item, body: JobIn) -> Response:
    """Insert a job and answer with its record, both in one transaction."""
    intake = intake_of(context, caller, trace_id_of(request))

    def act(keeper: Keeper) -> None:
        def within(connection: Connection, taken: Taken) -> None:
            record = records.job_of(connection, caller.tenant, taken.job_ids[0])
            keeper.keep(connection, accepted(record, job_path(record["id"])))

        submit_one(intake, item, body.terms(), within=within)

    asked = [body.model_dump(mode="json"), item.source.blob.sha256 if item.source.blob else ""]
    return await once(context, caller, request, asked, act)


@router.post(
    "/upload",
    operation_id="create_job_from_upload",
    status_code=202,
    responses=responses(400, 409, 413, 415, 422, 429, 503),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"multipart/form-data": {"schema": form_schema(), "encoding": {"file": {}}}},
        }
    },
)
@takes_up_to("api_upload_bytes")
async def create_job_from_upload(request: Request, context: Here, caller: Writer) -> Response:
    """Submit one job with its recording or text in the same request; the fields are those of `create_job`."""
    form = await received(request, context, context.settings.api_upload_bytes)
    try:
        body = job_of_form(form.fields)
        part = form.files.get("file")
        if part is None:
            raise BadOption("The form has no file", param="file")
        stored = await part.sink.commit()
    finally:
        await form.discard()
    item = body.item()
    source = Source(blob=Blob(*stored), name=body.source.name or display_name(part.filename) or "upload")
    return await submit(context, caller, request, replace(item, source=source), body)


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Choose jobs of a list."""

    status: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None
    batch_id: Annotated[str, Query(max_length=64, description="Only jobs of this batch.")] = ""
    q: Annotated[str, Query(max_length=255, description="A part of the name.")] = ""


@router.get("", operation_id="list_jobs", responses=responses(400, 422), response_model=dict[str, Any])
async def list_jobs(
    request: Request,
    context: Here,
    caller: Reader,
    page: Page,
    chosen: Annotated[JobFilter, Depends()],
) -> Response:
    """List jobs, newest first."""
    query = records.filtered(
        records.select_jobs(caller.tenant), status=chosen.status or "", batch_id=chosen.batch_id, name=chosen.q
    )
    return await answer_page(request, context, partial(_listed, context, query, page.checked("job_")))


def _listed(context: Context, query: Any, paging: Paging) -> dict[str, Any]:
    """Return a page of jobs."""
    with context.database.read() as connection:
        rows, more = fetch_page(connection, query, jobs.c.id, paging)
        return list_of(wire(records.job_records(connection, rows)), more=more)


def look(context: Context, tenant: str, job_id: str) -> dict[str, Any]:
    """Return the record of a job as it goes out."""
    with context.database.read() as connection:
        record: dict[str, Any] = wire(records.job_of(connection, tenant, job_id))
    return record


@router.get("/{job_id}", operation_id="get_job", responses=responses(404))
async def get_job(job_id: JobId, context: Here, caller: Reader) -> dict[str, Any]:
    """Tell how a job is."""
    return await context.run(look, context, caller.tenant, job_id)


@router.get("/{job_id}/attempts", operation_id="list_job_attempts", responses=responses(404))
async def list_job_attempts(job_id: JobId, context: Here, caller: Reader) -> dict[str, Any]:
    """Tell how often each step of a job was begun, and how that ended."""

    def read() -> Any:
        with context.database.read() as connection:
            return wire(records.attempts_of(connection, caller.tenant, job_id))

    return {"object": "list", "data": await context.run(read), "has_more": False}


@router.get("/{job_id}/events", operation_id="list_job_events", responses=responses(400, 404, 429))
async def list_job_events(job_id: JobId, request: Request, context: Here, caller: Reader) -> Response:
    """Follow a job as a stream (`Accept: text/event-stream`), or read what has happened to it as JSON."""
    return await following.answer(request, context, caller, following.job_topic(caller.tenant, job_id))


@router.post("/{job_id}/cancel", operation_id="cancel_job", status_code=202, responses=responses(404, 409))
async def cancel_job(job_id: JobId, context: Here, caller: Writer) -> Response:
    """Cancel a job: one that waits at once, one that runs when its worker notices. Asking again changes nothing."""

    def act() -> tuple[int, dict[str, Any]]:
        with context.database.read() as connection:
            records.demand_job(connection, caller.tenant, job_id)
        touched = control.cancel_jobs(context.database, [job_id])
        control.settle(context.database)
        return (202 if touched else 200), look(context, caller.tenant, job_id)

    status, record = await context.run(act)
    return JSONResponse(record, status, headers={"Location": job_path(job_id)})


@router.post("/{job_id}/retry", operation_id="retry_job", status_code=202, responses=responses(400, 404, 409))
async def retry_job(job_id: JobId, context: Here, caller: Writer) -> Response:
    """Take a job up again that failed, was cancelled or expired."""

    def act() -> dict[str, Any]:
        with context.database.read() as connection:
            records.demand_job(connection, caller.tenant, job_id)
        outcome = control.retry_jobs(context.database, [job_id])
        for error in outcome.refused.values():
            raise error
        if not outcome.queued:
            raise WrongState(f"The job {job_id} was taken up by somebody else")
        return look(context, caller.tenant, job_id)

    record = await context.run(act)
    return JSONResponse(record, 202, headers={"Location": job_path(job_id), "Retry-After": "2"})


@router.delete("/{job_id}", operation_id="delete_job", status_code=204, responses=responses(404, 409))
async def delete_job(job_id: JobId, context: Here, caller: Writer) -> Response:
    """Delete a job that has ended, with its transcript and what else it has left."""
    await context.run(_delete, context, caller.tenant, job_id)
    return Response(status_code=204)


def _delete(context: Context, tenant: str, job_id: str) -> None:
    """Delete a job.

    Raises:
        NoSuchRecord: there is none.
        WrongState: it is live, or another job is about to deliver its transcript.
    """
    with context.database.read() as connection:
        state = records.demand_job(connection, tenant, job_id)
        batch_id = connection.execute(select(jobs.c.batch_id).where(jobs.c.id == job_id)).scalar()
    if state not in FINAL_JOB:
        raise WrongState(f"The job {job_id} is {state}", hint="Cancel it first.")
    if not prune.remove_job(context.database, context.blobs, job_id):
        raise WrongState(
            f"Another job may need what {job_id} has left", hint="Try again when that one has ended.", retry=True
        )
    left = exists(select(literal(1)).where(jobs.c.batch_id == batch_id))
    alone = delete(batches).where(batches.c.id == batch_id, batches.c.kind == records.SINGLE, ~left)
    context.database.run(lambda connection: connection.execute(alone))
