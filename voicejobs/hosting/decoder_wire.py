"""What crosses between worker, zygote and decoder child: control messages, result frames, exit reports.

Control messages are length-prefixed JSON on a stream socket, worker to zygote: `{"decode": id, "path", "options"}`
with two descriptors attached (the pipe for the frames, the pipe for the exit report), and `{"kill": id}`.
Frames go through the first pipe, child to worker: one HEADER (JSON), any number of PCM blocks, one TRAILER (JSON).
The exit report goes through the second, zygote to worker: the child's pid once it runs, its wait status once it has
ended.
"""

import json
import socket
import struct
from typing import Any

HEADER = b"H"
PCM = b"P"
TRAILER = b"T"

FRAME = struct.Struct("<cI")
"""Kind and length in bytes of the payload that follows. The channels of a PCM block follow one another."""
REPORT = struct.Struct("<i")
"""One number of an exit report."""
MAX_FRAME_BYTES = 1 << 26
_LENGTH = struct.Struct("<I")
_MAX_FDS = 2


def send_message(control: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send a control message with descriptors attached to its first byte."""
    body = json.dumps(message).encode()
    data = _LENGTH.pack(len(body)) + body
    sent = socket.send_fds(control, [data], fds) if fds else control.send(data)
    control.sendall(data[sent:])


def receive_message(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next control message and its descriptors, or None once the other side is gone."""
    data, fds, _, _ = socket.recv_fds(control, _LENGTH.size, _MAX_FDS)
    head = data + _receive_exactly(control, _LENGTH.size - len(data)) if data else b""
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = _receive_exactly(control, length)
    if len(body) < length:
        return None
    message: dict[str, Any] = json.loads(body)
    return message, fds


def _receive_exactly(control: socket.socket, length: int) -> bytes:
    """Read `length` bytes, fewer only where the other side is gone."""
    parts = bytearray()
    while len(parts) < length:
        part = control.recv(length - len(parts))
        if not part:
            break
        parts += part
    return bytes(parts)
