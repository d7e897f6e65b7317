import socket
import threading

import numpy as np
import pytest

from voicejobs.errors import Internal, OutOfMemory, VoicejobsError, error_from_json
from voicejobs.hosting import wire


def test_a_frame_larger_than_the_socket_buffer_arrives_whole() -> None:
    """Header and bytes come out as they went in, in as many pieces as the kernel makes of them."""
    ours, theirs = socket.socketpair()
    windows = [np.arange(size, dtype=np.int16) for size in (3_000_000, 0, 5)]
    header = {"op": "recognise", "sizes": [window.size for window in windows], "text": "ü"}
    parts = [wire.to_bytes(window) for window in windows]
    with ours, theirs:
        sender = threading.Thread(target=wire.send, args=(ours, header, parts))
        sender.start()
        found, body = wire.receive(theirs)
        sender.join()
    assert found == header
    split = wire.split_windows(body, found["sizes"])
    assert all(np.array_equal(one, two) for one, two in zip(windows, split, strict=True))


def test_a_closed_end_is_noticed() -> None:
    """A peer that dies in the middle of a frame ends the wait for the rest of it."""
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall(b"\x10\x00\x00\x00\x00\x00\x00\x00{")
        ours.close()
        with pytest.raises(EOFError):
            wire.receive(theirs)


def test_empty_windows_cross_too() -> None:
    """A call whose windows hold no samples is no special case."""
    assert [window.size for window in wire.split_windows(memoryview(bytearray()), [0, 0])] == [0, 0]


def test_samples_that_are_not_in_one_piece_are_copied() -> None:
    """A strided view crosses as its values."""
    window = np.arange(10, dtype=np.int16)[::2]
    assert wire.to_bytes(window).tobytes() == window.tobytes()


def test_errors_cross_with_their_class_message_hint_and_details() -> None:
    """The worker raises what the engine raised; a code that it does not know becomes an internal error."""
    error = OutOfMemory("no room", hint="less", needed=7)
    back = error_from_json(error.to_json())
    assert (type(back), back.to_json()) == (OutOfMemory, error.to_json())
    assert type(error_from_json({**error.to_json(), "code": "newer"})) is Internal
    assert isinstance(back, VoicejobsError)
