"""API keys: `vj_<environment>_<id>_<secret>_<check>`, of which the database holds the id and a hash of the secret.

The secret has 190 bits, so that one SHA-256 guards it as well as a slow hash would. The check is a CRC-32 of what
stands before it: a key with a slip of the pen is refused without asking the database.
"""

import json
import re
import secrets
import string
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from sqlalchemy import Row, exists, insert, or_, select, update

from voicejobs.errors import BadOption, NoSuchRecord
from voicejobs.store.database import Database, now_s
from voicejobs.store.schema import api_keys

SCOPES = (
    "jobs:read", "jobs:write", "files:read", "files:write", "artifacts:read", "webhooks", "engines:read", "metrics",
    "admin",
)  # fmt: skip
"""What a key may allow; `admin` allows all."""
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
ID_LENGTH, SECRET_LENGTH, CHECK_LENGTH = 8, 32, 6
_KEY = re.compile(r"(vj_[a-z0-9]{1,16}_([0-9A-Za-z]{8})_([0-9A-Za-z]{32,64}))_([0-9A-Za-z]{6})")
_ENVIRONMENT = re.compile(r"[a-z0-9]{1,16}")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LONGEST_NAME = 200
LOWEST_RATE = 0.01
"""Requests a minute that a limit allows at least, one in 100 minutes; 0 is no limit."""
LARGEST_LIMIT = 1_000_000
USED_STEP_S = 60.0
"""The time of last use is written at most this often."""
NOBODYS_SHA256 = sha256(secrets.token_bytes(32)).hexdigest()
"""What a secret is compared with whose id nobody has, so that this takes as long."""


@dataclass(frozen=True, slots=True)
class Key:
    """Describe a key; times are unix seconds.

    Args:
        id: its middle part, 8 letters and digits; no secret.
        tenant: whose rows it reaches.
        name: what people call it.
        scopes: what it allows.
        limits: its own limits (`requests_per_minute`, `concurrency`), where they differ from those of the settings.
        secret_sha256: hash of its secret.
        created_at: when it was made.
        expires_at: when it ends; None for never.
        revoked_at: when it was revoked.
        last_used_at: when it was used last, to a minute.
    """

    id: str
    tenant: str
    name: str
    scopes: frozenset[str]
    limits: Mapping[str, float]
    secret_sha256: str = field(repr=False)
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None

    def to_json(self) -> dict[str, Any]:
        """Return what may be shown of it."""
        return {
            "id": self.id,
            "tenant": self.tenant,
            "name": self.name,
            "scopes": sorted(self.scopes),
            "limits": dict(self.limits),
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "revoked_at": self.revoked_at,
            "last_used_at": self.last_used_at,
        }


@dataclass(frozen=True, slots=True)
class NewKey:
    """Say what a key is to be.

    Args:
        tenant: whose rows it reaches.
        name: what people call it.
        scopes: what it allows.
        limits: its own limits.
        lifetime_s: seconds after which it ends; None for never.
        environment: a word in the key that tells people where it belongs.
    """

    tenant: str = "default"
    name: str = ""
    scopes: Iterable[str] = ("admin",)
    limits: Mapping[str, float] = field(default_factory=dict)
    lifetime_s: float | None = None
    environment: str = "live"


def split_key(text: str) -> tuple[str, str] | None:
    """Return id and secret of a key; None where it has another form or its check is wrong."""
    found = _KEY.fullmatch(text)
    if found is None or _check(found[1]) != found[4]:
        return None
    return found[2], found[3]


def hash_of(secret: str) -> str:
    """Return what is kept of a secret."""
    return sha256(secret.encode()).hexdigest()


def create_key(database: Database, wanted: NewKey) -> tuple[Key, str]:
    """Make a key, and return it with its text, which cannot be had again.

    Raises:
        BadOption: a part of it has a form or a name that no key has.
    """
    scopes = _checked(wanted)
    key_id, secret = _random(ID_LENGTH), _random(SECRET_LENGTH)
    body = f"vj_{wanted.environment}_{key_id}_{secret}"
    with database.begin() as connection:
        expires = None if wanted.lifetime_s is None else now_s() + wanted.lifetime_s
        connection.execute(
            insert(api_keys).values(
                id=key_id,
                tenant=wanted.tenant,
                name=wanted.name,
                secret_sha256=hash_of(secret),
                scopes=json.dumps(scopes),
                limits=json.dumps(dict(wanted.limits)),
                created_at=now_s(),
                expires_at=expires,
            )
        )
    return get_key(database, key_id), f"{body}_{_check(body)}"


def _checked(wanted: NewKey) -> list[str]:
    """Return the scopes of a key that can be made."""
    scopes = sorted(set(wanted.scopes))
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        name = repr(unknown[0]) if unknown else "an empty list"
        raise BadOption(f"{name} is no scope of a key", hint=f"It is one of {', '.join(SCOPES)}.", param="scopes")
    if not _TENANT.fullmatch(wanted.tenant):
        raise BadOption(
            f"{wanted.tenant!r} is no name of a tenant",
            hint="It has letters, digits, dots, dashes and underscores, 64 at most.",
            param="tenant",
        )
    if len(wanted.name) > LONGEST_NAME or not wanted.name.isprintable():
        raise BadOption(
            "the name of the key cannot be kept", hint=f"{LONGEST_NAME} printable characters at most.", param="name"
        )
    wrong = next((name for name, value in wanted.limits.items() if not is_limit(name, value)), None)
    if wrong is not None:
        raise BadOption(
            f"{wanted.limits[wrong]!r} is no limit {wrong!r} of a key",
            hint=f"requests_per_minute is 0 for no limit, or {LOWEST_RATE} to {LARGEST_LIMIT}; "
            f"concurrency is a whole number from 0 to {LARGEST_LIMIT}.",
            param=f"limits.{wrong}",
        )
    if not _ENVIRONMENT.fullmatch(wanted.environment):
        raise BadOption(
            f"{wanted.environment!r} is no environment", hint="1 to 16 small letters and digits.", param="environment"
        )
    return scopes


def is_limit(name: str, value: float) -> bool:
    """Tell whether a key may have this limit of its own; `nan` is none."""
    if name == "requests_per_minute":
        return value == 0 or LOWEST_RATE <= value <= LARGEST_LIMIT
    return name in {"concurrency", "streams"} and 0 <= value <= LARGEST_LIMIT and value == int(value)


def get_key(database: Database, key_id: str, *, tenant: str | None = None) -> Key:
    """Return a key, of one tenant where one is named.

    Raises:
        NoSuchRecord: there is none.
    """
    found = find_key(database, key_id)
    if found is None or (tenant is not None and found.tenant != tenant):
        raise NoSuchRecord(f"There is no key {key_id!r}")
    return found


def find_key(database: Database, key_id: str) -> Key | None:
    """Return a key, None where there is none."""
    with database.read() as connection:
        row = connection.execute(select(api_keys).where(api_keys.c.id == key_id)).first()
    return None if row is None else key_of(row)


def find_valid_key(database: Database, key_id: str) -> Key | None:
    """Return a key that is neither revoked nor expired by the clock of the database, None where there is none."""
    query = select(api_keys).where(
        api_keys.c.id == key_id,
        api_keys.c.revoked_at.is_(None),
        or_(api_keys.c.expires_at.is_(None), api_keys.c.expires_at > now_s()),
    )
    with database.read() as connection:
        row = connection.execute(query).first()
    return None if row is None else key_of(row)


def key_of(row: Row[Any]) -> Key:
    """Return the key of a row; in place of a limit that is none, that of the service counts."""
    values = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's documented way to the columns by name
    limits = {name: value for name, value in json.loads(row.limits).items() if is_limit(name, value)}
    return Key(**{**values, "scopes": frozenset(json.loads(row.scopes)), "limits": limits})


def list_keys(database: Database, *, tenant: str | None = None) -> list[Key]:
    """Return all keys, or those of a tenant, oldest first."""
    query = select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id)
    if tenant is not None:
        query = query.where(api_keys.c.tenant == tenant)
    with database.read() as connection:
        return [key_of(row) for row in connection.execute(query)]


def state_of(database: Database, key: Key) -> str:
    """Return `valid`, `expired` or `revoked`."""
    if key.revoked_at is not None:
        return "revoked"
    return "valid" if key.expires_at is None or find_valid_key(database, key.id) else "expired"


def revoke_key(database: Database, key_id: str, *, tenant: str | None = None) -> Key:
    """Revoke a key for good; one that is revoked already stays as it is.

    Raises:
        NoSuchRecord: there is none.
    """
    get_key(database, key_id, tenant=tenant)
    with database.begin() as connection:
        connection.execute(
            update(api_keys).where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None)).values(revoked_at=now_s())
        )
    return get_key(database, key_id)


def note_use(database: Database, key_id: str) -> None:
    """Note that a key was used, unless that was noted within the last minute."""
    with database.begin(durable=False) as connection:
        connection.execute(
            update(api_keys)
            .where(
                api_keys.c.id == key_id,
                or_(api_keys.c.last_used_at.is_(None), api_keys.c.last_used_at < now_s() - USED_STEP_S),
            )
            .values(last_used_at=now_s())
        )


def has_keys(database: Database) -> bool:
    """Tell whether a key was ever made: those that were revoked count too."""
    with database.read() as connection:
        return bool(connection.execute(select(exists().select_from(api_keys))).scalar())


def _random(length: int) -> str:
    """Return random digits and letters."""
    return "".join(secrets.choice(_DIGITS) for _ in range(length))


def _check(body: str) -> str:
    """Return the check of a key: its CRC-32 to the base 62."""
    rest, digits = zlib.crc32(body.encode()), ""
    for _ in range(CHECK_LENGTH):
        rest, digit = divmod(rest, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
