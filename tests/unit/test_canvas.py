"""Canvases: whatever a job still misses is compiled into chains and groups that lose and double nothing."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from celery import Celery
from hypothesis import given, settings
from hypothesis import strategies as st

from voicejobs.canvas import Missing, Told, build, first_rows
from voicejobs.errors import BadOption, UnknownPipeline, UnknownStep
from voicejobs.messages import QUEUE_CLASSES
from voicejobs.pipelines.pipeline import TRANSCRIBE, Node, Pipeline, pipeline
from voicejobs.steps import registry
from voicejobs.steps.registry import StepDefinition, all_steps, step
from voicejobs.store.states import StepState

APP = Celery("test", set_as_current=False)
SHA256 = "0" * 64


@pytest.fixture(scope="module", autouse=True)
def _test_steps() -> Iterator[None]:
    """Register steps with which graphs of any shape can be drawn."""
    for definition in (
        StepDefinition("t-load", 1, "cpu", ("source",), "audio"),
        StepDefinition("t-map", 1, "asr", ("audio",), "audio"),
        StepDefinition("t-join", 1, "cpu", ("audio", "audio"), "audio"),
    ):
        registry.register(definition)
    yield
    for name in ("t-load", "t-map", "t-join"):
        del registry._STEPS[name]


@pytest.fixture(scope="module")
def diamond(_test_steps: None) -> Pipeline:
    """Return a load, two branches and their join, and a step after it."""
    return Pipeline(
        "diamond",
        1,
        (
            Node("load", "t-load", ("source",)),
            Node("left", "t-map", ("load",)),
            Node("right", "t-map", ("load",)),
            Node("join", "t-join", ("left", "right")),
            Node("end", "t-map", ("join",)),
        ),
    )


@pytest.fixture(scope="module")
def line(_test_steps: None) -> Pipeline:
    """Return four steps in a row."""
    names = ["one", "two", "three", "four"]
    inputs = ["source", *names[:-1]]
    nodes = [
        Node(name, "t-load" if before == "source" else "t-map", (before,))
        for name, before in zip(names, inputs, strict=True)
    ]
    return Pipeline("line", 1, tuple(nodes))


def chains(signature: Any) -> list[list[str]]:
    """Return the step run ids of a canvas: a list for each chain, in order."""
    if signature is None:
        return []
    if signature.get("subtask_type") == "group":
        return [link for task in signature.tasks for link in chains(task)]
    if signature.get("subtask_type") == "chain":
        return [[task.args[1] for task in signature.tasks]]
    return [[signature.args[1]]]


def missing_of(graph: Pipeline, done: set[str], shards: int = 0) -> list[Missing]:
    """Return what a job misses whose nodes in `done` have succeeded; `shards` rows stand for each fan-out node."""
    rows = []
    for node in graph.nodes:
        if node.name in done or (node.fan_out and node.fan_out not in done):
            continue
        ready = all(name == "source" or name in done for name in node.inputs)
        for number in range(shards if node.fan_out else 1):
            name = f"{node.name}{number}" if node.fan_out else node.name
            rows.append(Missing(name, "job", node.name, node.step, node.definition.queue, ready))
    return rows


def upstream(graph: Pipeline, name: str) -> set[str]:
    """Return everything that must have succeeded before a node."""
    found: set[str] = set()
    for earlier in graph.node(name).inputs:
        if earlier != "source":
            found |= {earlier, *upstream(graph, earlier)}
    return found


def test_a_line_is_one_chain(line: Pipeline) -> None:
    """Steps in a row are sent together, and Celery sends each when the one before has ended."""
    signature = build(APP, line, missing_of(line, set()))
    assert chains(signature) == [["one", "two", "three", "four"]]


def test_signatures_carry_ids_only_and_take_no_results(line: Pipeline) -> None:
    """Every link is immutable, names a task, a queue and the trace, and shows nothing but job, place and model."""
    told = Told("f00d", {"two": {"engine": "whisper", "model": "base"}, "three": {"engine": "fake", "model": ""}})
    signature: Any = build(APP, line, missing_of(line, set()), told)
    shown = ["t-load", "t-map[base]", "t-map[fake]", "t-map"]
    assert [link.options["shadow"] for link in signature.tasks] == shown
    for link in signature.tasks:
        assert (link.immutable, link.args[0], link.kwargs) == (True, "job", {})
        assert (link.options["argsrepr"], link.options["kwargsrepr"]) == ("job, 1/1", "")
        assert link.options["headers"] == {"trace_id": "f00d"}
        assert link.task == f"voicejobs.step.t-{'load' if link.args[1] == 'one' else 'map'}"
        assert link.options["queue"] == f"voicejobs.{'cpu' if link.args[1] == 'one' else 'asr'}"


def test_what_follows_a_fan_out_waits_for_it() -> None:
    """Before `prepare` has run nobody knows the shards, so that only `prepare` is sent."""
    assert chains(build(APP, TRANSCRIBE, missing_of(TRANSCRIBE, set()))) == [["prepare"]]


def test_a_fan_out_of_one_is_a_chain() -> None:
    """With one shard what joins it follows in the same chain."""
    missing = missing_of(TRANSCRIBE, {"prepare"}, shards=1)
    assert chains(build(APP, TRANSCRIBE, missing)) == [["recognise0", "deliver"]]


@pytest.mark.parametrize("shards", [2, 5])
def test_a_fan_out_of_many_is_a_group_without_its_join(shards: int) -> None:
    """Several shards are sent side by side; the commit of the last sends the join."""
    missing = missing_of(TRANSCRIBE, {"prepare"}, shards=shards)
    assert chains(build(APP, TRANSCRIBE, missing)) == [[f"recognise{number}"] for number in range(shards)]


def test_the_last_missing_shard_takes_the_join_along() -> None:
    """Where all shards but one are done, the join follows that one in its chain."""
    missing = [row for row in missing_of(TRANSCRIBE, {"prepare"}, shards=5) if row.id in {"recognise3", "deliver"}]
    assert chains(build(APP, TRANSCRIBE, missing)) == [["recognise3", "deliver"]]


def test_nothing_ready_is_nothing_to_send() -> None:
    """A job whose step runs all wait, or are running elsewhere, has no canvas."""
    missing = [row for row in missing_of(TRANSCRIBE, {"prepare"}, shards=2) if not row.is_ready]
    assert build(APP, TRANSCRIBE, missing) is None
    assert build(APP, TRANSCRIBE, []) is None


def test_a_diamond_forks_after_its_first_step(diamond: Pipeline) -> None:
    """The first step of a diamond goes with one branch; both branches together leave the join out."""
    assert chains(build(APP, diamond, missing_of(diamond, set()))) == [["load", "left"]]
    assert chains(build(APP, diamond, missing_of(diamond, {"load"}))) == [["left"], ["right"]]
    assert chains(build(APP, diamond, missing_of(diamond, {"load", "right"}))) == [["left", "join", "end"]]


@settings(deadline=None)
@given(data=st.data(), shards=st.integers(1, 4), shape=st.sampled_from(["diamond", "line", "transcribe"]))
def test_any_rest_of_a_job_compiles(
    diamond: Pipeline, line: Pipeline, data: st.DataObject, shards: int, shape: str
) -> None:
    """Whatever is done, each ready step run is sent once, and a blocked one only behind all that it waits for."""
    graph = {"diamond": diamond, "line": line, "transcribe": TRANSCRIBE}[shape]
    wanted = data.draw(st.sets(st.sampled_from([node.name for node in graph.nodes])))
    done = {name for name in wanted if upstream(graph, name) <= wanted}
    rows = missing_of(graph, done, shards)
    # Of the shards some may be done, and some running.
    gone = data.draw(st.sets(st.sampled_from([row.id for row in rows]))) if rows else set()
    running = {row.id for row in rows if row.is_ready and row.id in gone}
    left = [replace(row, is_ready=row.is_ready and row.id not in running) for row in rows]
    node_of = {row.id: row.node for row in rows}

    found = chains(build(APP, graph, left))

    sent = [step_run_id for chain in found for step_run_id in chain]
    assert len(sent) == len(set(sent)), "nothing is sent twice"
    assert {chain[0] for chain in found} == {row.id for row in left if row.is_ready}
    for chain in found:
        for place, step_run_id in enumerate(chain[1:], 1):
            before = {node_of[other] for other in chain[:place]}
            open_inputs = {row.node for row in left} & set(graph.node(node_of[step_run_id]).inputs)
            assert open_inputs <= before


def test_a_new_job_starts_with_the_rows_that_are_known(diamond: Pipeline) -> None:
    """Rows of nodes that fan out come later; roots are queued, the others blocked, depths count the longest way."""
    rows = {row.node: (row.state, row.depth) for row in first_rows(diamond)}
    assert rows == {
        "load": (StepState.QUEUED, 0),
        "left": (StepState.BLOCKED, 1),
        "right": (StepState.BLOCKED, 1),
        "join": (StepState.BLOCKED, 2),
        "end": (StepState.BLOCKED, 3),
    }
    assert [row.node for row in first_rows(TRANSCRIBE)] == ["prepare", "deliver"]


def test_a_job_whose_beginning_is_known_starts_behind_it(diamond: Pipeline) -> None:
    """Nodes that are done get no row; what then waits for nothing is queued at depth 0, and told where to look."""
    rows = first_rows(diamond, done=frozenset({"load", "left", "right"}), inputs={"from": "art"})
    assert [(row.node, row.state, row.depth, row.inputs) for row in rows] == [
        ("join", StepState.QUEUED, 0, {"from": "art"}),
        ("end", StepState.BLOCKED, 1, None),
    ]


FAN = Node("fan", "t-map", ("load",), fan_out="load")
LOAD = Node("load", "t-load", ("source",))


@pytest.mark.parametrize(
    ("nodes", "complaint"),
    [
        ((Node("n" * 21, "t-load", ("source",)),), "too long"),
        ((LOAD, LOAD), "two nodes 'load'"),
        ((Node("a", "t-map", ("b",)), Node("b", "t-map", ("a",))), "'b', which no earlier node gives"),
        ((LOAD, Node("a", "t-map", ("load",), fan_out="nobody")), "'nobody', which no earlier node gives"),
        ((LOAD, Node("m", "t-map", ("load",)), Node("a", "t-map", ("m",), fan_out="load")), "none of its inputs"),
        ((LOAD, Node("a", "t-join", ("load",))), "is given"),
        ((LOAD, Node("a", "t-load", ("load",))), "is given"),
        ((LOAD, Node("a", "t-map", ("load",)), Node("b", "t-map", ("load",))), "one last node"),
        ((LOAD, FAN), "one last node"),
        ((), "one last node"),
        ((LOAD, FAN, Node("a", "t-map", ("fan",), fan_out="fan"), Node("z", "t-map", ("a",))), "fans out itself"),
        ((LOAD, Node("a", "t-join", ("load", "load"), fan_out="load"), Node("z", "t-map", ("a",))), "nothing else"),
    ],
)
def test_graphs_that_cannot_run_are_refused(nodes: tuple[Node, ...], complaint: str) -> None:
    """Doubled names, cycles, unknown inputs, kinds that do not fit and shapes without one end are refused."""
    with pytest.raises(BadOption, match=complaint):
        Pipeline("bad", 1, nodes)


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    """A pipeline or step that does not exist is named, and so are those that do."""
    with pytest.raises(UnknownPipeline, match="nothing") as caught:
        pipeline("nothing")
    assert "transcribe" in caught.value.hint
    with pytest.raises(UnknownStep, match="nothing") as unknown:
        step("nothing")
    assert "prepare" in unknown.value.hint
    assert pipeline("transcribe") is TRANSCRIBE


def test_unknown_options_are_refused_with_the_known_ones() -> None:
    """An option of a step, or a node, that does not exist is refused; defaults fill up the rest."""
    with pytest.raises(BadOption, match="no option 'beams'") as caught:
        TRANSCRIBE.options({"recognise": {"beams": 3}})
    assert "beam_size" in caught.value.hint
    with pytest.raises(BadOption, match="no node 'nobody'"):
        TRANSCRIBE.options({"nobody": {}})
    options = TRANSCRIBE.options({"recognise": {"beam_size": 3}})
    assert (options["recognise"]["beam_size"], options["recognise"]["task"]) == (3, "transcribe")
    assert options["prepare"] == step("prepare").options({})


def test_every_step_that_comes_with_voicejobs_has_a_queue_and_knows_its_cosmetics() -> None:
    """Queues are known, and options that do not count exist."""
    for definition in all_steps():
        assert definition.queue in QUEUE_CLASSES
        assert definition.cosmetic <= set(definition.defaults)
    with pytest.raises(ValueError, match="prepare"):
        registry.register(step("prepare"))


Change = Callable[[dict[str, dict[str, object]]], None]


def key(change: Change = lambda options: None, digest: str = SHA256, up_to: str = "") -> str:
    """Return the done-key of `transcribe` with changed options."""
    options = TRANSCRIBE.options({})
    change(options)
    return TRANSCRIBE.key(digest, options, up_to=up_to)


@pytest.mark.parametrize(
    ("node", "option", "value"),
    [
        ("prepare", "channels", "split"),
        ("recognise", "engine", "fake"),
        ("recognise", "model", "small"),
        ("recognise", "model_sha256", "1" * 64),
        ("recognise", "language", "en"),
        ("recognise", "word_timestamps", True),
        ("recognise", "beam_size", 1),
        ("recognise", "temperatures", [0.0]),
        ("deliver", "formats", ["srt"]),
    ],
)
def test_the_done_key_changes_with_what_changes_the_output(node: str, option: str, value: object) -> None:
    """Options that matter, and the hash of the model, give another key."""
    assert key(lambda options: options[node].update({option: value})) != key()


@pytest.mark.parametrize(
    ("node", "option", "value"),
    [("recognise", "device", "cuda:0"), ("deliver", "target", "/x"), ("deliver", "replace", True)],
)
def test_the_done_key_ignores_cosmetic_options(node: str, option: str, value: object) -> None:
    """Where and on what a step runs gives the same key."""
    assert key(lambda options: options[node].update({option: value})) == key()


def test_the_done_key_changes_with_input_and_step_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another input and another version of a step give another key; the order of options does not."""
    before = key()
    assert key(digest="1" * 64) != before
    assert key(lambda options: options["recognise"].update(dict(reversed(options["recognise"].items())))) == before
    newer = StepDefinition("recognise", 99, "asr", ("audio",), "pieces", step("recognise").defaults)
    monkeypatch.setitem(registry._STEPS, "recognise", newer)
    assert key() != before


def test_the_key_of_the_transcript_ignores_what_is_made_of_it() -> None:
    """Up to `recognise` the formats do not count, the options of the recogniser do."""

    def formats(options: dict[str, dict[str, object]]) -> None:
        options["deliver"]["formats"] = ["srt"]

    def beams(options: dict[str, dict[str, object]]) -> None:
        options["recognise"]["beam_size"] = 1

    assert key(formats, up_to="recognise") == key(up_to="recognise")
    assert key(beams, up_to="recognise") != key(up_to="recognise")
