"""Decoded audio between the steps of a job: where it may lie, and how a step reads what another one wrote.

Rows name its files without a place: each worker looks for them in its own folders, and then in the blob store.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from voicejobs.audio.pcm import BYTES_PER_SAMPLE, PcmWriter, read_window
from voicejobs.audio.types import Pcm, Span
from voicejobs.errors import Internal
from voicejobs.messages import QUEUE_CLASSES
from voicejobs.store.blobs import BlobStore
from voicejobs.tasks.runtime import Runtime


def open_writer(runtime: Runtime, name: str, *, stays: bool, small: bool = True) -> PcmWriter:
    """Return a writer of decoded audio.

    What is short goes to memory that outlives this process, where this worker goes on with it: to create a file on a
    disk, to sync and to remove it would cost more than all the rest of a small job.

    Args:
        runtime: of this worker.
        name: of the file; it begins with the id of the job, and holds the fencing number, so that a zombie with an old
            one writes elsewhere.
        stays: whether one step run goes on with it, in this worker if it can.
        small: whether it may turn out to be short enough.
    """
    blobs = runtime.blobs
    in_memory = small and blobs.memory is not None and _serves_all(runtime) and (stays or not blobs.is_shared)
    return PcmWriter(
        blobs.scratch / name,
        fsync=True,
        small_path=blobs.memory / name if in_memory and blobs.memory is not None else None,
    )


def share(runtime: Runtime, files: Iterable[str], *, stays: bool) -> None:
    """Let other machines read files, unless one step run goes on with them in this worker.

    If this worker dies before that has ended, another one begins the job anew: it is short.
    """
    if not (stays and _serves_all(runtime)):
        for file in files:
            runtime.blobs.share_scratch(file)


def read_samples(blobs: BlobStore, file: str, span: Span) -> Pcm:
    """Return the samples of `span` from a file of decoded audio, wherever it lies.

    Raises:
        NotFound: it is neither here nor in the blob store.
        Internal: it is shorter than `span` asks for.
        BlobsUnavailable, BlobsRefused: the blob store does not give it.
    """
    name = _name(file)
    path = blobs.scratch_path(name)
    if path is not None:
        return read_window(path, span)
    size_bytes = span.length_samples * BYTES_PER_SAMPLE
    data = blobs.read_scratch(name, span.start_samples * BYTES_PER_SAMPLE, size_bytes)
    if len(data) != size_bytes:
        raise Internal(f"{name}: the decoded audio ends before sample {span.end_samples}")
    return np.frombuffer(data, dtype="<i2").astype(np.int16, copy=False)


def is_there(blobs: BlobStore, file: str) -> bool:
    """Tell whether a file of decoded audio can be read."""
    return blobs.has_scratch(_name(file))


def _name(file: str | Path) -> str:
    """Return the name of a file, whose path may be that of another machine."""
    return os.path.basename(file)  # noqa: PTH119 - for each window


def _serves_all(runtime: Runtime) -> bool:
    """Tell whether this worker can go on with any step."""
    return all(map(runtime.serves, QUEUE_CLASSES))
