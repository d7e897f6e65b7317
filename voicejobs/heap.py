"""How this process gets its memory from the C library, and gives it back."""

import ctypes
import sys

LARGE_BYTES = 256 * 1024
"""From here on a block is mapped by itself. Smaller audio, of a few seconds, is not worth a system call."""

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
"""From glibc's malloc.h."""


def give_back_large_blocks() -> None:
    """Have large blocks, windows of audio above all, returned to the system as soon as they are freed.

    By itself glibc raises the size from which it maps a block of its own to that of each mapped block that is freed
    (mallopt(3)). Windows then come from the heap, where one small object that outlives them holds all the rest: over
    ten hours of audio a worker kept a third more than it used. Mapping costs the system time of touching new pages, so
    this is for processes that move audio, not for those that compute. Other C libraries are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, LARGE_BYTES)
