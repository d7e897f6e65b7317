"""Put the app of the service together: routers, layers around them, and what runs beside them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware

from voicejobs import __version__
from voicejobs.api import (
    artifacts,
    batches,
    catalogue,
    events,
    following,
    health,
    jobs,
    keys,
    live,
    metrics,
    openai_audio,
    openai_batches,
    openai_files,
    openai_models,
    openai_uploads,
    openapi,
    previews,
    problems,
    transcripts,
    usage,
    webhooks,
)
from voicejobs.api.access import Need, needs
from voicejobs.api.bodies import Bodies
from voicejobs.api.context import Context
from voicejobs.api.headers import Envelope, words

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    metrics.router,
    jobs.router,
    transcripts.router,
    batches.router,
    artifacts.router,
    events.router,
    previews.router,  # before the ids of voices, which may have slashes in them
    catalogue.router,
    keys.router,
    usage.router,
    webhooks.router,
    openai_audio.router,
    openai_models.router,
    openai_files.router,
    openai_uploads.router,
    openai_batches.router,
    live.router,
    openapi.router,
)
"""Every router of the service; each has its tag."""

COMPANIONS: tuple[Callable[[Context], AbstractAsyncContextManager[None]], ...] = (
    health.measure_lag,
    following.follow_changes,
    webhooks.tell_webhooks,
    metrics.watch,
)
"""What runs beside the requests: entered when the service starts, in this order, and left when it ends."""


def create_app(context: Context, *, loopback: bool = True) -> FastAPI:
    """Return the app.

    Args:
        context: what its routes need; the app closes it when it ends.
        loopback: whether it is served to this machine alone.

    Raises:
        RuntimeError: a route says neither `allow(...)` nor `public()`.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as companions:
            for companion in COMPANIONS:
                await companions.enter_async_context(companion(context))
            yield

    app = FastAPI(
        title="voicejobs",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.context = context
    app.openapi = partial(openapi.described, app)  # type: ignore[method-assign] # FastAPI's documented way
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    app.add_middleware(Bodies, context=context, needs=_required(app))
    origins = list(words(context.settings.api_origins))
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=["*", "x-request-id", "location", "link", "retry-after", "etag"],
        )
    app.add_middleware(Envelope, context=context, loopback=loopback)
    return app


def _required(app: FastAPI) -> dict[Any, Need]:
    """Return by endpoint what each route needs.

    Raises:
        RuntimeError: one of them says nothing.
    """
    found: dict[Any, Need] = {}
    for path, endpoint, need in needs(app):
        if need is None:
            raise RuntimeError(f"{path} says neither allow(...) nor public()")
        found[endpoint] = need
    return found
