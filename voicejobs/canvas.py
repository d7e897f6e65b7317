"""What a job still misses, as Celery signatures: chains for what follows in line, groups for what can run beside it.

A canvas is a plan to throw away: the rows and the leases decide whether a message still means anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from voicejobs.messages import TRACE_HEADER, queue_name, shown_args, shown_name, task_name
from voicejobs.pipelines.pipeline import SOURCE, Node, Pipeline
from voicejobs.store.commits import Following
from voicejobs.store.jobs import NewStepRun, insert_step_runs, release_join, release_single, step_run_id
from voicejobs.store.states import StepState

if TYPE_CHECKING:  # producers insert rows and build no canvas: they need not import Celery
    from celery import Celery
    from celery.canvas import Signature


@dataclass(frozen=True, slots=True)
class Missing:
    """Name a step run that a job still misses, and its place among the `of` step runs of its node."""

    id: str
    job_id: str
    node: str
    step: str
    queue: str
    is_ready: bool
    shard: int = 0
    of: int = 1


@dataclass(frozen=True, slots=True)
class Told:
    """Say what messages tell about their job beside ids: the trace id, and by node the options that name models."""

    trace_id: str = ""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """Name a step run that has just succeeded; `is_only` tells that its node has no other."""

    job_id: str
    node: str
    is_only: bool


def first_rows(
    pipeline: Pipeline, *, done: frozenset[str] = frozenset(), inputs: Mapping[str, Any] | None = None
) -> list[NewStepRun]:
    """Return the step runs that a new job starts with.

    Nodes that fan out, and nodes in `done`, get none: the rows of the former are created by the commit of the
    step that knows how many there are, the output of the latter is known. `inputs` goes to the nodes that are
    ready, and tells them where to find what was done before.
    """
    return [
        NewStepRun(
            node=node.name,
            step=node.step,
            step_version=node.definition.version,
            queue=node.definition.queue,
            depth=_depth(pipeline, node, done),
            state=StepState.QUEUED if _is_ready(node, done) else StepState.BLOCKED,
            inputs=inputs if _is_ready(node, done) else None,
        )
        for node in pipeline.nodes
        if node.name not in done and not node.fan_out
    ]


def _is_ready(node: Node, done: frozenset[str]) -> bool:
    """Tell whether a node waits for nothing but the job's input and nodes in `done`."""
    return all(name == SOURCE or name in done for name in node.inputs)


def _depth(pipeline: Pipeline, node: Node, done: frozenset[str] = frozenset()) -> int:
    """Return the number of nodes to run on the longest way from the job's input, or from nodes in `done`, to `node`."""
    before = [pipeline.node(name) for name in node.inputs if name != SOURCE and name not in done]
    return max((1 + _depth(pipeline, earlier, done) for earlier in before), default=0)


def release(connection: Connection, pipeline: Pipeline, done: Done, output: Mapping[str, Any]) -> list[Missing]:
    """Create and queue what a commit makes ready, in the transaction of that commit.

    Args:
        connection: the transaction.
        pipeline: the job's pipeline.
        done: the step run that has just succeeded.
        output: its output; where a node fans out over it, `shards` lists the inputs of each of its step runs.

    Returns:
        What `build` needs to know of the job now: what became ready, and what is blocked behind it.
    """
    ready: list[Missing] = []
    blocked: list[Missing] = []
    node, job_id = done.node, done.job_id
    for following in pipeline.after(node):
        if following.fan_out == node:
            ids = insert_step_runs(connection, job_id, _shards(pipeline, following, output))
            ready += [
                replace(_missing(job_id, following, one), shard=shard, of=len(ids)) for shard, one in enumerate(ids)
            ]
            if len(ids) == 1:
                blocked += _joins_behind(pipeline, following, job_id)
        elif not _waits_for_fan_out(following, ready, pipeline):
            released = _release(connection, pipeline, following, done)
            if released is not None:
                ready.append(_missing(job_id, following, released))
    return ready + blocked


def _shards(pipeline: Pipeline, node: Node, output: Mapping[str, Any]) -> list[NewStepRun]:
    """Return the step runs of a node that fans out over `output`."""
    return [
        replace(_row(pipeline, node, StepState.QUEUED), shard=shard, inputs={**inputs, "of": len(output["shards"])})
        for shard, inputs in enumerate(output["shards"])
    ]


def _row(pipeline: Pipeline, node: Node, state: StepState) -> NewStepRun:
    """Return a step run of a node."""
    definition = node.definition
    return NewStepRun(
        node=node.name,
        step=node.step,
        step_version=definition.version,
        queue=definition.queue,
        depth=_depth(pipeline, node),
        state=state,
    )


def in_line(pipeline: Pipeline, done: Done, output: Mapping[str, Any]) -> Following | None:
    """Return the only step run that may follow on a commit, if it takes nothing but what ran on the way to it.

    None where several follow, or where what follows may wait for others: then the rows must be asked (`release`).
    """
    if not done.is_only:
        return None
    found: list[Following] = []
    behind = _behind(pipeline, done.node)
    for node in pipeline.after(done.node):
        if node.fan_out == done.node:
            found += [Following(row, is_new=True) for row in _shards(pipeline, node, output)]
        elif set(node.inputs) <= behind:
            found.append(Following(_row(pipeline, node, StepState.BLOCKED), is_new=False))
        elif not any(name != SOURCE and pipeline.node(name).fan_out == done.node for name in node.inputs):
            return None
    return found[0] if len(found) == 1 else None


def _release(connection: Connection, pipeline: Pipeline, node: Node, done: Done) -> str | None:
    """Queue a node if nothing it takes is missing."""
    if done.is_only and set(node.inputs) <= _behind(pipeline, done.node):
        # All else that it takes has run before `done` could: nothing to count, and nobody to race with.
        return release_single(connection, done.job_id, node.name)
    return release_join(connection, done.job_id, node.name, _waited_for(pipeline, node))


def _behind(pipeline: Pipeline, name: str) -> set[str]:
    """Return a node and all that must have run before it."""
    before = {SOURCE, name}
    for earlier in pipeline.node(name).inputs:
        if earlier != SOURCE:
            before |= _behind(pipeline, earlier)
    return before


def _joins_behind(pipeline: Pipeline, node: Node, job_id: str) -> list[Missing]:
    """Return the blocked step runs that follow on `node` and wait for nothing else, from the first to the last."""
    joins: list[Missing] = []
    for following in pipeline.after(node.name):
        if not following.fan_out and set(following.inputs) <= _behind(pipeline, node.name):
            blocked = replace(_missing(job_id, following, step_run_id(job_id, following.name)), is_ready=False)
            joins += [blocked, *_joins_behind(pipeline, following, job_id)]
    return joins


def _waited_for(pipeline: Pipeline, node: Node) -> list[str]:
    """Return the nodes that must have succeeded before `node`.

    An input that fans out may have no rows yet, and none is missing then: what creates them counts too.
    """
    return [
        *node.inputs,
        *(fan_out for name in node.inputs if name != SOURCE and (fan_out := pipeline.node(name).fan_out)),
    ]


def _waits_for_fan_out(node: Node, ready: Sequence[Missing], pipeline: Pipeline) -> bool:
    """Tell whether `node` joins step runs that this very commit has created."""
    created = {missing.node for missing in ready}
    return any(name in created and pipeline.node(name).fan_out for name in node.inputs)


def _missing(job_id: str, node: Node, step_run_id: str) -> Missing:
    """Describe a ready step run."""
    return Missing(step_run_id, job_id, node.name, node.step, node.definition.queue, is_ready=True)


def build(
    app: "Celery", pipeline: Pipeline, missing: Iterable[Missing], told: Told | None = None
) -> "Signature[Any] | None":
    """Compile the step runs that one job misses; None where none is ready.

    Each ready step run begins a chain, which goes on with the blocked ones that wait for nothing else. Several
    chains make a group. A join of several is in no chain: the commit of its last input sends it.
    """
    from celery import group  # noqa: PLC0415 - see above

    rows = list(missing)
    open_nodes: dict[str, int] = {}
    for row in rows:
        open_nodes[row.node] = open_nodes.get(row.node, 0) + 1
    blocked = {row.node: row for row in rows if not row.is_ready}
    starts = [row for row in rows if row.is_ready]
    if not starts:
        return None
    chains = [_chain(app, _links(pipeline, row, blocked, open_nodes), told or Told()) for row in starts]
    return chains[0] if len(chains) == 1 else group(chains, app=app)


def _links(
    pipeline: Pipeline, start: Missing, blocked: Mapping[str, Missing], open_nodes: Mapping[str, int]
) -> list[Missing]:
    """Return what the chain that starts at a ready step run consists of."""
    links = [start]
    if open_nodes[start.node] == 1:
        while (following := _next_in_line(pipeline, links, blocked, open_nodes)) is not None:
            links.append(following)
    return links


def _chain(app: "Celery", links: Sequence[Missing], told: Told) -> "Signature[Any]":
    """Return the signature of step runs that follow each other."""
    from celery import chain  # noqa: PLC0415 - see above

    signatures = [_signature(app, link, told) for link in links]
    return signatures[0] if len(signatures) == 1 else chain(*signatures, app=app)


def _next_in_line(
    pipeline: Pipeline, links: Sequence[Missing], blocked: Mapping[str, Missing], open_nodes: Mapping[str, int]
) -> Missing | None:
    """Return the blocked step run that waits only for what the chain has before it."""
    behind = {link.node for link in links}
    for node in pipeline.after(links[-1].node):
        row = blocked.get(node.name)
        if row is None or row.node in behind:
            continue
        # A node whose rows do not exist yet (it fans out) is missing too, though it has no row to count.
        unknown = [name for name in node.inputs if name != SOURCE and _rows_unknown(pipeline, name, open_nodes, behind)]
        if not unknown and all(name == SOURCE or name in behind or name not in open_nodes for name in node.inputs):
            return row
    return None


def _rows_unknown(pipeline: Pipeline, name: str, open_nodes: Mapping[str, int], behind: set[str]) -> bool:
    """Tell whether the step runs of a fan-out node are yet to be created by something in this chain."""
    node = pipeline.node(name)
    return bool(node.fan_out) and name not in open_nodes and node.fan_out in behind


def _signature(app: "Celery", missing: Missing, told: Told) -> "Signature[Any]":
    """Return the immutable signature of a step run: ids only, also in what Flower shows."""
    return app.signature(
        task_name(missing.step),
        args=(missing.job_id, missing.id),
        immutable=True,
        options={
            "queue": queue_name(missing.queue),
            "shadow": shown_name(missing.step, told.options.get(missing.node, {})),
            "argsrepr": shown_args(missing.job_id, missing.shard, missing.of),
            "kwargsrepr": "",
            "headers": {TRACE_HEADER: told.trace_id},
        },
    )
