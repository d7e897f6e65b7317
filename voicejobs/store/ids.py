"""Ids: a prefix that tells the kind, and a UUIDv7 (RFC 9562), so that ids sort by time of creation."""

import os
import time

_RANDOM_BITS_A = 12
_VERSION = 0x7
_VARIANT = 0b10


def new_id(prefix: str) -> str:
    """Return `<prefix>_<32 hex digits>`: 48 bits of milliseconds, then 74 random bits."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    random_a = random & ((1 << _RANDOM_BITS_A) - 1)
    random_b = (random >> _RANDOM_BITS_A) & ((1 << 62) - 1)
    value = (milliseconds & ((1 << 48) - 1)) << 80
    value |= _VERSION << 76 | random_a << 64 | _VARIANT << 62 | random_b
    return f"{prefix}_{value:032x}"
