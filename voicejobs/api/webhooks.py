"""Webhooks over REST: make, change, test, rotate and remove them; their log, and delivering once more."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from voicejobs.api.access import Caller, allow
from voicejobs.api.context import Context, Here
from voicejobs.api.pages import Page, fetch_page, link_next, list_of
from voicejobs.api.problems import responses
from voicejobs.api.times import moment
from voicejobs.errors import RateLimited, SecretUnusable
from voicejobs.notify import Notifier
from voicejobs.outbound.address import MAX_URL_CHARS
from voicejobs.receivers import Made, Receivers
from voicejobs.store import webhooks as rows
from voicejobs.store.schema import deliveries, webhooks

router = APIRouter(prefix="/api/v1/webhooks", tags=["webhooks"])
_logger = logging.getLogger(__name__)
MOST_TYPES = 20
MOST_TESTS = 4
"""Tests under way at once: each holds one of the few threads of the service until its receiver answers."""
MOST_TESTS_OF_ONE = 2
"""Of these, those of one tenant."""

Who = Annotated[Caller, allow("webhooks")]
WebhookId = Annotated[str, Path(max_length=64, description="Id of the webhook.")]
DeliveryId = Annotated[str, Path(max_length=64, description="Id of the delivery.")]
Url = Annotated[
    str,
    Field(max_length=MAX_URL_CHARS, description="Where messages go.", examples=["https://receiver.example/voicejobs"]),
]
Types = Annotated[
    list[Annotated[str, Field(max_length=32)]],
    Field(max_length=MOST_TYPES, description="What it hears of; `job.*` and `batch.*` name all of a kind."),
]


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Hold what a route needs to answer with a page."""

    page: Page
    request: Request
    response: Response


Sheet = Annotated[ListRequest, Depends()]


class NewWebhook(BaseModel):
    """Ask for a webhook; without `types` it hears of the end of every job and every batch."""

    model_config = ConfigDict(extra="forbid")

    url: Url
    types: Types = []


class WebhookChanges(BaseModel):
    """Say what is to be otherwise; what is left out stays."""

    model_config = ConfigDict(extra="forbid")

    url: Url | None = None
    types: Types | None = None
    enabled: bool | None = Field(None, description="Disable it by hand, or enable it again.")


class Webhook(BaseModel):
    """A receiver of events."""

    id: str
    object: Literal["webhook"] = "webhook"
    url: str
    types: list[str]
    status: str = Field(description="`active` or `disabled`; more words may come.")
    reason: str | None = Field(description="Why it is disabled.")
    created_at: str
    rotated_at: str | None = Field(description="Its secret was changed then; for 24 h the old one signs as well.")
    paused_until: str | None = Field(description="Its receiver asked to be left alone until then.")


class WebhookWithSecret(Webhook):
    """A webhook with its secret, which is shown this once."""

    secret: str = Field(description="`whsec_` and base64: what messages are signed with.")


class Delivery(BaseModel):
    """A message that a webhook was sent, or is owed."""

    id: str
    object: Literal["webhook.delivery"] = "webhook.delivery"
    webhook_id: str
    event_id: str = Field(description="The `webhook-id` of the message, the same at every attempt.")
    type: str
    status: str = Field(description="`pending`, `delivered`, `failed` or `dropped`; more words may come.")
    attempts: int
    status_code: int | None = Field(description="What the receiver answered last.")
    error: str | None
    created_at: str
    next_attempt_at: str | None
    finished_at: str | None


class WebhookList(BaseModel):
    """A page of webhooks."""

    object: Literal["list"] = "list"
    data: list[Webhook]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeliveryList(BaseModel):
    """A page of deliveries."""

    object: Literal["list"] = "list"
    data: list[Delivery]
    first_id: str | None
    last_id: str | None
    has_more: bool


@router.post("", status_code=201, operation_id="create_webhook", responses=responses(400, 429))
async def create_webhook(wanted: NewWebhook, context: Here, caller: Who, response: Response) -> WebhookWithSecret:
    """Make a webhook. Its secret is in this answer and nowhere else; to see one again, rotate it."""
    made = await context.run(_receivers(context).add, caller.tenant, wanted.url, wanted.types)
    response.headers["Location"] = f"{router.prefix}/{made.webhook.id}"
    return _with_secret(made)


@router.get("", operation_id="list_webhooks", responses=responses(400))
async def list_webhooks(context: Here, caller: Who, sheet: Sheet) -> WebhookList:
    """List the webhooks of the tenant."""

    def read() -> dict[str, Any]:
        with context.database.read() as connection:
            query = webhooks.select().where(webhooks.c.tenant == caller.tenant)
            found, more = fetch_page(connection, query, webhooks.c.id, sheet.page.checked("wh_"))
        return list_of([webhook_json(row) for row in found], more=more)

    return WebhookList(**link_next(sheet.request, sheet.response, await context.run(read)))


@router.get("/{webhook_id}", operation_id="get_webhook", responses=responses(404))
async def get_webhook(webhook_id: WebhookId, context: Here, caller: Who) -> Webhook:
    """Show a webhook."""
    return Webhook(**webhook_json(await context.run(_receivers(context).get, caller.tenant, webhook_id)))


@router.patch("/{webhook_id}", operation_id="update_webhook", responses=responses(400, 404))
async def update_webhook(webhook_id: WebhookId, changes: WebhookChanges, context: Here, caller: Who) -> Webhook:
    """Change address or types of a webhook, disable it, or enable it again."""
    row = await context.run(_receivers(context).change, caller.tenant, webhook_id, changes.model_dump())
    return Webhook(**webhook_json(row))


@router.delete("/{webhook_id}", status_code=204, operation_id="delete_webhook", responses=responses(404))
async def delete_webhook(webhook_id: WebhookId, context: Here, caller: Who) -> None:
    """Remove a webhook, and the log of its deliveries with it."""
    await context.run(_receivers(context).remove, caller.tenant, webhook_id)


class RunningTests:
    """Count the tests under way in this process, by tenant; used on the event loop alone."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()

    @contextmanager
    def one_more(self, tenant: str) -> Iterator[None]:
        """Count a test until it has ended.

        Raises:
            RateLimited: as many as may be are under way, of this tenant or of all.
        """
        if self._running[tenant] >= MOST_TESTS_OF_ONE:
            raise RateLimited(f"{MOST_TESTS_OF_ONE} tests of your webhooks are under way already", retry_after_s=5)
        if self._running.total() >= MOST_TESTS:
            raise RateLimited(f"{MOST_TESTS} tests of webhooks are under way, as many as may be", retry_after_s=5)
        self._running[tenant] += 1
        try:
            yield
        finally:
            self._running[tenant] -= 1
            if not self._running[tenant]:
                del self._running[tenant]


_tests = RunningTests()


@router.post("/{webhook_id}/test", operation_id="test_webhook", responses=responses(404, 429))
async def test_webhook(webhook_id: WebhookId, context: Here, caller: Who) -> Delivery:
    """Send a message of the type `webhook.test` now, once, and tell what the receiver made of it."""
    with _tests.one_more(caller.tenant):
        row = await context.run(_receivers(context).test, caller.tenant, webhook_id)
    return Delivery(**delivery_json(row))


@router.post("/{webhook_id}/rotate-secret", operation_id="rotate_webhook_secret", responses=responses(404))
async def rotate_webhook_secret(webhook_id: WebhookId, context: Here, caller: Who) -> WebhookWithSecret:
    """Give a webhook a new secret. For 24 hours messages are signed with the old one, too."""
    return _with_secret(await context.run(_receivers(context).rotate, caller.tenant, webhook_id))


@router.get("/{webhook_id}/deliveries", operation_id="list_webhook_deliveries", responses=responses(400, 404))
async def list_webhook_deliveries(
    webhook_id: WebhookId,
    context: Here,
    caller: Who,
    sheet: Sheet,
    status: Annotated[
        Literal["pending", "delivered", "failed", "dropped"] | None, Query(description="Only those in this state.")
    ] = None,
) -> DeliveryList:
    """List what a webhook was sent and is owed, of the last 30 days."""

    def read() -> dict[str, Any]:
        _receivers(context).get(caller.tenant, webhook_id)
        with context.database.read() as connection:
            query = rows.of_webhook(webhook_id, state=status or "")
            found, more = fetch_page(connection, query, deliveries.c.id, sheet.page.checked("dlv_"))
        return list_of([delivery_json(row) for row in found], more=more)

    return DeliveryList(**link_next(sheet.request, sheet.response, await context.run(read)))


@router.post(
    "/{webhook_id}/deliveries/{delivery_id}/redeliver",
    status_code=202,
    operation_id="redeliver_webhook_delivery",
    responses=responses(404, 409),
)
async def redeliver_webhook_delivery(
    webhook_id: WebhookId, delivery_id: DeliveryId, context: Here, caller: Who
) -> Delivery:
    """Send a message once more that has arrived or was given up: the same id, the same body, signed anew."""
    row = await context.run(_receivers(context).redeliver, caller.tenant, webhook_id, delivery_id)
    return Delivery(**delivery_json(row))


@asynccontextmanager
async def tell_webhooks(context: Context) -> AsyncIterator[None]:
    """Tell webhooks what ends, for as long as the service runs; without a secret nothing is sent, and the log says so.

    Raises:
        BadOption: a setting of webhooks has the wrong form.
    """
    receivers = _receivers(context)
    receivers.check()
    try:
        await asyncio.to_thread(receivers.require_secret)
    except SecretUnusable as error:
        _logger.warning(
            "webhooks cannot be signed: none is made, and none is told",
            extra={"error": error.message, "code": error.code, "hint": error.hint},
        )
    notifier = Notifier(receivers)
    notifier.start()
    try:
        yield
    finally:
        await asyncio.to_thread(notifier.close)


def _receivers(context: Context) -> Receivers:
    """Return the webhooks of this installation."""
    return Receivers(context.settings, context.database)


def webhook_json(row: Any) -> dict[str, Any]:
    """Return what is shown of the row of a webhook."""
    return {
        "id": row.id,
        "object": "webhook",
        "url": row.url,
        "types": json.loads(row.types),
        "status": row.state,
        "reason": row.reason,
        "created_at": moment(row.created_at),
        "rotated_at": moment(row.rotated_at),
        "paused_until": moment(row.paused_until),
    }


def delivery_json(row: Any) -> dict[str, Any]:
    """Return what is shown of the row of a delivery."""
    return {
        "id": row.id,
        "object": "webhook.delivery",
        "webhook_id": row.webhook_id,
        "event_id": row.event_id,
        "type": row.type,
        "status": row.state,
        "attempts": row.attempts,
        "status_code": row.status_code,
        "error": row.error,
        "created_at": moment(row.created_at),
        "next_attempt_at": moment(max(row.next_at, row.created_at)) if row.state == rows.PENDING else None,
        "finished_at": moment(row.finished_at),
    }


def _with_secret(made: Made) -> WebhookWithSecret:
    """Return a webhook as it is shown once."""
    return WebhookWithSecret(**webhook_json(made.webhook), secret=made.secret)
