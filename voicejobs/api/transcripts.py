"""Transcripts in every format, made from the words that are kept: nothing is recognised again."""

import json
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from io import BytesIO
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from voicejobs import formats, piecewise, records
from voicejobs.api.access import Caller, allow
from voicejobs.api.context import Context, Here
from voicejobs.api.problems import responses
from voicejobs.api.ranges import Content, serve
from voicejobs.audio.types import Transcript
from voicejobs.errors import BadOption
from voicejobs.formats import RenderOptions
from voicejobs.formats.media_types import media_type
from voicejobs.intake import naming
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])
LONGEST_FORMAT: Final = 32

_Width = Annotated[int | None, Field(ge=1, le=10_000)]


class RenderQuery(BaseModel):
    """Say how a transcript is rendered; what is left out is as the format has it."""

    model_config = ConfigDict(extra="forbid")

    subtitle_profile: Annotated[str | None, Field(max_length=32, examples=["netflix", "bbc", "plain"])] = None
    max_line_width: _Width = None
    max_line_count: _Width = None
    max_words_per_line: _Width = None
    max_chars_per_second: Annotated[float | None, Field(ge=1, le=10_000)] = None
    channel_labels: bool | None = None
    paragraphs: bool | None = None
    srt_bom: bool | None = None
    srt_crlf: bool | None = None


@router.head("/{job_id}/transcript.{form}", include_in_schema=False)
@router.get(
    "/{job_id}/transcript.{form}",
    operation_id="get_job_transcript",
    responses={
        200: {"content": {"text/plain": {}, "application/json": {}, "text/vtt": {}, "application/x-subrip": {}}},
        206: {"description": "A part."},
        304: {"description": "The caller has it."},
        **responses(400, 404, 416),
    },
    response_class=Response,
)
async def get_job_transcript(
    request: Request,
    context: Here,
    caller: Annotated[Caller, allow("artifacts:read")],
    job_id: Annotated[str, Path(max_length=64)],
    form: Annotated[str, Path(max_length=LONGEST_FORMAT, description="srt, vtt, json, native, txt and so on.")],
    query: Annotated[RenderQuery, Query()],
) -> Response:
    """Render the transcript of a job, or the captions of what it has spoken."""
    wanted = query.model_dump(exclude_none=True)
    content = await context.run(partial(_rendered, context, caller.tenant, job_id, form, wanted))
    return serve(request, content, context.run)


def _rendered(context: Context, tenant: str, job_id: str, form: str, given: Mapping[str, Any]) -> Content:
    """Return a transcript in a format.

    Raises:
        NoSuchRecord: there is no such job, or it has no transcript.
        BadOption, ExtraMissing: the format or an option cannot be had.
    """
    name = form.lower()
    with naming("format"):
        if name not in formats.FORMATS:
            raise BadOption(f"{form!r} is no format", hint=f"The formats are {', '.join(formats.FORMATS)}.")
        formats.chosen([name])
    with naming("query"):
        options = RenderOptions.from_json(given)
    with context.database.read() as connection:
        row = records.transcript_artifact(connection, tenant, job_id)
    data = formats.render(transcript_in(context.blobs, row), name, options)
    digest = sha256(data).hexdigest()
    filename = records.filename(row.source_name, "subtitles", {"format": name})
    return Content(BytesIO(data), len(data), digest, media_type(name), filename, digest)


def transcript_in(blobs: BlobStore, row: Any) -> Transcript:
    """Return the transcript that an artifact holds."""
    with blobs.open_artifact(row.sha256, row.data, packed=records.is_packed(json.loads(row.meta))) as file:
        return Transcript.from_json(piecewise.loads(file.read()))


def transcript_of(database: Database, blobs: BlobStore, tenant: str, job_id: str) -> Transcript:
    """Return the transcript of a job.

    Raises:
        NoSuchRecord: there is no such job, or it has no transcript.
    """
    with database.read() as connection:
        row = records.transcript_artifact(connection, tenant, job_id)
    return transcript_in(blobs, row)
