"""The frame of the tasks and the canvases together: whatever order messages come in, each step runs once."""

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import Ignore

from tests import rows
from voicejobs import dispatch
from voicejobs.dispatch import Upkeep
from voicejobs.pipelines import pipeline as pipelines
from voicejobs.pipelines.pipeline import Node, Pipeline
from voicejobs.settings import Settings
from voicejobs.steps import registry
from voicejobs.steps.registry import StepDefinition
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database
from voicejobs.store.leases import Lease
from voicejobs.tasks.base import Product, run_step
from voicejobs.tasks.keeper import Hold, LeaseKeeper
from voicejobs.tasks.runtime import Place

SHARDS = {"one": 1, "many": 3}


@pytest.fixture(scope="module", autouse=True)
def _graphs() -> Iterator[None]:
    """Register steps and pipelines of several shapes."""
    steps = (
        StepDefinition("o-load", 1, "cpu", ("source",), "audio"),
        StepDefinition("o-map", 1, "asr", ("audio",), "audio"),
        StepDefinition("o-join", 1, "cpu", ("audio", "audio"), "audio"),
    )
    load, one, many = (Node(name, "o-load", ("source",)) for name in ("load", "one", "many"))
    left, right = (Node(name, "o-map", ("load",)) for name in ("left", "right"))
    graphs = {
        "line": (load, left, Node("end", "o-map", ("left",))),
        "diamond": (load, left, right, Node("join", "o-join", ("left", "right")), Node("end", "o-map", ("join",))),
        # The shards of the one root do not exist yet when the other root commits.
        "late-fan": (
            load,
            many,
            Node("fan", "o-map", ("many",), fan_out="many"),
            Node("join", "o-join", ("load", "fan")),
            Node("end", "o-map", ("join",)),
        ),
        "fan-of-one": (
            one,
            Node("fan", "o-map", ("one",), fan_out="one"),
            Node("beside", "o-map", ("one",)),
            Node("join", "o-join", ("beside", "fan")),
        ),
        "two-fans": (
            many,
            Node("fan", "o-map", ("many",), fan_out="many"),
            Node("fan2", "o-map", ("many",), fan_out="many"),
            Node("join", "o-join", ("fan", "fan2")),
        ),
    }
    for step in steps:
        registry.register(step)
    for name, nodes in graphs.items():
        pipelines._BUILT_IN[name] = Pipeline(name, 1, nodes)
    yield
    for step in steps:
        del registry._STEPS[step.name]
    for name in graphs:
        del pipelines._BUILT_IN[name]


class Line:
    """Stand for the broker: messages come out in any order, some of them twice."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.messages: list[list[Any]] = []
        self.ran: list[str] = []

    def publish(self, signature: Any) -> bool:
        """Take a canvas apart into messages, each with the rest of its chain."""
        if signature.get("subtask_type") == "group":
            return all([self.publish(task) for task in signature.tasks])
        self.put(list(signature.tasks) if signature.get("subtask_type") == "chain" else [signature])
        return True

    def put(self, chain: list[Any]) -> None:
        """Add a message, now and then twice."""
        self.messages += [chain] * self.chance.choice([1, 1, 2])

    def work(self, runtime: Any) -> None:
        """Deliver until nothing is left."""
        while self.messages:
            first, *rest = self.messages.pop(self.chance.randrange(len(self.messages)))
            # Celery keeps the rest of a chain in reverse.
            task: Any = SimpleNamespace(request=SimpleNamespace(chain=list(reversed(rest))))
            try:
                run_step(runtime, task, first.args[1], self.body)
            except Ignore:
                continue
            if rest:
                self.put(rest)

    def body(self, runtime: Any, lease: Lease, hold: Hold) -> Product:
        """Note what ran, after what."""
        graph = pipelines.pipeline(lease.pipeline)
        for name in graph.node(lease.node).inputs:
            assert name == "source" or lease.upstream[name], "its inputs have run"
        self.ran.append(f"{lease.node}{lease.shard}")
        return Product({"shards": [{"number": number} for number in range(SHARDS.get(lease.node, 0))]})


EXPECTED = {
    "line": {"load0", "left0", "end0"},
    "diamond": {"load0", "left0", "right0", "join0", "end0"},
    "late-fan": {"load0", "many0", "fan0", "fan1", "fan2", "join0", "end0"},
    "fan-of-one": {"one0", "fan0", "beside0", "join0"},
    "two-fans": {"many0", "fan0", "fan1", "fan2", "fan20", "fan21", "fan22", "join0"},
}


@pytest.fixture
def runtime(sqlite_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return what the frame of a task needs, without decoder and engines."""
    folder = tmp_path_factory.mktemp("state")
    app = Celery("orders", set_as_current=False)
    with rows.opened(sqlite_url) as database:
        yield SimpleNamespace(
            database=database,
            app=app,
            owner=rows.OWNER,
            place=Place(),
            settings=Settings(state_dir=folder, models_dir=folder),
            keeper=LeaseKeeper(database, rows.OWNER, 60.0),
            upkeep=Upkeep(database, app, 60.0),
            blobs=BlobStore(folder),
            ring=lambda: None,
        )
    app.close()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_each_step_runs_once_in_any_order(runtime: Any, name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages in random order, some doubled: every step runs once behind its inputs, and the job succeeds."""
    line = Line(seed)
    monkeypatch.setattr(dispatch, "_publish", line.publish)
    job_id = rows.add_job(runtime.database, pipeline=pipelines.pipeline(name))
    assert dispatch.fill(runtime.database, runtime.app, 4) == 1
    line.work(runtime)
    assert sorted(line.ran) == sorted(EXPECTED[name])
    assert rows.job(runtime.database, job_id).state == "succeeded"
    assert {row.state for row in rows.steps(runtime.database, job_id).values()} == {"succeeded"}


@pytest.mark.parametrize("seed", range(6))
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
