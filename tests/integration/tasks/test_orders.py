"""The frame of the tasks and the canvases together: whatever order messages come in, each step runs once."""

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import Ignore

from tests import rows
from tests.integration.tasks.shapes import EXPECTED, SHARDS, STEPS, bare_runtime, registered
from voicejobs import dispatch
from voicejobs.pipelines import pipeline as pipelines
from voicejobs.store.database import Database
from voicejobs.store.leases import Lease
from voicejobs.tasks.base import Product, run_step
from voicejobs.tasks.keeper import Hold


@pytest.fixture(scope="module", autouse=True)
def _graphs() -> Iterator[None]:
    """Register steps and pipelines of several shapes."""
    with registered():
        yield


class Line:
    """Stand for the broker: messages come out in any order, some of them twice."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.messages: list[list[Any]] = []
        self.ran: list[str] = []
        self.sent = 0

    def publish(self, signature: Any) -> bool:
        """Take a canvas apart into messages, each with the rest of its chain."""
        if signature.get("subtask_type") == "group":
            for task in signature.tasks:
                self.publish(task)
            return True
        self.put(list(signature.tasks) if signature.get("subtask_type") == "chain" else [signature])
        return True

    def put(self, chain: list[Any]) -> None:
        """Add a message, now and then twice."""
        self.sent += 1
        self.messages += [chain] * self.chance.choice([1, 1, 2])

    def work(self, runtime: Any) -> None:
        """Deliver until nothing is left."""
        while self.messages:
            first, *rest = self.messages.pop(self.chance.randrange(len(self.messages)))
            # Celery keeps the rest of a chain in reverse.
            task: Any = SimpleNamespace(request=SimpleNamespace(chain=list(reversed(rest))))
            try:
                run_step(runtime, task, first.args[1], dict.fromkeys(STEPS, self.body))
            except Ignore:
                continue
            if task.request.chain:
                self.put(rest)

    def body(self, runtime: Any, lease: Lease, hold: Hold) -> Product:
        """Note what ran, after what."""
        graph = pipelines.pipeline(lease.pipeline)
        for name in graph.node(lease.node).inputs:
            assert name == "source" or lease.upstream[name], "its inputs have run"
        self.ran.append(f"{lease.node}{lease.shard}")
        return Product({"shards": [{"number": number} for number in range(SHARDS.get(lease.node, 0))]})


@pytest.fixture(params=["", "cpu", "asr", "cpu asr"], ids=["sends-all", "serves-cpu", "serves-asr", "serves-all"])
def runtime(store_url: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return what the frame of a task uses, for workers that go on with what they serve."""
    with bare_runtime(store_url, tmp_path_factory.mktemp("state"), served=request.param) as runtime:
        yield runtime


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_each_step_runs_once_in_any_order(runtime: Any, name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages in random order, some doubled: every step runs once behind its inputs, and the job succeeds."""
    line = Line(seed)
    monkeypatch.setattr(dispatch, "_publish", line.publish)
    job_id = rows.add_job(runtime.database, pipeline=pipelines.pipeline(name))
    assert dispatch.fill(runtime.database, runtime.app, 4) == 1
    line.work(runtime)
    assert sorted(line.ran) == sorted(EXPECTED[name])
    if runtime.serves("cpu") or runtime.serves("asr"):
        assert line.sent <= len(EXPECTED[name])
    else:
        assert line.sent == len(EXPECTED[name]), "no message was sent for nothing"
    if name == "line" and runtime.serves("cpu") and runtime.serves("asr"):
        assert line.sent == 1, "what follows in line needs no message"
    assert rows.job(runtime.database, job_id).state == "succeeded"
    assert {row.state for row in rows.steps(runtime.database, job_id).values()} == {"succeeded"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_lost_messages_cost_only_time(runtime: Any, name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With messages lost again and again, sending what is missing ends the job, and each step has run once."""
    line = Line(seed)
    monkeypatch.setattr(dispatch, "_publish", line.publish)
    job_id = rows.add_job(runtime.database, pipeline=pipelines.pipeline(name))
    put = line.put
    monkeypatch.setattr(line, "put", lambda chain: put(chain) if line.chance.random() < 0.5 else None)
    for _ in range(60):
        resend(runtime.database, job_id)
        dispatch.fill(runtime.database, runtime.app, 4)
        line.work(runtime)
    assert sorted(line.ran) == sorted(EXPECTED[name])
    assert rows.job(runtime.database, job_id).state == "succeeded"


def resend(database: Database, job_id: str) -> None:
    """Put a job back into the outbox, as the look for lost messages does."""
    rows.set_job(database, job_id, sent_at=None)
