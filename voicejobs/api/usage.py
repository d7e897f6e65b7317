"""What a tenant had done, and what it may ask for."""

import time
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from voicejobs.api.access import Caller, allow
from voicejobs.api.context import Here
from voicejobs.api.problems import responses
from voicejobs.api.times import moment
from voicejobs.errors import BadOption
from voicejobs.store import quotas

router = APIRouter(prefix="/api/v1", tags=["usage"])
DAY_S = 86_400.0
DEFAULT_DAYS, MOST_DAYS = 30, 366
LATEST_S = 253_402_300_799.0
"""The last second that a time of four digits for the year can name."""
Reader = Annotated[Caller, allow("jobs:read")]
Moment = Annotated[float | None, Query(ge=0, le=LATEST_S, description="Unix seconds.")]


class UsageShown(BaseModel):
    """What the tenant had done with jobs submitted from `since` to `until`, and what it keeps now."""

    object: str = "usage"
    tenant: str
    since: str
    until: str
    jobs: dict[str, int] = Field(description="Number of jobs by state.", examples=[{"succeeded": 12, "failed": 1}])
    audio_s: float = Field(description="Seconds of audio of the jobs that succeeded.")
    files: int
    file_bytes: int


class RequestLimits(BaseModel):
    """How often the key may ask, and how much at once; 0 for no limit."""

    per_minute: float
    concurrency: float
    running: int


class QueueLimits(BaseModel):
    """How much the tenant may have in the queue or at work (0 for no limit), and what it has."""

    jobs: int
    audio_s: float
    jobs_now: int
    audio_s_now: float = Field(description="As far as it is known.")


class LimitsShown(BaseModel):
    """The limits that hold for the caller."""

    object: str = "limits"
    tenant: str
    requests: RequestLimits
    queue: QueueLimits
    max_body_bytes: int


@router.get("/usage", operation_id="get_usage", responses=responses(400))
async def get_usage(context: Here, caller: Reader, since: Moment = None, until: Moment = None) -> UsageShown:
    """Tell what the tenant had done, in the last 30 days by default and in 366 at most."""
    end = time.time() if until is None else until
    begin = max(end - DEFAULT_DAYS * DAY_S, 0.0) if since is None else since
    if not begin <= end or end - begin > MOST_DAYS * DAY_S:
        raise BadOption(f"`since` is at most {MOST_DAYS} days before `until`", param="since")
    found = await context.run(quotas.usage_of, context.database, caller.tenant, since=begin, until=end)
    return UsageShown(
        tenant=caller.tenant,
        since=moment(begin) or "",
        until=moment(end) or "",
        jobs=dict(found.jobs),
        audio_s=found.audio_s,
        files=found.files,
        file_bytes=found.file_bytes,
    )


@router.get("/limits", operation_id="get_limits")
async def get_limits(context: Here, caller: Reader) -> LimitsShown:
    """Tell the limits that hold for the caller, and how far they are used."""

    def fetch() -> quotas.Load:
        with context.database.read() as connection:
            return quotas.load_of(connection, caller.tenant)

    has = await context.run(fetch)
    gauge, quota = context.gauge, context.quota
    return LimitsShown(
        tenant=caller.tenant,
        requests=RequestLimits(
            per_minute=caller.limits.get("requests_per_minute", gauge.requests_per_minute),
            concurrency=caller.limits.get("concurrency", gauge.concurrency),
            running=gauge.running(caller.gauge_name),
        ),
        queue=QueueLimits(jobs=quota.jobs, audio_s=quota.audio_s, jobs_now=has.jobs, audio_s_now=has.audio_s),
        max_body_bytes=context.settings.api_max_body_bytes,
    )
