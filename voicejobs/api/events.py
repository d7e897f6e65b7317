"""All that happens to a tenant's jobs and batches."""

from typing import Annotated

from fastapi import APIRouter, Request
from starlette.responses import Response

from voicejobs.api import following
from voicejobs.api.access import Caller, allow
from voicejobs.api.context import Here
from voicejobs.api.following import Topic
from voicejobs.api.problems import responses
from voicejobs.store.events import Scope

router = APIRouter(prefix="/api/v1", tags=["events"])


@router.get("/events", operation_id="list_events", responses=responses(400, 410, 429))
async def list_events(request: Request, context: Here, caller: Annotated[Caller, allow("jobs:read")]) -> Response:
    """Follow what happens as a stream (`Accept: text/event-stream`), or read what has happened as JSON.

    `Last-Event-ID`, or the parameter `after`, names the last event that was read.
    """
    return await following.answer(request, context, caller, Topic(Scope(caller.tenant)))
