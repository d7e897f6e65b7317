"""Canaries for secrets in everything that goes into a whole run, looked for in all that it leaves behind."""

import base64
import re
import socket
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import pytest
from celery import Celery

from tests.integration.service.stack import HARBOR, serving
from tests.servers.http import HttpServer, Reply, Request
from tests.servers.valkey import Valkey
from tests.waiting import wait_until
from voicejobs.tasks.app import configure

BROKER_DATABASE = 12
SETTINGS = {
    "webhook_secret": "canary-webhook-" + "w" * 40,
    "openai_key": "canary-openai-" + "o" * 20,
    "remote_key": "canary-remote-" + "r" * 20,
    "rpc_keys": "someone=canary-rpc-" + "k" * 20,
}
QUERY, COOKIE, WRONG_KEY, TEXT = "canary-query", "canary-cookie", "canary-wrong-key", "canary spoken in confidence"
BASE64 = r"(?:[A-Za-z0-9+/]{4}){8,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"


CALLS: list[dict[str, Any]] = [
    {"method": "GET", "url": "/api/v1/jobs", "headers": {"authorization": f"Bearer vj_live_{WRONG_KEY}"}},
    {"method": "GET", "url": "/api/v1/jobs", "params": {"after": QUERY}},
    {"method": "GET", "url": f"/nothing/{QUERY}"},
    {"method": "POST", "url": "/api/v1/jobs", "json": {"engine": "fake", "source": {"url": f"http://u:{QUERY}@a.b/"}}},
    {"method": "POST", "url": "/api/v1/jobs", "content": "{" + QUERY},
    {"method": "POST", "url": "/api/v1/webhooks", "json": {"url": f"https://u:{QUERY}@a.example/"}},
]
"""Calls that fail, each with a canary in it."""


class Overheard:
    """Note every command that the broker gets, with all that is in it: what Flower sees goes through there as well."""

    def __init__(self, valkey: Valkey) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(valkey.socket_path))
        self._socket.sendall(b"MONITOR\r\n")
        self._parts = [self._socket.recv(1 << 16)]
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def _listen(self) -> None:
        """Read until the socket is shut."""
        while data := self._socket.recv(1 << 16):
            self._parts.append(data)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._socket.close()

    @property
    def text(self) -> str:
        """Return what was heard, with what base64 of messages hides."""
        text = b"".join(self._parts).decode("utf-8", "replace")
        hidden = [base64.b64decode(found).decode("utf-8", "replace") for found in re.findall(BASE64, text)]
        return "\n".join([text, *hidden])


def dump(path: Path) -> str:
    """Return all rows of a database as SQL."""
    with closing(sqlite3.connect(path)) as connection:
        return "\n".join(connection.iterdump())


@pytest.mark.timeout(120)
def test_secrets_go_nowhere(valkey: Valkey, tmp_path: Path) -> None:
    """Keys, secrets of webhooks, signatures of addresses and texts are in no log, message, event, row or error."""
    received: list[Request] = []

    def respond(request: Request) -> Reply:
        received.append(request)
        return Reply(204) if request.method == "POST" else Reply(body=HARBOR.read_bytes())

    near = {f"{kind}_networks": "127.0.0.1/32" for kind in ("source_url", "webhook")}
    near |= {f"{kind}_ports": "*" for kind in ("source_url", "webhook")}
    near |= {"source_url_hosts": "127.0.0.1", "source_url_enabled": "1", "source_url_http": "1", "webhook_http": "1"}
    monitored = Celery("events", set_as_current=False)
    configure(monitored, valkey.broker_url(BROKER_DATABASE))
    secrets = {"query": QUERY, "cookie": COOKIE, "wrong key": WRONG_KEY}
    secrets |= {name: value.rpartition("=")[2] for name, value in SETTINGS.items()}
    with (
        HttpServer(respond) as media,
        Overheard(valkey) as heard,
        serving(
            tmp_path, valkey.broker_url(BROKER_DATABASE), log_level="DEBUG", engine_processes=1, **SETTINGS, **near
        ) as stack,
        stack.api.client(stack.key, {"cookie": f"session={COOKIE}"}) as client,
    ):
        wait_until(lambda: "ready" in stack.worker_log.read_text(), 30)
        monitored.control.enable_events()
        wait_until(lambda: re.search("worker-(online|heartbeat)", heard.text), 20)
        secrets["key"] = stack.key.split("_")[3]
        made = client.post("/api/v1/webhooks", json={"url": f"{media.url}/hook?token={QUERY}"}).json()
        rotated = client.post(f"/api/v1/webhooks/{made['id']}/rotate-secret").json()
        secrets |= {"first": made["secret"][6:], "second": rotated["secret"][6:]}
        wishes = [
            {"engine": "fake", "source": {"url": f"{media.url}/talk.flac?signature={QUERY}"}},
            {"task": "speak", "engine": "fake_voice", "source": {"text": TEXT}},
        ]
        answers = [client.post("/api/v1/jobs", json=wish) for wish in wishes]
        jobs = [answer.raise_for_status().json()["id"] for answer in answers]
        wait_until(lambda: len([one for one in received if one.method == "POST"]) == len(jobs), 60,
                   what=lambda: stack.api.log[-3000:])  # fmt: skip
        shown = [client.get(f"/api/v1/jobs/{job_id}").json() for job_id in jobs]
        assert [one["status"] for one in shown] == ["succeeded", "succeeded"]
        errors = "\n".join(client.request(**call).text for call in CALLS)
        state = stack.api.folder / "state"
    leaks = {
        "log of the service": stack.api.log,
        "log of the worker": stack.worker_log.read_text("utf-8", "replace"),
        "broker": heard.text,
        "errors": errors,
        **{path.name: path.read_text("utf-8", "replace") for path in state.glob("logs/*")},
    }
    assert "task-received" in leaks["broker"]
    rows = dump(state / "voicejobs.db")
    for name, secret in secrets.items():
        assert [place for place, text in leaks.items() if secret in text] == [], name
        # The address of a webhook is kept as it was given; that of a source is forgotten.
        assert secret not in re.sub(r"INSERT INTO \"webhooks\".*", "", rows), name
    assert [place for place, text in leaks.items() if TEXT in text] == []
    raw = b"".join(path.read_bytes() for path in state.glob("voicejobs.db*"))
    for name in ("key", "first", "second", *SETTINGS):
        assert secrets[name].encode() not in raw, name


def test_the_canaries_would_be_found(valkey: Valkey) -> None:
    """What goes through the broker is overheard, so that its absence says something."""
    with Overheard(valkey) as heard, valkey.client(BROKER_DATABASE) as client:
        client.set("canary", QUERY)
        wait_until(lambda: QUERY in heard.text, 10)
        client.delete("canary")
