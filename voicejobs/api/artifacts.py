"""What jobs have left behind: metadata, and content that can be had in parts."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from voicejobs import records
from voicejobs.api.access import Caller, allow
from voicejobs.api.answers import wire
from voicejobs.api.context import Context, Here
from voicejobs.api.problems import responses
from voicejobs.api.ranges import Content, serve

router = APIRouter(prefix="/api/v1/artifacts", tags=["artifacts"])

Reader = Annotated[Caller, allow("artifacts:read")]
ArtifactId = Annotated[str, Path(max_length=64, description="Id of an artifact.")]


@router.get("/{artifact_id}", operation_id="get_artifact", responses=responses(404))
async def get_artifact(artifact_id: ArtifactId, context: Here, caller: Reader) -> dict[str, Any]:
    """Tell what an artifact is; its content never changes."""

    def read() -> dict[str, Any]:
        with context.database.read() as connection:
            row = records.artifact_of(connection, caller.tenant, artifact_id)
        record: dict[str, Any] = wire(records.artifact_record(row))
        return record

    return await context.run(read)


@router.head("/{artifact_id}/content", include_in_schema=False)
@router.get(
    "/{artifact_id}/content",
    operation_id="get_artifact_content",
    responses={
        200: {"content": {"application/octet-stream": {}}},
        206: {"description": "A part.", "content": {"application/octet-stream": {}}},
        304: {"description": "The caller has it."},
        **responses(404, 416),
    },
    response_class=Response,
)
async def get_artifact_content(request: Request, artifact_id: ArtifactId, context: Here, caller: Reader) -> Response:
    """Return the content of an artifact; knows `Range`, `If-Range` and `If-None-Match`."""
    content = await context.run(content_of, context, caller.tenant, artifact_id)
    return serve(request, content, context.run)


def content_of(context: Context, tenant: str, artifact_id: str) -> Content:
    """Open an artifact of a tenant.

    Raises:
        NoSuchRecord: the tenant has none of this id.
    """
    with context.database.read() as connection:
        row = records.artifact_of(connection, tenant, artifact_id)
    meta = json.loads(row.meta)
    packed = records.is_packed(meta)
    file = context.blobs.open_artifact(row.sha256, row.data, packed=packed)
    size = file.seek(0, 2)
    file.seek(0)
    name = records.filename(row.source_name, row.kind, meta)
    return Content(file, size, row.sha256, records.media_type(meta), name, "" if packed else row.sha256)
