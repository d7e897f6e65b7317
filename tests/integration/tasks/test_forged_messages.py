"""Whoever can write to the broker makes no worker run anything but the steps of known jobs."""

import base64
import json
import os
import pickle
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select

from tests.bench import Bench
from tests.rows import steps
from tests.servers.valkey import Valkey
from tests.waiting import wait_until
from voicejobs.messages import QUEUE_CLASSES, queue_name, task_name
from voicejobs.store.schema import attempts, jobs, step_runs

PREPARE = task_name("prepare")
JSON = "application/json"


class Bomb:
    """Make a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        """Say what unpickling does."""
        return (Path.touch, (self.path,))


def message(body: bytes, kind: str, *, task: object = PREPARE, encoding: str = "utf-8", **headers: Any) -> bytes:
    """Return what the broker holds for a message, as kombu writes it."""
    tag = str(uuid4())
    given = {"lang": "py", "task": task, "id": tag, "root_id": tag, "argsrepr": "", "kwargsrepr": "", **headers}
    properties = {
        "correlation_id": tag,
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": queue_name("cpu")},
        "priority": 0,
        "body_encoding": "base64",
        "delivery_tag": tag,
    }
    return json.dumps(
        {
            "body": base64.b64encode(body).decode(),
            "content-encoding": encoding,
            "content-type": kind,
            "headers": given,
            "properties": properties,
        }
    ).encode()


def call(*arguments: Any, task: object = PREPARE, **keywords: Any) -> bytes:
    """Return a message in the form that workers take."""
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    return message(json.dumps([list(arguments), keywords, embed]).encode(), JSON, task=task)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Return a file that appears where a message is unpickled."""
    return tmp_path / "unpickled"


def test_forged_messages_do_nothing_and_the_worker_lives(bench: Bench, valkey: Valkey, mark: Path) -> None:
    """Pickles, YAML, unknown tasks, odd arguments and plain rubbish are dropped; the worker goes on with its work."""
    (known,) = bench.submit(bench.recording("first.wav"))
    worker = bench.start_worker()
    bench.wait_ended(known)
    before = _story(bench)
    bomb = pickle.dumps(([], {}, {"callbacks": [Bomb(mark)]}))
    run = steps(bench.database, known)["prepare"].id
    forged = [
        message(bomb, "application/x-python-serialize", encoding="binary"),
        message(bomb, "application/data", encoding="binary"),
        message(bomb, JSON, encoding="binary"),
        message(f"!!python/object/apply:pathlib.Path.touch [{str(mark)!r}]".encode(), "application/x-yaml"),
        message(pickle.dumps(Bomb(mark)), "application/x-msgpack", encoding="binary"),
        call(task="os.system"),
        call(f"touch {mark}", task="voicejobs.step.none"),
        call(task="celery.backend_cleanup"),
        call({"task": "os.system", "args": [], "kwargs": {}}, [[f"touch {mark}"]], task="celery.map"),
        call(task=None),
        call(),
        call("job_none", "run_none"),
        call(known, run),
        call("../../etc/passwd", "' OR 1=1 --"),
        call({"a": 1}, ["b"]),
        call("x", "y", "z", path="/etc/passwd"),
        message(b"[", JSON),
        message(b"null", JSON),
        message(b"[[], {}, {}]", JSON, eta="never", expires=[1], timelimit="x", retries={}),
        message(b"[[], {}, {}]", JSON, id=None, group=5, shadow={}, origin=7),
        message(bomb, "text/\x00", encoding="rot13"),
        b"",
        b"null",
        b"[]",
        b"{}",
        b"7",
        b"{" * 100_000,
        b"[" * 100_000,
        b'{"body": "!", "properties": {"body_encoding": "base64", "delivery_tag": 1}, "headers": null}',
        b'{"body": 1, "content-type": 1, "content-encoding": 1, "headers": 1, "properties": 1}',
        pickle.dumps(Bomb(mark)),
        os.urandom(1000),
    ]
    with valkey.client(int(bench.broker_url.rpartition("virtual_host=")[2])) as client:
        for body in forged:
            client.lpush(queue_name("cpu"), body)
        wait_until(
            lambda: not any(client.llen(queue_name(name)) for name in QUEUE_CLASSES), 20, what=lambda: bench.log[-5000:]
        )
    (after,) = bench.submit(bench.recording("second.wav"))
    assert bench.wait_ended(after) == {after: "succeeded"}
    assert worker.poll() is None
    assert not mark.exists()
    assert {name: story for name, story in _story(bench).items() if name in before} == before
    assert bench.log.count("ContentDisallowed") + bench.log.count("Refusing to deserialize") >= 2, bench.log[-6000:]


def _story(bench: Bench) -> dict[str, Any]:
    """Return what the rows say of jobs, step runs and attempts."""
    with bench.database.read() as connection:
        states = {row.id: row.state for row in connection.execute(select(jobs.c.id, jobs.c.state))}
        runs = {row.id: (row.state, row.fence) for row in connection.execute(select(step_runs))}
        tries = {f"{row.step_run_id}/{row.fence}": row.outcome for row in connection.execute(select(attempts))}
    return {**states, **runs, **tries}
