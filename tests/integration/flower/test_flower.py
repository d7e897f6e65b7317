"""The real Flower beside real workers: what operators see in it, and what nobody gets out of it."""

import itertools
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from celery import Celery

from tests.bench import Bench, MakeBench, make_bench, speech
from tests.servers.valkey import Valkey
from tests.waiting import wait_until
from voicejobs.messages import QUEUE_CLASSES, queue_name
from voicejobs.tasks.app import configure

__all__ = ["make_bench", "speech"]

SECRET = "br0kerCanarySecret"
PASSWORD = "fl0werCanaryPassword"
OPERATOR = ("operator", PASSWORD)
COMMAND = [sys.executable, "-P", "-m", "voicejobs.cli.main", "serve", "flower"]


class Running:
    """Hold a running Flower."""

    def __init__(self, bench: Bench, *words: str, **settings: object) -> None:
        self.ready = bench.folder / "flower.ready"
        self.log = bench.folder / "flower.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "--port", "0", "--ready-file", str(self.ready), *words],
                env={**os.environ, **bench.variables(**settings)},
                stdout=log,
                stderr=log,
            )
        wait_until(self.ready.exists, what=lambda: self.log.read_text("utf-8"))
        self.url = self.ready.read_text("utf-8").strip()

    def get(self, path: str, auth: tuple[str, str] | None = OPERATOR, **more: Any) -> httpx.Response:
        """Ask for a page."""
        return httpx.get(f"{self.url}{path}", auth=auth, **more)

    def send(self, method: str, path: str, auth: tuple[str, str] | None = OPERATOR, **more: Any) -> int:
        """Send a request and return its status."""
        return httpx.request(method, f"{self.url}{path}", auth=auth, **more).status_code


@pytest.fixture
def watched(start_valkey: Callable[..., Valkey], make_bench: MakeBench, sqlite_url: str) -> Iterator[Bench]:
    """Return a bench on a broker with a password, which nobody should see."""
    server = start_valkey(tcp=True)
    with server.client() as client:
        client.config_set("requirepass", SECRET)
    bench = make_bench(sqlite_url, f"redis://:{SECRET}@127.0.0.1:{server.port}/1", fake_cost_base_s=0.6)
    yield bench
    bench.close()


@pytest.fixture
def flower(watched: Bench) -> Iterator[Running]:
    """Return a Flower that watches the bench."""
    secret_file = watched.folder / "flower.auth"
    secret_file.write_text(":".join(OPERATOR) + "\n")
    running = Running(watched, flower_auth_file=secret_file)
    yield running
    running.process.terminate()
    assert running.process.wait(20) == 0


def tasks_of(flower: Running) -> list[dict[str, Any]]:
    """Return the tasks that Flower knows."""
    return list(flower.get("/api/tasks").json().values())


def test_operators_see_workers_queues_and_readable_tasks(watched: Bench, flower: Running) -> None:
    """While a batch runs: the worker, its queues, each step with its model; arguments are job and place, no more."""
    worker = watched.start_worker()
    count = itertools.count()
    # Flower asks workers for events every five seconds; before that they tell nobody.
    wait_until(lambda: watched.wait_ended(*_one(watched, f"before{next(count)}")) and tasks_of(flower))
    jobs = watched.submit(*(watched.recording(f"{number}.wav") for number in range(6)))
    wait_until(lambda: any(one["state"] == "STARTED" for one in tasks_of(flower)), what=lambda: tasks_of(flower))
    (told,) = flower.get("/workers?json=1").json()["data"]
    assert told["status"]
    assert told["hostname"].startswith("cpu@")

    def served() -> Any:  # a worker on a busy machine answers late
        return flower.get("/api/workers?refresh=1").json().get(told["hostname"], {}).get("active_queues")

    queues = wait_until(served)
    assert {one["name"] for one in queues} == {queue_name(one) for one in QUEUE_CLASSES}
    assert {queue_name(one) in flower.get("/broker").text for one in QUEUE_CLASSES} == {True}

    forger = Celery("forger", set_as_current=False)
    configure(forger, watched.broker_url)
    forger.send_task("voicejobs.step.prepare", args=("f0rged", "x"), kwargs={"key": "f0rged"}, queue=queue_name("cpu"))
    forger.close()
    assert set(watched.wait_ended(*jobs).values()) == {"succeeded"}

    def steps() -> set[str]:
        # Of a task that began before Flower asked for events the end alone is known, and no name.
        return {one["name"] for one in tasks_of(flower) if one["state"] == "SUCCESS" and one["name"]}

    wait_until(lambda: steps() == {"prepare", "recognise[fake]", "deliver"}, what=lambda: tasks_of(flower))
    named = [one for one in tasks_of(flower) if one["name"] not in {"voicejobs.step.prepare", None}]
    assert {one["args"].strip("'\"") for one in named} >= {f"{job}, 1/1" for job in jobs}
    assert {one["kwargs"] for one in tasks_of(flower)} <= {"", "''", None}
    forged = {one["args"] for one in tasks_of(flower) if one["name"] == "voicejobs.step.prepare"}
    assert forged == {"(hidden)"}, "a message that is not ours"
    (table,) = [flower.send("POST", "/tasks/datatable", data=_table())]
    assert table == 200

    _look_for_secrets(watched, flower, [f"/worker/{told['hostname']}", f"/task/{named[0]['uuid']}"])
    _probe(flower, told["hostname"], named[0]["uuid"])
    assert worker.poll() is None
    again = watched.submit(watched.recording("again.wav"))
    assert set(watched.wait_ended(*again).values()) == {"succeeded"}, "the worker takes work as before"


def _is_there(flower: Running, page: str) -> bool:
    """Tell whether a page is shown."""
    return flower.get(page).status_code == 200


def _look_for_secrets(bench: Bench, flower: Running, pages: list[str]) -> None:
    """Open every page, and look into the arguments and the log of the process."""
    pages = [*pages, "/", "/workers", "/tasks", "/broker",
             "/api/workers?refresh=1", "/api/tasks", "/metrics"]  # fmt: skip
    for page in pages:
        wait_until(partial(_is_there, flower, page), what=page)  # a busy worker answers late
        answer = flower.get(page)
        for canary in (SECRET, PASSWORD, "f0rged", str(bench.folder)):
            assert canary not in answer.text, (page, canary)
    seen = Path(f"/proc/{flower.process.pid}/cmdline").read_bytes() + flower.log.read_bytes()
    assert SECRET.encode() not in seen
    assert PASSWORD.encode() not in seen
    assert b"redis" not in Path(f"/proc/{flower.process.pid}/cmdline").read_bytes()


def _probe(flower: Running, worker: str, task: str) -> None:
    """Ask for everything without credentials, and with them for every change: nobody learns or changes anything."""
    for path in ["/", "/metrics", "/healthcheck", "/tasks", "/workers?json=1", "/broker", "/api/workers", "/api/tasks",
                 f"/task/{task}", "/static/js/flower.js", "/login", "/nowhere"]:  # fmt: skip
        for auth in (None, ("operator", "wrong"), ("nobody", PASSWORD), ("operator", "")):
            assert flower.send("GET", path, auth) == 401, (path, auth)
    assert flower.send("GET", "/", None, headers={"Authorization": "Bearer x"}) == 401
    assert flower.send("GET", "/", None, headers={"Authorization": "Basic !!"}) == 401
    changes = [
        f"/api/task/revoke/{task}?terminate=true", f"/api/task/timeout/{task}", "/api/task/rate-limit/x",
        "/api/task/apply/voicejobs.step.prepare", "/api/task/async-apply/voicejobs.step.prepare",
        "/api/task/send-task/voicejobs.step.prepare", f"/api/task/abort/{task}",
        f"/api/worker/shutdown/{worker}", f"/api/worker/pool/restart/{worker}",
        f"/api/worker/pool/grow/{worker}?n=1", f"/api/worker/pool/shrink/{worker}?n=1",
        f"/api/worker/queue/cancel-consumer/{worker}?queue=voicejobs.asr", "/tasks", "/login",
    ]  # fmt: skip
    for path in changes:
        assert flower.send("POST", path, None) == 401, path
        assert flower.send("POST", path, content=json.dumps({"args": ["x"]})) == 403, path
        assert flower.send("POST", path, headers={"Origin": "http://evil.example"}) == 403, path
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert flower.send(method, "/") == 403, method


def _one(bench: Bench, name: str) -> list[str]:
    """Submit one recording and return the id of its job."""
    return bench.submit(bench.recording(f"{name}.wav"))


def _table() -> dict[str, str]:
    """Return the form with which the page asks for its rows."""
    return {"draw": "1", "start": "0", "length": "10", "search[value]": "", "order[0][column]": "0",
            "order[0][dir]": "asc", "columns[0][data]": "name"}  # fmt: skip


def test_without_credentials_it_serves_loopback_only(watched: Bench) -> None:
    """Anonymous means this machine: another name for it is refused, and so is every change and Flower's own API."""
    running = Running(watched, "--allow-anonymous")
    try:
        assert running.send("GET", "/workers", None) == 200
        assert running.send("GET", "/workers", None, headers={"Host": "rebound.example"}) == 403
        assert running.send("POST", "/api/task/revoke/x", None) == 403
        assert running.send("GET", "/api/tasks", None) == 401, "as Flower has it"
        host, port = running.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as large:
            large.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65537\r\n\r\n")
            assert large.recv(100).startswith(b"HTTP/1.1 400"), "no large body is waited for"
    finally:
        running.process.terminate()
        running.process.wait(20)


@pytest.mark.parametrize(
    ("words", "settings", "says"),
    [
        ([], {}, "needs credentials"),
        (["--allow-anonymous", "--address", "0.0.0.0"], {}, "needs credentials"),
        (["--address", "0.0.0.0"], {"flower_auth": "a:longenough"}, "open to the network"),
        ([], {"flower_auth": "nocolon"}, "NAME:PASSWORD"),
        ([], {"flower_auth": "a:short"}, "NAME:PASSWORD"),
    ],
)
def test_it_refuses_to_start_where_anybody_could_look(
    tmp_path: Path, words: list[str], settings: dict[str, str], says: str
) -> None:
    """No credentials, weak ones, or an address of the network: an error that says what to do, and no password."""
    environment = {**os.environ, "VOICEJOBS_BROKER_URL": "redis://:s3cret@127.0.0.1:1/0"}
    environment |= {f"VOICEJOBS_{name.upper()}": value for name, value in settings.items()}
    done = subprocess.run([*COMMAND, *words], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 7
    assert says in done.stderr
    assert re.search(r"short|s3cret|nocolon", done.stdout + done.stderr) is None
