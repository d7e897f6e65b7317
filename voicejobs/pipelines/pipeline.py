"""Pipelines: named, versioned graphs of steps, and the ones that come with voicejobs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from json import dumps
from typing import Any

from voicejobs import formats
from voicejobs.audio import encode
from voicejobs.errors import BadOption, UnknownPipeline
from voicejobs.steps.registry import StepDefinition, step

SOURCE = "source"
"""The name that stands for the input of the job among the inputs of a node."""

MAX_NODE_NAME = 20
"""The id of a step run is that of its job, the name of its node and the number of its shard, 64 characters in all."""


@dataclass(frozen=True, slots=True)
class Node:
    """Place a step in a pipeline.

    Args:
        name: unique in the pipeline.
        step: name of the registered step.
        inputs: names of the nodes whose outputs it takes, `source` for the job's input.
        fan_out: the input whose output lists `shards`; the node then runs once for each of them, and the rows
            are created by the commit of that input.
    """

    name: str
    step: str
    inputs: tuple[str, ...]
    fan_out: str = ""

    @property
    def definition(self) -> StepDefinition:
        """Return the registered step."""
        return step(self.step)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Describe a graph of steps; nodes come in an order in which they can run.

    Raises:
        BadOption: two nodes share a name, an input is no earlier node, kinds do not fit, or the shape is one that
            cannot run: several last nodes, or a node that fans out over more than one input or over another fan.
    """

    name: str
    version: int
    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        outputs: dict[str, str] = {SOURCE: "source"}
        for node in self.nodes:
            if node.name in outputs:
                raise BadOption(f"The pipeline {self.name!r} has two nodes {node.name!r}")
            if len(node.name) > MAX_NODE_NAME or "." in node.name:
                raise BadOption(f"The name of the node {node.name!r} is too long, or has a dot in it")
            missing = [
                name for name in (*node.inputs, *([node.fan_out] if node.fan_out else [])) if name not in outputs
            ]
            if missing:
                raise BadOption(f"The node {node.name!r} takes {missing[0]!r}, which no earlier node gives")
            if node.fan_out and node.fan_out not in node.inputs:
                raise BadOption(f"The node {node.name!r} fans out over {node.fan_out!r}, which is none of its inputs")
            kinds = tuple(outputs[name] for name in node.inputs)
            if kinds != node.definition.inputs:
                raise BadOption(f"The node {node.name!r} takes {node.definition.inputs}, and is given {kinds}")
            outputs[node.name] = node.definition.output
        self._check_shape()

    def _check_shape(self) -> None:
        """Refuse shapes that rows and commits cannot express.

        Raises:
            BadOption: see there.
        """
        last = [node for node in self.nodes if not self.after(node.name)]
        if len(last) != 1 or last[0].fan_out:
            raise BadOption(f"The pipeline {self.name!r} needs one last node, which runs once: its commit ends the job")
        for node in self.nodes:
            if node.fan_out and (node.inputs != (node.fan_out,) or node.fan_out == SOURCE):
                raise BadOption(f"The node {node.name!r} fans out over {node.fan_out!r}, and may take nothing else")
            if node.fan_out and self.node(node.fan_out).fan_out:
                raise BadOption(f"The node {node.name!r} fans out over a node that fans out itself")

    def node(self, name: str) -> Node:
        """Return the node of this name."""
        return next(node for node in self.nodes if node.name == name)

    def after(self, name: str) -> tuple[Node, ...]:
        """Return the nodes that take the output of `name`."""
        return tuple(node for node in self.nodes if name in node.inputs)

    def options(self, given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return the full options of every node, by node name."""
        unknown = sorted(set(given) - {node.name for node in self.nodes})
        if unknown:
            raise BadOption(f"The pipeline {self.name!r} has no node {unknown[0]!r}")
        return {node.name: node.definition.options(given.get(node.name, {})) for node in self.nodes}

    def endings(self, options: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return the endings of the files that a job writes beside its target."""
        last = self.nodes[-1]
        wanted = options[last.name]
        if last.definition.inputs[-1] != "sounds":
            return [formats.extension(name) for name in wanted["formats"]]
        sounds = [encode.extension(name) for name in wanted["formats"]]
        return sounds + [formats.extension(name) for name in wanted["captions"]]

    def key(self, input_sha256: str, options: Mapping[str, Mapping[str, Any]], *, up_to: str = "") -> str:
        """Return the done-key: SHA-256 over input, step names and versions, and the options that matter.

        Model hashes count through the option `model_sha256`. `up_to` names the last node that counts; the
        key of all nodes but the last tells whether a transcript can be used again for other formats.
        """
        return self.keyed(options, up_to=up_to)(input_sha256)

    def keyed(self, options: Mapping[str, Mapping[str, Any]], *, up_to: str = "") -> Callable[[str], str]:
        """Return what makes the keys of many inputs with the same options, without writing these out each time."""
        parts: list[Any] = [self.name]
        for node in self.nodes:
            definition = node.definition
            parts.append([node.name, definition.name, definition.version, definition.key_options(options[node.name])])
            if node.name == up_to:
                break
        rest = dumps(parts, sort_keys=True, ensure_ascii=True)[1:]
        return lambda input_sha256: sha256(f"[{dumps(input_sha256)}, {rest}".encode()).hexdigest()


TRANSCRIBE = Pipeline(
    "transcribe",
    1,
    (
        Node("prepare", "prepare", (SOURCE,)),
        Node("recognise", "recognise", ("prepare",), fan_out="prepare"),
        Node("deliver", "deliver", ("prepare", "recognise")),
    ),
)

SPEAK = Pipeline(
    "speak",
    1,
    (
        Node("plan_text", "plan_text", (SOURCE,)),
        Node("synthesise", "synthesise", ("plan_text",), fan_out="plan_text"),
        Node("join", "join", ("plan_text", "synthesise")),
    ),
)

DUB = Pipeline(
    "dub",
    1,
    (
        Node("plan_captions", "plan_captions", (SOURCE,)),
        Node("synthesise", "synthesise", ("plan_captions",), fan_out="plan_captions"),
        Node("join", "join", ("plan_captions", "synthesise")),
    ),
)

TRANSCRIBE_SPEAK = Pipeline(
    "transcribe+speak",
    1,
    (
        Node("prepare", "prepare", (SOURCE,)),
        Node("recognise", "recognise", ("prepare",), fan_out="prepare"),
        Node("retell", "retell", ("prepare", "recognise")),
        Node("synthesise", "synthesise", ("retell",), fan_out="retell"),
        Node("join", "join", ("retell", "synthesise")),
    ),
)

_BUILT_IN = {pipeline.name: pipeline for pipeline in (TRANSCRIBE, SPEAK, DUB, TRANSCRIBE_SPEAK)}


def pipeline(name: str) -> Pipeline:
    """Return the pipeline of this name.

    Raises:
        UnknownPipeline: there is none.
    """
    try:
        return _BUILT_IN[name]
    except KeyError:
        raise UnknownPipeline(
            f"There is no pipeline {name!r}", hint=f"Known: {', '.join(sorted(_BUILT_IN))}."
        ) from None
