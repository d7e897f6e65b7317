"""Tell which files of a folder have stood still: by looking again, since no event says that a writer is done.

A file that is being copied, uploaded or recorded grows, and its time of change moves. Notices of the operating system
(inotify and its kin) tell of writes and renames on local disks alone, not on NFS or SMB, get lost where many come at
once, and know no more than we do of whether a writer will go on; they would need this module all the same. A look costs
one entry of a folder and one `stat` for each file.
"""

import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from voicejobs.cli.inputs import Found

TEMPORARY = frozenset(
    (
        ".part", ".partial", ".filepart", ".tmp", ".temp", ".crdownload", ".download", ".opdownload", ".aria2",
        ".ytdl", ".swp", ".lock",
    )
)  # fmt: skip
"""Endings under which programs keep what they have not finished."""

Look = tuple[int, int, int, int]
"""Device, number, bytes and time of change of a file: while they are the same, it stands still."""


@dataclass(slots=True)
class _Seen:
    """Remember what a file looked like, since when, and whether it was taken so."""

    look: Look
    since: float
    is_taken: bool = False


@dataclass(slots=True)
class Settling:
    """Remember the files of a folder from one look to the next.

    Args:
        settle_s: seconds that size and time must stay as they are.
    """

    settle_s: float
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def ready(self, found: Iterable[Found], now: float) -> list[Found]:
        """Return the files that have stood still by `now`, each once for as long as it stays as it is.

        Empty files wait until something is in them. What is no longer there is forgotten: should it come back, it is
        taken again, and its content tells whether there is anything to do.
        """
        seen: dict[str, _Seen] = {}
        still = []
        for one in found:
            look = _look(one.path)
            if look is None:
                continue
            before = self._seen.get(one.path)
            known = before if before is not None and before.look == look else _Seen(look, now)
            seen[one.path] = known
            if not known.is_taken and now - known.since >= self.settle_s:
                known.is_taken = True
                still.append(one)
        self._seen = seen
        return still

    def is_still(self, one: Found) -> bool:
        """Tell whether a file that was ready is as it was then; one that is not will be ready again."""
        seen = self._seen.get(one.path)
        return seen is not None and seen.is_taken and seen.look == _look(one.path)

    @property
    def moving(self) -> int:
        """Return how many files have not stood still for long enough yet."""
        return sum(not one.is_taken for one in self._seen.values())


def is_temporary(name: str) -> bool:
    """Tell whether the name of a file says that its writer is not done."""
    return name.startswith((".", "~")) or name.endswith("~") or Path(name).suffix.lower() in TEMPORARY


def _look(path: str) -> Look | None:
    """Return what a file looks like; None for one that is empty, gone, or no file."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
