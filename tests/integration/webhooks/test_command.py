"""`voicejobs webhook`: make, list, test, rotate, verify and remove, on the database itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.servers.http import HttpServer, Reply, Request
from voicejobs.cli.main import run

RunCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Return what runs `voicejobs webhook` and gives exit code, standard output and standard error."""
    settings = {"state_dir": tmp_path, "webhook_http": 1, "webhook_ports": "*", "webhook_networks": "127.0.0.1/32"}
    for name, value in settings.items():
        monkeypatch.setenv(f"VOICEJOBS_{name.upper()}", str(value))

    def call(*words: str) -> tuple[int, str, str]:
        code = run(["webhook", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def document(told: tuple[int, str, str], kind: str) -> Any:
    """Return the JSON document of a command that went well."""
    assert told[0] == 0, told[2]
    return json.loads(told[1])[kind]


def test_a_webhook_from_its_making_to_its_end(command: RunCommand, tmp_path: Path) -> None:
    """The secret is printed once, a test is told, what a receiver gets verifies, and rotation prints the next one."""
    status = [204]
    received: list[Request] = []

    def respond(request: Request) -> Reply:
        received.append(request)
        return Reply(status[0])

    with HttpServer(respond) as server:
        code, out, err = command("add", f"{server.url}/hook", "--type", "job.*")
        webhook_id, secret = out.split()
        assert (code, "once" in err) == (0, True)
        assert command("test", webhook_id)[:2] == (0, "delivered: the receiver answered 204\n")
        status[0] = 500
        code, out, err = command("test", webhook_id)
        assert (code, out, "500" in err) == (5, "", True)
    (shown,) = document(command("list", "--json"), "webhooks")
    assert (shown["id"], shown["status"], shown["pending"]) == (webhook_id, "active", 0)
    assert shown["types"] == ["job.succeeded", "job.failed", "job.cancelled", "job.expired"]
    assert "secret" not in shown
    assert webhook_id in command("list")[1]
    _verify(command, tmp_path, received[0], secret)
    rotated = document(command("rotate", webhook_id, "--json"), "webhook")
    assert rotated["secret"] not in {secret, ""}
    assert command("remove", webhook_id)[0] == 0
    assert document(command("list", "--json"), "webhooks") == []
    assert command("remove", webhook_id)[0] == 7


def _verify(command: RunCommand, folder: Path, request: Request, secret: str) -> None:
    """Verify a message as a receiver would, and another one that was changed on the way."""
    body, key = folder / "body", folder / "secret"
    body.write_bytes(request.body)
    key.write_text(secret)
    words = ["verify", str(body), "--secret-file", str(key)]
    for name in ("id", "timestamp", "signature"):
        words += [f"--{name}", request.headers[f"webhook-{name}"]]
    assert command(*words)[:2] == (0, "the signature is right\n")
    body.write_bytes(request.body + b"\n")
    code, _, err = command(*words)
    assert (code, "bad_signature" in err) == (7, True)


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("add", "http://localhost:1/"), 0, ""),
        (("add", "http://10.0.0.1/"), 7, "address_refused"),
        (("add", "https://receiver.example/", "--type", "job.begun"), 7, "bad_option"),
        (("test", "wh_none"), 7, "no_such_record"),
        (("rotate", "wh_none", "--tenant", "other"), 7, "no_such_record"),
    ],
)
def test_what_cannot_be_done_is_told(command: RunCommand, words: tuple[str, ...], code: int, reason: str) -> None:
    """What is refused ends with its exit code and the code of its error; names are looked at when they are told."""
    told = command(*words)
    assert (told[0], reason in told[2]) == (code, True)
