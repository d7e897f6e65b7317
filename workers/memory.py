"""How much memory a process holds together with its children."""

from pathlib import Path


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
