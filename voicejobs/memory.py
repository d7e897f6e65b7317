"""How much memory a process holds together with its children, and whether that is more than it may."""

import os
from pathlib import Path

_MB = 1_000_000


class MemoryGuard:
    """Say whether this process and its children hold more memory than they may.

    Whoever owns it calls `look` now and then, outside event loops: it reads files of every child. `reason` is free.

    Args:
        limit_bytes: proportional memory above which no further work is begun; 0 for no limit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.reason = ""
        """Why nothing is begun; empty where there is room."""

    def look(self) -> str:
        """Measure, and return the reason."""
        held = tree_bytes(os.getpid()) if self.limit_bytes else 0
        self.reason = (
            f"this process and its children hold {held / _MB:.0f} MB, "
            f"and may hold {self.limit_bytes / _MB:.0f} (VOICEJOBS_MAX_MEMORY_BYTES)"
            if held > self.limit_bytes
            else ""
        )
        return self.reason


def tree_bytes(pid: int) -> int:
    """Return the proportional memory of a process and all its descendants in bytes; 0 where it cannot be told."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        parent = _parent(folder)
        if parent is not None:
            children.setdefault(parent, []).append(int(folder.name))
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        waiting += children.get(one, [])
        total += _proportional_bytes(one)
    return total


def _parent(folder: Path) -> int | None:
    """Return the parent of a process, None where it has just ended."""
    try:
        return int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def _proportional_bytes(pid: int) -> int:
    """Return the proportional set size of a process: what it shares counts in part."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
