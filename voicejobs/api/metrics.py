"""The page of metrics that Prometheus reads: rows, workers, and this process itself."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter, Response
from prometheus_client.core import Metric

from voicejobs import spans
from voicejobs.api.access import Caller, allow
from voicejobs.api.context import Context, Here, Lag
from voicejobs.api.problems import responses
from voicejobs.hosting.figures import resident_bytes
from voicejobs.metrics.families import counter, gauge, histogram
from voicejobs.metrics.page import CONTENT_TYPE, Metrics

router = APIRouter(tags=["service"])


@router.get(
    "/metrics",
    operation_id="get_metrics",
    response_class=Response,
    responses={200: {"description": "Metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}},
               **responses(401, 403, 429, 503)},
)  # fmt: skip
async def get_metrics(context: Here, caller: Annotated[Caller, allow("metrics")]) -> Response:
    """Return the metrics of the installation in Prometheus' text format; of all tenants together."""
    return Response(await context.run(context.metrics.page), media_type=CONTENT_TYPE)


@asynccontextmanager
async def watch(context: Context) -> AsyncIterator[None]:
    """Make what the page is read from, and send spans where a collector is named."""
    context.metrics = Metrics(context.database, lambda: own_families(context))
    spans.configure(context.settings.otel_endpoint, "api")
    try:
        yield
    finally:
        await asyncio.to_thread(spans.close)


def own_families(context: Context) -> Iterator[Metric]:
    """Yield what this process counts of itself."""
    requests, lag = context.requests, context.lag
    ended, seconds = dict(requests.ended), dict(requests.seconds)  # copies: the loop counts on in its thread
    yield counter(
        "api_requests",
        "Requests that have ended.",
        [({"method": method, "route": route, "status": str(code)}, n) for (method, route, code), n in ended.items()],
    )
    yield counter(
        "api_request_seconds",
        "Time that they took together.",
        [({"method": method, "route": route}, spent) for (method, route), spent in seconds.items()],
    )
    yield gauge("api_running_requests", "Requests under way.", [({}, requests.running)])
    yield counter("api_received_bytes", "Bytes of bodies that were received.", [({}, requests.received_bytes)])
    yield gauge("api_started_seconds", "When this process began, in unix seconds.", [({}, context.started_at)])
    yield gauge("api_resident_bytes", "Resident memory of this process.", [({}, resident_bytes([os.getpid()]))])
    steps = [*((step_s, lag.below[step_s]) for step_s in Lag.STEPS_S), (float("inf"), lag.count)]
    yield histogram("api_loop_lag_seconds", "How late the event loop of this process is.", [({}, steps, lag.sum_s)])
    yield gauge("api_loop_lag_worst_seconds", "The worst of that since it began.", [({}, lag.worst_s)])
