"""`/v1/uploads`: large files in parts, which can be sent again one by one, and go on after a break."""

from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from voicejobs.api import openai_docs as docs
from voicejobs.api.access import Caller, allow
from voicejobs.api.bodies import takes_up_to
from voicejobs.api.context import Here
from voicejobs.api.openai_files import MAX_MEDIA_TYPE, MAX_NAME, new_file
from voicejobs.api.openai_wishes import fields_of_form
from voicejobs.api.problems import responses
from voicejobs.api.shapes import part_object, upload_object
from voicejobs.api.sinks import received
from voicejobs.errors import BadOption, NoSuchRecord
from voicejobs.store import files
from voicejobs.store.files import MAX_PART_BYTES, MAX_PARTS

router = APIRouter(tags=["openai uploads"])
Reader = Annotated[Caller, allow("files:read")]
Writer = Annotated[Caller, allow("files:write")]
_FORM_BYTES = 64 * 1024
"""What the form around a part may take."""
_HASH = r"^[0-9a-fA-F]{64}$"
_MD5 = r"^[0-9a-fA-F]{32}$"


class Lifetime(BaseModel):
    """Say when a file goes."""

    model_config = ConfigDict(extra="forbid")

    anchor: str
    seconds: int


class NewUpload(BaseModel):
    """Say what will be uploaded."""

    model_config = ConfigDict(extra="forbid")

    bytes: int = Field(ge=1, description="Size of the whole.")
    filename: str = Field(min_length=1, max_length=MAX_NAME)
    mime_type: str = Field(min_length=1, max_length=MAX_MEDIA_TYPE)
    purpose: str
    expires_after: Lifetime | None = None


class Completion(BaseModel):
    """Say of which parts, in which order, the file is made."""

    model_config = ConfigDict(extra="forbid")

    part_ids: list[str] = Field(min_length=1, max_length=MAX_PARTS)
    md5: str | None = Field(default=None, pattern=_MD5)


@router.post("/v1/uploads", operation_id="create_upload", responses=responses(400, 413, 415))
async def create_upload(wanted: NewUpload, context: Here, caller: Writer) -> dict[str, Any]:
    """Begin an upload of up to 8 GiB; it must be complete within an hour."""
    life = None if wanted.expires_after is None else wanted.expires_after.model_dump()
    new = new_file(wanted.filename, wanted.purpose, wanted.mime_type, life)
    made = await context.run(files.create_upload, context.database, caller.tenant, new, size_bytes=wanted.bytes)
    return upload_object(asdict(made))


@router.get("/v1/uploads/{upload_id}", operation_id="retrieve_upload", responses=responses(400, 404))
async def retrieve_upload(upload_id: str, context: Here, caller: Reader) -> dict[str, Any]:
    """Tell of an upload, of the parts that are there, and of its file: whoever was interrupted can go on."""

    def look() -> dict[str, Any]:
        upload = files.get_upload(context.database, caller.tenant, upload_id)
        parts = files.list_parts(context.database, upload)
        made = None
        with suppress(NoSuchRecord):  # deleted, or its time is over
            made = asdict(files.get_file(context.database, caller.tenant, upload.file_id)) if upload.file_id else None
        return {**upload_object(asdict(upload), made), "parts": [part_object(asdict(part)) for part in parts]}

    return await context.run(look)


@router.post(
    "/v1/uploads/{upload_id}/parts",
    operation_id="create_upload_part",
    responses=responses(400, 404, 408, 409, 413, 415),
    openapi_extra=docs.form_body(docs.PART_FORM),
)
@takes_up_to(MAX_PART_BYTES + _FORM_BYTES)
async def create_upload_part(upload_id: str, request: Request, context: Here, caller: Writer) -> dict[str, Any]:
    """Send one part; parts may come in any order, and at once."""
    upload = await context.run(files.get_upload, context.database, caller.tenant, upload_id)
    form = await received(request, context, min(MAX_PART_BYTES, upload.size_bytes), ("data",))
    try:
        fields = fields_of_form(form.fields)
        unknown = sorted(set(fields) - {"sha256"})
        if unknown:
            raise BadOption(f"{unknown[0][:MAX_NAME]} is no field of a part", param=unknown[0][:MAX_NAME])
        if "data" not in form.files:
            raise BadOption("data is missing: the form holds no part", param="data")
        sink = form.files["data"].sink
        await sink.flush()
        part = await context.run(
            files.keep_part, context.database, context.blobs, upload, sink.writer, sha256=str(fields.get("sha256", ""))
        )
    finally:
        await form.discard()
    return part_object(asdict(part))


@router.post(
    "/v1/uploads/{upload_id}/complete", operation_id="complete_upload", responses=responses(400, 404, 409, 415)
)
async def complete_upload(upload_id: str, wanted: Completion, context: Here, caller: Writer) -> dict[str, Any]:
    """Make a file of the parts, in the order in which they are named."""

    def complete() -> dict[str, Any]:
        upload = files.get_upload(context.database, caller.tenant, upload_id)
        done, file = files.complete_upload(
            context.database, context.blobs, upload, wanted.part_ids, md5_hex=wanted.md5 or ""
        )
        return upload_object(asdict(done), asdict(file))

    return await context.run(complete)


@router.post("/v1/uploads/{upload_id}/cancel", operation_id="cancel_upload", responses=responses(400, 404, 409))
async def cancel_upload(upload_id: str, context: Here, caller: Writer) -> dict[str, Any]:
    """Cancel an upload; its parts are removed."""

    def cancel() -> dict[str, Any]:
        upload = files.get_upload(context.database, caller.tenant, upload_id)
        return upload_object(asdict(files.cancel_upload(context.database, context.blobs, upload)))

    return await context.run(cancel)
