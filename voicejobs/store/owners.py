"""Who holds a lease: a process, named so that any process of the same machine can tell whether it still lives."""

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Owner:
    """Name a process: host, boot, pid and start time, so that a reused pid is not mistaken for it."""

    host: str
    boot: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"{self.host}/{self.boot}/{self.pid}/{self.started}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the owner that `str()` wrote, None for anything else."""
        parts = text.rsplit("/", maxsplit=3)
        if len(parts) != 4 or not parts[2].isdigit():  # noqa: PLR2004 - the four fields above
            return None
        return cls(parts[0], parts[1], int(parts[2]), parts[3])

    @classmethod
    def of_this_process(cls) -> Self:
        """Return the owner that stands for the running process."""
        pid = os.getpid()
        return cls(_host(), _boot_id(), pid, process_start(pid))

    @property
    def is_proven_dead(self) -> bool:
        """Tell whether the process is known to be gone: False for other machines, of which we know nothing."""
        if self.host != _host():
            return False
        return self.boot != _boot_id() or not is_alive(self.pid, self.started)


def is_alive(pid: int, started: str) -> bool:
    """Tell whether the process `pid` that started at `started` still runs (a zombie does not)."""
    return process_start(pid) == started


def process_start(pid: int) -> str:
    """Return a mark of the time at which `pid` started; empty where there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return "alive" if not Path("/proc/self").exists() and _signalable(pid) else ""
    state, start_ticks = fields[0], fields[19]
    return "" if state in {"Z", "X"} else start_ticks


def _signalable(pid: int) -> bool:
    """Tell whether `pid` exists, on systems without /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@cache
def _host() -> str:
    """Return the name of this machine and of what we see of it: two containers can share a name, never their pids."""
    try:
        pids = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        pids = 0
    return f"{socket.gethostname()[:48].replace('/', '-')}:{pids}"


@cache
def _boot_id() -> str:
    """Return a mark of this boot of the machine: pids of an earlier boot are all dead."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()[:8]
    except OSError:
        return "unknown"
