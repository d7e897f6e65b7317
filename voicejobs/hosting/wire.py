"""Frames between a worker and its engine processes: a length prefix, a JSON header, raw bytes. Never pickle."""

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from voicejobs.audio.types import Pcm, Sound

_PREFIX = struct.Struct("<II")
_encode = json.JSONEncoder(separators=(",", ":")).encode
_BUFFER_BYTES = 1 << 20
"""Asked of the kernel, so that 30 s of PCM (960 KB) cross in few system calls."""


def prepare(end: socket.socket) -> None:
    """Widen the buffers of one end; the kernel may give less."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        end.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)


def send(end: socket.socket, header: dict[str, Any], parts: Sequence[bytes | memoryview] = ()) -> None:
    """Send one frame.

    Raises:
        OSError: the other end is gone.
        TimeoutError: it does not read.
    """
    head = _encode(header).encode()
    views = [memoryview(part).cast("B") for part in parts]
    prefix = _PREFIX.pack(len(head), sum(view.nbytes for view in views))
    queue = [memoryview(prefix + head), *(view for view in views if view.nbytes)]
    while queue:
        sent = end.sendmsg(queue)
        while queue and sent >= queue[0].nbytes:
            sent -= queue.pop(0).nbytes
        if queue and sent:
            queue[0] = queue[0][sent:]


def receive(end: socket.socket) -> tuple[dict[str, Any], memoryview]:
    """Return the next frame: its header and its bytes.

    Raises:
        EOFError: the other end has closed.
        OSError: the other end is gone.
        TimeoutError: nothing comes.
    """
    head_bytes, body_bytes = _PREFIX.unpack(_exactly(end, _PREFIX.size))
    header: dict[str, Any] = json.loads(bytes(_exactly(end, head_bytes)))
    return header, _exactly(end, body_bytes)


def _exactly(end: socket.socket, size: int) -> memoryview:
    """Return the next `size` bytes."""
    view = np.empty(size, np.uint8).data  # not filled with zeros first, as a bytearray is
    have = 0
    while have < size:
        got = end.recv_into(view[have:])
        if got == 0:
            raise EOFError
        have += got
    return view


def to_bytes(window: Pcm) -> memoryview:
    """Return the samples of a window as bytes, without a copy where they lie in one piece."""
    return np.ascontiguousarray(window, dtype=np.int16).data.cast("B")


def split_windows(body: memoryview, sizes: Sequence[int]) -> list[Pcm]:
    """Return the windows of `sizes` samples that lie behind one another in `body`."""
    samples = np.frombuffer(body, np.int16)
    ends = np.cumsum(sizes)
    return [samples[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def sound_bytes(sound: Sound) -> memoryview:
    """Return the samples of a sound as bytes, without a copy where they lie in one piece."""
    return np.ascontiguousarray(sound.samples, dtype=np.float32).data.cast("B")


def split_sounds(body: memoryview, sizes: Sequence[int], rates_hz: Sequence[int]) -> list[Sound]:
    """Return the sounds of `sizes` samples that lie behind one another in `body`."""
    samples = np.frombuffer(body, np.float32)
    ends = np.cumsum(sizes)
    return [Sound(samples[end - size : end], rate_hz) for size, end, rate_hz in zip(sizes, ends, rates_hz, strict=True)]
