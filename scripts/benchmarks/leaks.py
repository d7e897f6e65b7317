"""Memory, descriptors and threads of each long-lived process over thousands of jobs without faults."""

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from benchmarks.jobs import private_database
from benchmarks.recordings import write_seconds
from benchmarks.report import finish, print_table
from benchmarks.runs import LOG_TAIL, RunFailedError, voicejobs, voicejobs_environment
from benchmarks.watch import kind_of
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

SLOPE_LIMIT_BYTES = 1024
LEVEL_LIMIT = 2
"""Descriptors and threads come and go with the files that are open just now."""
WARM_UP = 0.4
"""Share of the jobs until pools, caches and allocators have what they keep."""
LONG_LIVED = 0.8
"""A process counts when it was seen in this share of the looks after the warm-up."""
LOOK_EVERY_S = 1.0
LEAST_LOOKS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")


@dataclass(frozen=True)
class Look:
    """Hold what was seen of one process at one moment."""

    jobs: int
    rss_bytes: int
    descriptors: int
    threads: int


@dataclass
class Process:
    """Hold all looks at one process."""

    kind: str
    looks: list[Look] = field(default_factory=list)

    @property
    def slope_bytes(self) -> float:
        """Return by how many bytes it grows with each job: the line through all looks that fits best."""
        jobs = [float(look.jobs) for look in self.looks]
        return statistics.linear_regression(jobs, [float(look.rss_bytes) for look in self.looks]).slope

    def rise(self, name: str) -> float:
        """Return by how much the median of the later looks is above that of the earlier ones."""
        values = [float(getattr(look, name)) for look in self.looks]
        half = len(values) // 2
        return statistics.median(values[half:]) - statistics.median(values[:half])


def main(arguments: argparse.Namespace) -> int:
    """Run the jobs, look at every process."""
    with tempfile.TemporaryDirectory(prefix="vj-bench-") as name:
        work = Path(name)
        print(f"writing {arguments.jobs} files", file=sys.stderr)
        write_seconds(work / "in", arguments.jobs)
        with private_database(arguments.database, work) as server:
            started = time.monotonic()
            seen, looks = _run(work, arguments.jobs, server.url)
            wall_s = time.monotonic() - started
        written = sum(1 for _ in (work / "out").rglob("*.txt"))
    lived = [one for one in seen if len(one.looks) >= max(LEAST_LOOKS, LONG_LIVED * looks)]
    return _report(arguments, lived, written, wall_s)


def _run(work: Path, jobs: int, url: str) -> tuple[Sequence[Process], int]:
    """Run the command; return the processes seen after the warm-up, and how often was looked."""
    options = ["-o", str(work / "out"), "--engine", "fake", "-f", "txt", "--no-progress"]
    seen: dict[tuple[int, float], Process] = {}
    looks = 0
    engine = create_engine(
        url or f"sqlite:///file:{work / 'state' / 'voicejobs.db'}?mode=ro&uri=true", poolclass=NullPool
    )
    with (work / "log").open("wb") as log:
        command = subprocess.Popen(
            voicejobs("transcribe", str(work / "in"), *options),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=voicejobs_environment(work / "state", VOICEJOBS_DATABASE_URL=url),
        )
        try:
            root = psutil.Process(command.pid)
            while command.poll() is None:
                done = _ended(engine)
                if WARM_UP * jobs <= done < jobs:
                    looks += 1
                    _look(root, done, seen)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    command.wait(LOOK_EVERY_S)
        finally:
            command.kill()
            command.wait()
    if command.returncode:
        raise RunFailedError((work / "log").read_text(errors="replace")[-LOG_TAIL:])
    return list(seen.values()), looks


def _ended(engine: Engine) -> int:
    """Return how many jobs have ended."""
    try:
        with engine.connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM jobs WHERE finished_at IS NOT NULL")).scalar_one())
    except OperationalError:
        return 0  # the file, or the tables in it, are not there yet


def _look(root: psutil.Process, jobs: int, seen: dict[tuple[int, float], Process]) -> None:
    """Look at the command and at all that has come of it: what it starts stays its descendant while it lives."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                look = Look(jobs, process.memory_info().rss, process.num_fds(), process.num_threads())
                kind = "command" if process == root else kind_of(process.pid)
                if kind is not None:
                    seen.setdefault((process.pid, process.create_time()), Process(kind)).looks.append(look)


def _report(arguments: argparse.Namespace, lived: Sequence[Process], written: int, wall_s: float) -> int:
    """Print the table and write the JSON."""
    rows = [("process", "MB at the end", "bytes a job", "descriptors", "rise", "threads", "rise")]
    values: list[dict[str, Any]] = []
    for one in sorted(lived, key=lambda process: process.kind):
        last = one.looks[-1]
        value = {
            "kind": one.kind,
            "rss_mb": last.rss_bytes / 1e6,
            "slope_bytes": one.slope_bytes,
            "descriptors": last.descriptors,
            "descriptors_rise": one.rise("descriptors"),
            "threads": last.threads,
            "threads_rise": one.rise("threads"),
            "looks": len(one.looks),
        }
        values.append(value)
        rows.append(
            (
                one.kind,
                f"{value['rss_mb']:.1f}",
                f"{value['slope_bytes']:.0f}",
                str(last.descriptors),
                f"{value['descriptors_rise']:+.1f}",
                str(last.threads),
                f"{value['threads_rise']:+.1f}",
            )
        )
    print_table(rows)
    print(f"{written} of {arguments.jobs} files written in {wall_s:.0f} s")
    steepest = max((float(value["slope_bytes"]) for value in values), default=0.0)
    result: dict[str, Any] = {
        "jobs": arguments.jobs,
        "database": arguments.database,
        "written": written,
        "wall_s": wall_s,
        "processes": values,
        "holds": {
            f"no process grows by more than {SLOPE_LIMIT_BYTES} bytes a job": steepest <= SLOPE_LIMIT_BYTES,
            "descriptors are level": all(value["descriptors_rise"] <= LEVEL_LIMIT for value in values),
            "threads are level": all(value["threads_rise"] <= LEVEL_LIMIT for value in values),
            "command, supervisor, broker, worker, decoder and engine were seen": {
                "command", "supervisor", "broker", "worker", "decoder", "engine",
            } <= {one.kind for one in lived},
            "every file is there": written == arguments.jobs,
        },
    }  # fmt: skip
    return finish(f"leaks-{arguments.database}", result, arguments.json)
