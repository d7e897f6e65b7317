"""Sign what webhooks are sent, as Standard Webhooks describes it, with secrets that no row holds."""

import base64
import binascii
import hmac
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from voicejobs.errors import BadOption, BadSignature, SecretUnusable
from voicejobs.settings import Settings

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"
SECRET_PREFIX = "whsec_"  # noqa: S105 - the mark of a secret, and none
SECRET_FILE = "webhook_secret"  # noqa: S105 - the name of a file
MIN_SECRET_CHARS = 24
SECRET_BYTES = 32
TOLERANCE_S = 300.0
"""Age of a message from which on it may be one that somebody sends again."""
_VERSION = "v1"
_PURPOSE = b"voicejobs webhook secret"


def installation_secret(settings: Settings) -> bytes:
    """Return what the secrets of all webhooks are derived from: the setting, or a file in the state folder.

    The file is made when it is first needed. Where the database is shared, other machines have another state folder,
    so that the secret must be set there.

    Raises:
        SecretUnusable: it is too short, must be set and is not, or the file cannot be read or written.
    """
    check_setting(settings)
    if settings.webhook_secret:
        return settings.webhook_secret.encode()
    if settings.database_url and not settings.database_url.startswith("sqlite"):
        raise SecretUnusable(
            "VOICEJOBS_WEBHOOK_SECRET is not set, and the database is not that of one machine",
            hint="Set the same 40 random characters, or a file of them (VOICEJOBS_WEBHOOK_SECRET_FILE), on each.",
        )
    return _secret_in(settings.state_dir / SECRET_FILE)


def check_setting(settings: Settings) -> None:
    """Do nothing where the setting of the secret is empty, or one that can be used.

    Raises:
        SecretUnusable: it is too short.
    """
    if settings.webhook_secret and len(settings.webhook_secret) < MIN_SECRET_CHARS:
        raise SecretUnusable(
            f"VOICEJOBS_WEBHOOK_SECRET has fewer than {MIN_SECRET_CHARS} characters",
            hint="Take some 40 random ones, and keep them: other secrets come with others.",
        )


def source_of(settings: Settings) -> str:
    """Return in words where the secret of the installation comes from, without making one.

    Raises:
        SecretUnusable: as `installation_secret` raises it.
    """
    is_of_this_machine = not settings.database_url or settings.database_url.startswith("sqlite")
    path = settings.state_dir / SECRET_FILE
    if not settings.webhook_secret and is_of_this_machine and not path.exists():
        return "a file in the state folder, made when the first is needed"
    installation_secret(settings)
    return "VOICEJOBS_WEBHOOK_SECRET" if settings.webhook_secret else f"the file {SECRET_FILE} of the state folder"


def _secret_in(path: Path) -> bytes:
    """Return the secret in a file that only our user can read; it is made where it is missing.

    Raises:
        SecretUnusable: it cannot be read or written, or others could have written it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _make(path)
        status = path.stat()
        if status.st_mode & 0o077 or status.st_uid != os.getuid():
            raise SecretUnusable(
                f"The file {path.name} of the state folder can be read by others, or is another user's",
                hint="Give it the mode 0600 and your user, and rotate the secrets of the webhooks.",
            )
        secret = path.read_bytes().strip()
    except OSError as error:
        raise SecretUnusable(
            f"The file {path.name} of the state folder cannot be used: {error.strerror}",
            hint="Check the rights and the free space of the state folder, or set VOICEJOBS_WEBHOOK_SECRET.",
        ) from error
    if len(secret) < MIN_SECRET_CHARS:
        raise SecretUnusable(f"The file {path.name} of the state folder is damaged", hint="Restore it, or remove it.")
    return secret


def _make(path: Path) -> None:
    """Write a new secret; the first of several processes wins, and none is ever seen half written."""
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_hex(SECRET_BYTES).encode())
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(part, path)
    finally:
        part.unlink()


def derive(installation: bytes, webhook_id: str, generation: int) -> bytes:
    """Return the secret of a webhook in one of its generations, 32 bytes."""
    return hmac.digest(installation, b"\0".join((_PURPOSE, webhook_id.encode(), str(generation).encode())), sha256)


def written(secret: bytes) -> str:
    """Return a secret as people keep it: `whsec_` and base64."""
    return SECRET_PREFIX + base64.b64encode(secret).decode()


def read_written(text: str) -> bytes:
    """Return the secret that `written` wrote.

    Raises:
        BadOption: it is none.
    """
    try:
        return base64.b64decode(text.strip().removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise BadOption(
            "This is no secret of a webhook", hint="It begins with whsec_ and goes on with base64."
        ) from None


def signature(secret: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a message under one secret, as `v1,<base64>`."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return f"{_VERSION}," + base64.b64encode(hmac.digest(secret, signed, sha256)).decode()


def headers(signing: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of a message, signed with each of the secrets."""
    return {
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: str(timestamp),
        SIGNATURE_HEADER: " ".join(signature(secret, message_id, timestamp, body) for secret in signing),
        "content-type": "application/json",
    }


def verify(secret: bytes, received: Mapping[str, str], body: bytes, *, now_s: float | None = None) -> None:
    """Do nothing where a message was signed with this secret within the last five minutes.

    Args:
        secret: the secret of the webhook.
        received: its headers, by names in lower case.
        body: its bytes, as they came.
        now_s: the time, in unix seconds; now where it is left out.

    Raises:
        BadSignature: a header is missing, the message is too old or of the future, or no signature fits.
    """
    names = (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER)
    missing = [name for name in names if not received.get(name)]
    if missing:
        raise BadSignature(f"The header {missing[0]} is missing")
    try:
        timestamp = int(received[TIMESTAMP_HEADER])
    except ValueError:
        raise BadSignature(f"The header {TIMESTAMP_HEADER} is no number") from None
    if abs((time.time() if now_s is None else now_s) - timestamp) > TOLERANCE_S:
        raise BadSignature(f"The message is older than {TOLERANCE_S:.0f} s, or of the future")
    wanted = signature(secret, received[ID_HEADER], timestamp, body)
    found = [hmac.compare_digest(wanted.encode(), one.encode()) for one in received[SIGNATURE_HEADER].split()]
    if not any(found):
        raise BadSignature("No signature of the message fits this secret")
