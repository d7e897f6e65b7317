"""Graphs of several shapes, and what the frame of a task needs to run them without decoder and engines."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from celery import Celery

from tests import rows
from voicejobs.dispatch import Upkeep
from voicejobs.memory import MemoryGuard
from voicejobs.pipelines import pipeline as pipelines
from voicejobs.pipelines.pipeline import Node, Pipeline
from voicejobs.settings import Settings
from voicejobs.steps import registry
from voicejobs.steps.registry import StepDefinition
from voicejobs.store.blobs import BlobStore
from voicejobs.tallies import Tally
from voicejobs.tasks.keeper import LeaseKeeper
from voicejobs.tasks.runtime import Place
from voicejobs.tasks.watch import Watch

SHARDS = {"one": 1, "many": 3, "middle": 2}


@contextmanager
def registered() -> Iterator[None]:
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
        # What the shards of one fan join to fans out again, as in transcribe+speak.
        "fans-in-turn": (
            many,
            Node("fan", "o-map", ("many",), fan_out="many"),
            Node("middle", "o-join", ("many", "fan")),
            Node("fan2", "o-map", ("middle",), fan_out="middle"),
            Node("end", "o-join", ("middle", "fan2")),
        ),
        "one-then-many": (
            one,
            Node("fan", "o-map", ("one",), fan_out="one"),
            Node("middle", "o-join", ("one", "fan")),
            Node("fan2", "o-map", ("middle",), fan_out="middle"),
            Node("end", "o-join", ("middle", "fan2")),
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


STEPS = ("o-load", "o-map", "o-join", "prepare", "recognise", "deliver")

EXPECTED = {
    "line": {"load0", "left0", "end0"},
    "diamond": {"load0", "left0", "right0", "join0", "end0"},
    "late-fan": {"load0", "many0", "fan0", "fan1", "fan2", "join0", "end0"},
    "fan-of-one": {"one0", "fan0", "beside0", "join0"},
    "fans-in-turn": {"many0", "fan0", "fan1", "fan2", "middle0", "fan20", "fan21", "end0"},
    "one-then-many": {"one0", "fan0", "middle0", "fan20", "fan21", "end0"},
    "two-fans": {"many0", "fan0", "fan1", "fan2", "fan20", "fan21", "fan22", "join0"},
}


@contextmanager
def bare_runtime(url: str, folder: Path, served: str = "", **settings: Any) -> Iterator[Any]:
    """Return what the frame of a task uses; `served` names the queue classes whose steps it goes on with."""
    app = Celery("orders", set_as_current=False)
    with rows.opened(url) as database:
        yield SimpleNamespace(
            database=database,
            app=app,
            owner=rows.OWNER,
            place=Place(),
            settings=Settings(state_dir=folder, models_dir=folder, **settings),
            taken=0,
            keeper=LeaseKeeper(database, rows.OWNER, 60.0),
            upkeep=Upkeep(database, app, 60.0),
            blobs=BlobStore(folder),
            ring=lambda: None,
            watch=Watch(),
            tally=Tally(),
            memory=MemoryGuard(0),
            serves=lambda queue_class: queue_class in served.split(),
        )
    app.close()
