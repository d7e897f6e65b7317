"""Read an input that was submitted unread: give its job the hash, the keys, and what is known of it already."""

import logging
from dataclasses import replace

from sqlalchemy import Connection

from voicejobs import canvas
from voicejobs.errors import InputChanged, LeaseLost
from voicejobs.pipelines.pipeline import SOURCE, Pipeline, pipeline
from voicejobs.store import leases
from voicejobs.store.inputs import identify, known_transcript
from voicejobs.store.leases import Ending, Lease
from voicejobs.store.paths import UNREAD, decode_path, display_name
from voicejobs.store.retry import deliver_known
from voicejobs.store.states import StepState
from voicejobs.tasks.content import Content, read_content
from voicejobs.tasks.keeper import Hold
from voicejobs.tasks.runtime import Runtime

logger = logging.getLogger(__name__)


def identified(runtime: Runtime, lease: Lease, hold: Hold) -> Lease:
    """Return the lease with the hash and the keys of its input; the file is read where nobody has read it yet.

    From then on the job is as if it had been submitted with its hash: a second claim finds the file changed if it was.

    Raises:
        NotFound, Unreadable, NotAudio, EmptyFile, InputChanged: the file cannot be read, or is not the one that the
            manifest names.
        LeaseLost: another worker has the step run, or the transcript is known and the job now only delivers it.
    """
    graph = pipeline(lease.pipeline)
    if not lease.source.get(UNREAD) or SOURCE not in graph.node(lease.node).inputs:
        return lease
    path = decode_path(lease.source)
    content = read_content(path, display_name(path))
    _demand_named(lease, content, display_name(path))
    hold.check()
    source = {name: value for name, value in lease.source.items() if name != UNREAD}
    known = replace(
        lease,
        source={**source, "size": content.size, "mtime_ns": content.mtime_ns},
        input_sha256=content.sha256,
        result_key=graph.key(content.sha256, lease.options, up_to=_before_last(graph)),
    )
    is_known = runtime.database.run(lambda connection: _note(connection, runtime.owner, graph, known))
    if is_known:
        logger.info("the transcript is known: it is only delivered")
        raise LeaseLost("The transcript of this input is known, and the job goes on with its last step")
    return known


def _before_last(graph: Pipeline) -> str:
    """Return the name of the last node that counts for the transcript."""
    return graph.nodes[-2].name if len(graph.nodes) > 1 else ""


def _demand_named(lease: Lease, content: Content, name: str) -> None:
    """Refuse a file that is not the one that the manifest names.

    Raises:
        InputChanged: its size or its hash is another.
    """
    size = lease.source.get("size")
    hint = "Correct the manifest, or put the right file there; then run the command again."
    if size is not None and size != content.size:
        raise InputChanged(f"{name} has {content.size} bytes, and {size} in the manifest", hint=hint)
    if lease.input_sha256 is not None and lease.input_sha256 != content.sha256:
        raise InputChanged(f"{name} has another SHA-256 than in the manifest: {content.sha256}", hint=hint)


def _note(connection: Connection, owner: str, graph: Pipeline, lease: Lease) -> bool:
    """Write down what the file is; tell whether its transcript is known, and the job is now one that delivers it."""
    digest = str(lease.input_sha256)
    identify(connection, lease, done_key=graph.key(digest, lease.options))
    if lease.options[graph.nodes[-1].name].get("replace"):
        return False  # it is to be done again
    text = known_transcript(connection, lease.job_id, str(lease.result_key))
    if text is None:
        return False
    leases.end(connection, lease, Ending(StepState.QUEUED, "released"), owner=owner)
    done = frozenset(node.name for node in graph.nodes[:-1])
    deliver_known(connection, lease.job_id, canvas.first_rows(graph, done=done, inputs={"transcript": text}))
    return True
