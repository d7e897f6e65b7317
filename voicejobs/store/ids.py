"""Ids: a prefix that tells the kind, and a UUIDv7 (RFC 9562), so that ids sort by time of creation."""

import os
import threading
import time

_VERSION = 0x7
_VARIANT = 0b10
_COUNTER_BITS = 42
_STEP_BITS = 32
_lock = threading.Lock()
_last = (0, 0)


def new_id(prefix: str) -> str:
    """Return `<prefix>_<32 hex digits>`: 48 bits of milliseconds, a counter of 42 bits, and 32 random bits.

    Ids of one process rise, also within a millisecond (RFC 9562, section 6.2, method 2): the counter begins at random
    in each millisecond and goes up by a random step.
    """
    global _last  # noqa: PLW0603 - what the next id of this process must be above
    random = int.from_bytes(os.urandom(14), "big")
    with _lock:
        milliseconds = max(time.time_ns() // 1_000_000, _last[0])
        if milliseconds > _last[0]:
            counter = random >> 71 & ((1 << _COUNTER_BITS - 1) - 1)  # its upper half is left to count in
        else:
            counter = _last[1] + 1 + (random >> 32 & ((1 << _STEP_BITS) - 1))
            if counter >> _COUNTER_BITS:
                milliseconds, counter = milliseconds + 1, counter & ((1 << _STEP_BITS) - 1)
        _last = (milliseconds, counter)
    tail = (counter & ((1 << 30) - 1)) << 32 | random & 0xFFFF_FFFF
    value = (milliseconds & ((1 << 48) - 1)) << 80
    value |= _VERSION << 76 | (counter >> 30) << 64 | _VARIANT << 62 | tail
    return f"{prefix}_{value:032x}"
