"""Read an input that was submitted unread: give its job the hash, the keys, and what is known of it already."""

import logging
from dataclasses import replace

from sqlalchemy import Connection

from voicejobs import canvas
from voicejobs.errors import InputChanged, LeaseLost
from voicejobs.outbound import sources
from voicejobs.pipelines.pipeline import SOURCE, Pipeline, pipeline
from voicejobs.store import leases
from voicejobs.store.inputs import identify, known_transcript
from voicejobs.store.leases import Ending, Lease
from voicejobs.store.paths import BLOB, UNREAD, decode_path, display_name
from voicejobs.store.retry import deliver_known
from voicejobs.store.states import StepState
from voicejobs.tasks.content import Content, read_content
from voicejobs.tasks.keeper import Hold
from voicejobs.tasks.runtime import Runtime

logger = logging.getLogger(__name__)

_OF_THE_UNREAD = (UNREAD, sources.URL, sources.LOCAL)
"""What is in the source of a job only until its input has been read."""


def identified(runtime: Runtime, lease: Lease, hold: Hold) -> Lease:
    """Return the lease with the hash and the keys of its input; it is read, or taken in, where nobody has done so yet.

    From then on the job is as if it had been submitted with its hash: a second claim finds the file changed if it was.
    What lay elsewhere is a blob from then on, and where it lay is forgotten: an address may hold a signature.

    Raises:
        NotFound, Unreadable, NotAudio, EmptyFile, InputChanged: the file cannot be read, or is not the one that the
            manifest names.
        AddressRefused, AddressUnavailable, SourceRefused, SourceTooLarge, DiskFull: what lies elsewhere cannot be had.
        LeaseLost: another worker has the step run, or the transcript is known and the job now only delivers it.
    """
    graph = pipeline(lease.pipeline)
    if not lease.source.get(UNREAD) or SOURCE not in graph.node(lease.node).inputs:
        return lease
    if sources.is_elsewhere(lease.source):
        content, place = _taken_in(runtime, lease, hold)
    else:
        content, place = _read(lease), {}
    hold.check()
    source = {name: value for name, value in lease.source.items() if name not in _OF_THE_UNREAD}
    known = replace(
        lease,
        source={**source, **place, "size": content.size, "mtime_ns": content.mtime_ns},
        input_sha256=content.sha256,
        result_key=graph.key(content.sha256, lease.options, up_to=_before_last(graph)),
    )
    is_known = runtime.database.run(lambda connection: _note(connection, runtime.owner, graph, known))
    if is_known:
        logger.info("the transcript is known: it is only delivered")
        raise LeaseLost("The transcript of this input is known, and the job goes on with its last step")
    return known


def _read(lease: Lease) -> Content:
    """Return what is in the file of a lease."""
    path = decode_path(lease.source)
    content = read_content(path, display_name(path))
    _demand_named(lease, content, display_name(path))
    return content


def _taken_in(runtime: Runtime, lease: Lease, hold: Hold) -> tuple[Content, dict[str, str]]:
    """Take what lies elsewhere into the store of blobs; return what it is, and the blob as part of a source."""
    logger.info("taking the input from where it lies")
    digest, size = sources.take(
        runtime.settings, lease.source, lambda chunks: runtime.blobs.put_stream(chunks, taken_in=True), hold.check
    )
    return Content(digest, size, 0), {BLOB: digest}


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
