"""Signatures of webhooks: other people's libraries accept them, and no row holds a secret."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from voicejobs.errors import BadOption, BadSignature, SecretUnusable
from voicejobs.outbound import signing
from voicejobs.settings import Settings

BODY = json.dumps(
    {
        "id": "evt_0000000000000001",
        "object": "event",
        "type": "batch.completed",
        "created_at": 1_700_000_000,
        "timestamp": "2023-11-14T22:13:20.000Z",
        "data": {"id": "batch_1"},
    }
).encode()
SECRET = signing.derive(b"installation", "wh_1", 1)
OLD = signing.derive(b"installation", "wh_1", 0)


def _headers(*secrets: bytes) -> dict[str, str]:
    """Return the headers of a message that is sent now."""
    return signing.headers(secrets, "evt_0000000000000001", int(time.time()), BODY)


def test_the_reference_library_accepts_a_message() -> None:
    """The package standardwebhooks verifies a message with the secret as we show it."""
    from standardwebhooks import Webhook

    found = Webhook(signing.written(SECRET)).verify(BODY.decode(), _headers(SECRET))
    assert found["type"] == "batch.completed"


def test_the_openai_client_unwraps_a_message() -> None:
    """`client.webhooks.unwrap` of the openai package takes a message for an event of its own."""
    from openai import OpenAI

    client = OpenAI(api_key="none", webhook_secret=signing.written(SECRET))
    event = client.webhooks.unwrap(BODY.decode(), _headers(SECRET))
    assert event.type == "batch.completed"
    assert event.data.id == "batch_1"
    client.close()


@pytest.mark.parametrize("secret", [SECRET, OLD])
def test_after_a_rotation_either_secret_verifies(secret: bytes) -> None:
    """A message that is signed with two secrets is verified by both: here, and by the reference library."""
    from standardwebhooks import Webhook

    headers = _headers(SECRET, OLD)
    assert len(headers["webhook-signature"].split(" ")) == 2
    signing.verify(secret, headers, BODY)
    Webhook(signing.written(secret)).verify(BODY.decode(), headers)


def test_a_changed_message_is_refused() -> None:
    """Another body, another id, another time, another secret or no header at all: each is refused."""
    from openai import InvalidWebhookSignatureError, OpenAI

    headers = _headers(SECRET)
    signing.verify(SECRET, headers, BODY)
    wrong = [
        ({**headers, "webhook-id": "evt_2"}, BODY, SECRET),
        ({**headers, "webhook-timestamp": str(int(time.time()) - 10)}, BODY, SECRET),
        ({**headers, "webhook-timestamp": "soon"}, BODY, SECRET),
        ({**headers, "webhook-signature": "v1,"}, BODY, SECRET),
        ({**headers, "webhook-signature": headers["webhook-signature"].replace("v1,", "v2,")}, BODY, SECRET),
        ({name: value for name, value in headers.items() if name != "webhook-id"}, BODY, SECRET),
        (headers, BODY + b" ", SECRET),
        (headers, BODY, OLD),
    ]
    for received, body, secret in wrong:
        with pytest.raises(BadSignature):
            signing.verify(secret, received, body)
    with pytest.raises(InvalidWebhookSignatureError), OpenAI(api_key="none") as client:
        client.webhooks.unwrap(BODY.decode() + " ", headers, secret=signing.written(SECRET))


def test_an_old_message_is_refused() -> None:
    """Who has recorded a message cannot send it again later."""
    headers = _headers(SECRET)
    for now_s in (time.time() + 400, time.time() - 400):
        with pytest.raises(BadSignature, match="older"):
            signing.verify(SECRET, headers, BODY, now_s=now_s)


def test_each_webhook_and_generation_has_its_own_secret() -> None:
    """Secrets are 32 bytes, differ by installation, webhook and generation, and can be written and read."""
    found = {
        signing.derive(b"a", "wh_1", 1),
        signing.derive(b"b", "wh_1", 1),
        signing.derive(b"a", "wh_2", 1),
        signing.derive(b"a", "wh_1", 2),
        signing.derive(b"a", "wh_11", 1),
    }
    assert len(found) == 5
    assert {len(secret) for secret in found} == {32}
    assert signing.read_written(signing.written(SECRET)) == SECRET
    with pytest.raises(BadOption):
        signing.read_written("whsec_%%%")


def test_the_secret_of_the_installation_is_made_once(tmp_path: Path) -> None:
    """Without a setting it is a random one in the state folder, that only our user can read, and stays the same."""
    settings = Settings(tmp_path / "state", tmp_path)
    first = signing.installation_secret(settings)
    path = tmp_path / "state" / signing.SECRET_FILE
    assert len(first) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    assert signing.installation_secret(settings) == first
    assert [one.name for one in path.parent.iterdir()] == [signing.SECRET_FILE]
    path.chmod(0o640)
    with pytest.raises(SecretUnusable, match="read by others"):
        signing.installation_secret(settings)
    path.chmod(0o600)
    path.write_text("short")
    with pytest.raises(SecretUnusable, match="damaged"):
        signing.installation_secret(settings)


def test_a_shared_database_needs_a_shared_secret(tmp_path: Path) -> None:
    """With Postgres other machines have other state folders: nothing is made up, and the setting is asked for."""
    settings = Settings(tmp_path, tmp_path, database_url="postgresql://x/y")
    with pytest.raises(SecretUnusable, match="VOICEJOBS_WEBHOOK_SECRET is not set"):
        signing.installation_secret(settings)
    with pytest.raises(SecretUnusable, match="fewer than 24"):
        signing.installation_secret(replace(settings, webhook_secret="short"))
    assert signing.installation_secret(replace(settings, webhook_secret="x" * 24)) == b"x" * 24
    assert "x" * 24 not in repr(replace(settings, webhook_secret="x" * 24))


def test_to_look_for_the_secret_makes_none(tmp_path: Path) -> None:
    """Whoever only asks whether there is a secret leaves no file, and is told where it would come from."""
    settings = Settings(tmp_path / "state", tmp_path)
    assert "made when" in signing.source_of(settings)
    assert not (tmp_path / "state").exists()
    signing.installation_secret(settings)
    assert signing.SECRET_FILE in signing.source_of(settings)
    assert signing.source_of(replace(settings, webhook_secret="x" * 24)) == "VOICEJOBS_WEBHOOK_SECRET"
    with pytest.raises(SecretUnusable):
        signing.source_of(replace(settings, database_url="postgresql://x/y"))
