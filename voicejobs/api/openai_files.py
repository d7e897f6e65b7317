"""`/v1/files`: files that are uploaded in one piece, and those that batches leave behind."""

from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import FileResponse

from voicejobs.api import openai_docs as docs
from voicejobs.api.access import Caller, allow
from voicejobs.api.bodies import takes_up_to
from voicejobs.api.context import Here
from voicejobs.api.openai_wishes import fields_of_form
from voicejobs.api.pages import Page, link_next, list_of
from voicejobs.api.problems import responses
from voicejobs.api.shapes import file_object
from voicejobs.api.sinks import received
from voicejobs.errors import BadOption
from voicejobs.store import files
from voicejobs.store.files import NewFile

router = APIRouter(tags=["openai files"])
PURPOSES: Final = ("assistants", "batch", "evals", "fine-tune", "user_data", "vision")
"""What OpenAI's clients may say that a file is for; only `batch` matters here."""
ALL_PURPOSES: Final = (*PURPOSES, "batch_output")
SHORTEST_LIFE_S, LONGEST_LIFE_S = 3600, 30 * 86_400
MAX_NAME = 255
MAX_MEDIA_TYPE = 127
Reader = Annotated[Caller, allow("files:read")]
Writer = Annotated[Caller, allow("files:write")]
FILE_PREFIX = "file_"


@router.post(
    "/v1/files",
    operation_id="create_file",
    responses=responses(400, 408, 413, 415),
    openapi_extra=docs.form_body(docs.FILE_FORM),
)
@takes_up_to("api_upload_bytes")
async def create_file(request: Request, context: Here, caller: Writer) -> dict[str, Any]:
    """Upload a file in one piece; larger ones go in parts, by `/v1/uploads`."""
    form = await received(request, context, context.settings.api_upload_bytes)
    try:
        fields = fields_of_form(form.fields)
        unknown = sorted(set(fields) - {"purpose", "expires_after"})
        if unknown:
            raise BadOption(f"{unknown[0][:MAX_NAME]} is no field of a file", param=unknown[0][:MAX_NAME])
        part = form.files.get("file")
        if part is None:
            raise BadOption("file is missing: the form holds none", param="file")
        new = new_file(part.filename, fields.get("purpose"), part.media_type, fields.get("expires_after"))
        stored = await part.sink.commit()
    finally:
        await form.discard()
    made = await context.run(files.add_file, context.database, caller.tenant, stored, new)
    return file_object(asdict(made))


@router.get("/v1/files", operation_id="list_files", responses=responses(400))
async def list_files(
    request: Request,
    response: Response,
    context: Here,
    caller: Reader,
    page: Page,
    purpose: Annotated[str | None, Query(max_length=32)] = None,
) -> dict[str, Any]:
    """List files, newest first."""
    wanted = page.checked(FILE_PREFIX)
    found = await context.run(
        files.list_files,
        context.database,
        caller.tenant,
        purpose=purpose or "",
        after=wanted.after or "",
        limit=wanted.limit + 1,
        newest_first=wanted.order == "desc",
    )
    shown = [file_object(asdict(one)) for one in found[: wanted.limit]]
    return link_next(request, response, list_of(shown, more=len(found) > wanted.limit))


@router.get("/v1/files/{file_id}", operation_id="retrieve_file", responses=responses(400, 404))
async def retrieve_file(file_id: str, context: Here, caller: Reader) -> dict[str, Any]:
    """Tell of a file."""
    return file_object(asdict(await context.run(files.get_file, context.database, caller.tenant, file_id)))


@router.delete("/v1/files/{file_id}", operation_id="delete_file", responses=responses(400, 404))
async def delete_file(file_id: str, context: Here, caller: Writer) -> dict[str, Any]:
    """Delete a file; jobs that were submitted with it keep its bytes until they have ended."""
    await context.run(files.delete_file, context.database, caller.tenant, file_id)
    return {"id": file_id, "object": "file", "deleted": True}


@router.get(
    "/v1/files/{file_id}/content",
    operation_id="retrieve_file_content",
    responses={**responses(400, 404), **docs.CONTENT_ANSWERS},
    response_class=Response,
)
async def retrieve_file_content(file_id: str, context: Here, caller: Reader) -> Response:
    """Return the bytes of a file, or those that the header `Range` names."""
    found = await context.run(files.get_file, context.database, caller.tenant, file_id)
    path = await context.run(context.blobs.raw_path, found.sha256)
    return FileResponse(
        path,
        media_type="application/octet-stream",
        filename=found.name,
        stat_result=await context.run(path.stat),
        headers={"etag": f'"sha256-{found.sha256}"', "x-content-type-options": "nosniff"},
    )


def new_file(name: str, purpose: Any, media_type: str, expires_after: Any) -> NewFile:
    """Return the description of a file as a request gives it.

    Raises:
        BadOption: the purpose is unknown, or the time is none that a file may have.
    """
    if purpose not in PURPOSES:
        raise BadOption(f"purpose is none of {', '.join(PURPOSES)}", param="purpose")
    clean = "".join(letter for letter in name if letter.isprintable()).strip()[:MAX_NAME] or "file"
    kind = media_type.strip().lower()[:MAX_MEDIA_TYPE]
    if not kind.isascii() or "/" not in kind or not kind.isprintable():
        kind = "application/octet-stream"
    return NewFile(clean, purpose, kind, life_s(expires_after))


def life_s(wanted: Any) -> float | None:
    """Return after how many seconds a file goes: what OpenAI's `expires_after` says; None where it says nothing.

    Raises:
        BadOption: it has another form, or the time is out of its range.
    """
    if wanted is None:
        return None
    if not isinstance(wanted, dict) or set(wanted) - {"anchor", "seconds"} or wanted.get("anchor") != "created_at":
        raise BadOption("expires_after is no object with the anchor created_at and seconds", param="expires_after")
    seconds = wanted.get("seconds")
    try:
        whole = int(seconds) if isinstance(seconds, str | int) and not isinstance(seconds, bool) else 0
    except ValueError:
        whole = 0
    if not SHORTEST_LIFE_S <= whole <= LONGEST_LIFE_S:
        limits = f"{SHORTEST_LIFE_S} to {LONGEST_LIFE_S}"
        raise BadOption(f"expires_after.seconds must be from {limits}", param="expires_after")
    return float(whole)
