"""Run a command and account for every process that comes of it, those that detach from it too.

    python watch.py --out RESULT.json [--interval 0.5] [--pss] -- COMMAND...

The watcher is a subreaper: whatever the command leaves behind becomes its child. It waits for all of it, so that the
kernel's own sum of CPU time is complete, and looks at the tree now and then to tell the kinds of processes apart. What
the watcher itself costs is not in the figures.
"""

import argparse
import contextlib
import ctypes
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LEFTOVERS_S = 120.0
KINDS = (
    ("decoder", re.compile(r"voicejobs\.hosting\.zygote")),
    ("engine", re.compile(r"voicejobs\.hosting\.child")),
    ("broker", re.compile(r"(valkey|redis)-server")),
    ("worker", re.compile(r"voicejobs_workers|celery_chain\.py --work")),
    ("supervisor", re.compile(r"voicejobs\.embedded")),
)
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass
class Seen:
    """Hold what was seen of one process; the counters are the latest, the sizes the largest."""

    kind: str
    parent: int
    cpu_s: float = 0.0
    children_cpu_s: float = 0.0
    peak_rss_kb: int = 0
    peak_pss_kb: int = 0


@dataclass
class Tree:
    """Look at all descendants of this process.

    Args:
        root: the pid of the command.
        pss: whether proportional memory is read too, which costs milliseconds for each process.
    """

    root: int
    pss: bool
    seen: dict[tuple[int, int], Seen] = field(default_factory=dict)
    peak_pss_kb: int = 0

    def sample(self) -> None:
        """Look once."""
        total = 0
        for pid, parent, fields in _descendants(os.getpid()):
            key = (pid, int(fields[19]))  # a pid may come again, with another start time
            seen = self.seen.setdefault(key, Seen("other", parent))
            # Asked each time: a child that has not yet called exec still shows the command line of its parent.
            seen.kind = "command" if pid == self.root else kind_of(pid) or seen.kind
            user, system, children_user, children_system = (int(ticks) for ticks in fields[11:15])
            seen.cpu_s = (user + system) / TICKS_PER_SECOND
            seen.children_cpu_s = (children_user + children_system) / TICKS_PER_SECOND
            seen.peak_rss_kb = max(seen.peak_rss_kb, _number(pid, "status", "VmHWM"))
            if self.pss:
                pss = _number(pid, "smaps_rollup", "Pss")
                seen.peak_pss_kb = max(seen.peak_pss_kb, pss)
                total += pss
        self.peak_pss_kb = max(self.peak_pss_kb, total)

    def kinds(self) -> dict[str, dict[str, Any]]:
        """Return processes, CPU time and the largest process of each kind.

        A decoder lives too briefly to be looked at: its time is what its parent, the zygote, reaped.
        """
        decoders = {pid for (pid, _), seen in self.seen.items() if seen.kind == "decoder"}
        result: dict[str, dict[str, Any]] = {}
        for seen in self.seen.values():
            entry = result.setdefault(
                seen.kind, {"processes": 0, "cpu_s": 0.0, "largest_rss_mb": 0.0, "largest_pss_mb": 0.0}
            )
            entry["processes"] += 1
            if seen.kind != "decoder":
                entry["cpu_s"] += seen.cpu_s
            elif seen.parent not in decoders:
                entry["cpu_s"] += seen.cpu_s + seen.children_cpu_s
            entry["largest_rss_mb"] = max(entry["largest_rss_mb"], seen.peak_rss_kb / 1024)
            entry["largest_pss_mb"] = max(entry["largest_pss_mb"], seen.peak_pss_kb / 1024)
        return result


def _descendants(ancestor: int) -> list[tuple[int, int, list[str]]]:
    """Return pid, parent and the fields of /proc/PID/stat from the state on, of all processes below `ancestor`."""
    table: dict[int, tuple[int, list[str]]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(entry.path, "stat").read_text(errors="replace").rsplit(")", maxsplit=1)[1].split()
                table[int(entry.name)] = (int(fields[1]), fields)
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found, waiting = [], list(children.get(ancestor, ()))
    while waiting:
        pid = waiting.pop()
        found.append((pid, *table[pid]))
        waiting += children.get(pid, ())
    return found


def kind_of(pid: int) -> str | None:
    """Tell the kind of a process by its command line, and that of an engine by the library that it has loaded.

    None for a process that has ended: a zombie has no command line.
    """
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        if not command:
            return None
        kind = next((name for name, pattern in KINDS if pattern.search(command)), "other")
        if kind == "engine":
            maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
            if "onnxruntime" in maps and "ctranslate2" not in maps:
                return "vad"
        return kind
    except OSError:
        return None


def _number(pid: int, file: str, label: str) -> int:
    """Read `label:  N kB` from a file of /proc; 0 for a process that has gone."""
    try:
        text = Path(f"/proc/{pid}/{file}").read_text()
    except OSError:
        return 0
    found = re.search(rf"^{label}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _wait_for_leftovers(tree: Tree, interval_s: float) -> int:
    """Reap everything that the command left behind; return how many processes had to be killed."""
    killed, deadline = 0, time.monotonic() + LEFTOVERS_S
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return killed
        if pid:
            continue
        if time.monotonic() > deadline:
            killed += _kill_all()
        tree.sample()
        time.sleep(min(interval_s, 0.1))


def _kill_all() -> int:
    """Kill every descendant and return their number."""
    pids = [pid for pid, _, _ in _descendants(os.getpid())]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def _give_up(number: int, frame: FrameType | None) -> None:
    """End with the benchmark that was interrupted, and leave nothing running."""
    _kill_all()
    sys.exit(128 + number)


def watch(command: list[str], interval_s: float, *, pss: bool) -> dict[str, Any]:
    """Run `command` and return the account."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGTERM, _give_up)
    started = time.monotonic()
    process = subprocess.Popen(command)
    tree = Tree(process.pid, pss)
    handle = os.pidfd_open(process.pid)
    while not select.select([handle], [], [], interval_s)[0]:
        tree.sample()
    wall_s = time.monotonic() - started
    tree.sample()  # before it is reaped: a zombie still tells its CPU time
    returncode = process.wait()
    killed = _wait_for_leftovers(tree, interval_s)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "command": command,
        "returncode": returncode,
        "wall_s": wall_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "kinds": tree.kinds(),
        "tree_peak_pss_mb": tree.peak_pss_kb / 1024,
        "killed_leftovers": killed,
    }


def main() -> None:
    """Read the arguments, run, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--interval", type=float, default=0.5)
    parser.add_argument("--pss", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    result = watch(command, arguments.interval, pss=arguments.pss)
    arguments.out.write_text(json.dumps(result))
    sys.exit(0)


if __name__ == "__main__":
    main()
