"""API keys over HTTP, for callers with the scope `admin`: those of their own tenant."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from voicejobs.api.access import Caller, allow
from voicejobs.api.context import Context, Here
from voicejobs.api.pages import Page, link_next, list_of, paged
from voicejobs.api.problems import responses
from voicejobs.api.times import moment
from voicejobs.errors import WrongState
from voicejobs.store import keys as rows
from voicejobs.store.keys import LARGEST_LIMIT, LOWEST_RATE, SCOPES, Key, NewKey

router = APIRouter(prefix="/api/v1/keys", tags=["keys"])
LONGEST_LIFE_S = 100 * 366 * 86_400.0
Admin = Annotated[Caller, allow("admin")]
KeyId = Annotated[str, Path(max_length=64, description="Id of a key: its middle part.")]


class KeyLimits(BaseModel):
    """Limits of one key, where they differ from those of the service; 0 for none."""

    model_config = ConfigDict(extra="forbid")

    requests_per_minute: float | None = Field(
        None, ge=0, le=LARGEST_LIMIT, description=f"0, or at least {LOWEST_RATE}."
    )
    concurrency: int | None = Field(None, ge=0, le=LARGEST_LIMIT)


class KeyWanted(BaseModel):
    """What a key is to be."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field("", max_length=rows.LONGEST_NAME, description="What people call it.", examples=["CI"])
    scopes: list[str] = Field(
        min_length=1, max_length=len(SCOPES), description=f"Of {', '.join(SCOPES)}.", examples=[["jobs:read"]]
    )
    expires_after_s: float | None = Field(None, gt=0, le=LONGEST_LIFE_S, description="Seconds; null for never.")
    environment: str = Field("live", pattern="^[a-z0-9]{1,16}$", description="A word in the key, for people.")
    limits: KeyLimits = Field(default_factory=lambda: KeyLimits(requests_per_minute=None, concurrency=None))


class KeyShown(BaseModel):
    """A key, without its secret."""

    id: str
    object: str = "key"
    tenant: str
    name: str
    scopes: list[str]
    limits: dict[str, float]
    state: str = Field(description="valid, expired or revoked.")
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None = Field(description="To a minute.")


class KeyMade(KeyShown):
    """A new key, with the secret that is shown this once."""

    key: str


class KeyPage(BaseModel):
    """A page of keys."""

    object: str = "list"
    data: list[KeyShown]
    first_id: str | None
    last_id: str | None
    has_more: bool


def _shown(context: Context, key: Key) -> dict[str, Any]:
    """Return what is shown of a key."""
    return {
        "object": "key",
        **key.to_json(),
        "state": rows.state_of(context.database, key),
        **{name: moment(getattr(key, name)) for name in ("created_at", "expires_at", "revoked_at", "last_used_at")},
    }


@router.post("", operation_id="create_key", status_code=201, responses=responses(409))
async def create_key(wanted: KeyWanted, context: Here, caller: Admin, response: Response) -> KeyMade:
    """Make a key for the tenant of the caller; its text is in this answer, and nowhere else.

    The first key of an installation closes it: from then on every call needs one. So the first is to have `admin`.
    """
    new = NewKey(
        tenant=caller.tenant,
        name=wanted.name,
        scopes=wanted.scopes,
        limits=wanted.limits.model_dump(exclude_none=True),
        lifetime_s=wanted.expires_after_s,
        environment=wanted.environment,
    )

    def make() -> dict[str, Any]:
        if caller.key_id is None and "admin" not in new.scopes:
            raise WrongState("the first key would close the service to everybody", hint="Make one with `admin` first.")
        key, text = rows.create_key(context.database, new)
        return {**_shown(context, key), "key": text}

    made = await context.run(make)
    response.headers["Location"] = f"{router.prefix}/{made['id']}"
    return KeyMade(**made)


@router.get("", operation_id="list_keys", responses=responses(400))
async def list_keys(context: Here, caller: Admin, page: Page, request: Request, response: Response) -> KeyPage:
    """List the keys of the tenant, by id."""

    def fetch() -> dict[str, Any]:
        found, more = paged(
            rows.list_keys(context.database, tenant=caller.tenant), page.checked(""), lambda key: key.id
        )
        return list_of([_shown(context, key) for key in found], more=more)

    return KeyPage(**link_next(request, response, await context.run(fetch)))


@router.get("/{key_id}", operation_id="get_key", responses=responses(404))
async def get_key(key_id: KeyId, context: Here, caller: Admin) -> KeyShown:
    """Show a key."""

    def fetch() -> dict[str, Any]:
        return _shown(context, rows.get_key(context.database, key_id, tenant=caller.tenant))

    return KeyShown(**await context.run(fetch))


@router.delete("/{key_id}", operation_id="revoke_key", responses=responses(404))
async def revoke_key(key_id: KeyId, context: Here, caller: Admin) -> KeyShown:
    """Revoke a key for good; every process of the service refuses it within a second. The row stays."""

    def revoke() -> dict[str, Any]:
        return _shown(context, rows.revoke_key(context.database, key_id, tenant=caller.tenant))

    return KeyShown(**await context.run(revoke))
