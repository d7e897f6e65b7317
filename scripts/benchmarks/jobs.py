"""Cost of a job beside a bare Celery chain: thousands of one-second files, an engine that costs nothing."""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from benchmarks.recordings import write_seconds
from benchmarks.report import finish, print_table
from benchmarks.runs import Account, run, voicejobs, voicejobs_environment
from sqlalchemy import create_engine, text
from voicejobs_workers.slots import cpu_slot

from tests.servers.postgres import Postgres
from voicejobs.settings import Settings, inherited_environment

RATIO_LIMIT = 2.5
SLOPE_LIMIT = 1.2
COMMAND_LIMIT_MB = 200
LAST_PART = 0.8
FIRST_PART = (0.05, 0.1)
"""Shares of the jobs, so that a short run compares like with like: 500..1,000 and 8,000..10,000 of 10,000."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--folder", type=Path, help="where the files are kept between runs; default: a temporary one")


@dataclass(frozen=True)
class Server:
    """Hold the database of a run, and the CPU time that its server took."""

    url: str = ""
    process: psutil.Process | None = None
    before_s: float = 0.0

    def cpu_s(self) -> float:
        """Return the CPU time since the start of the run; the postmaster has reaped what has ended."""
        return _tree_cpu_s(self.process) - self.before_s if self.process else 0.0


def main(arguments: argparse.Namespace) -> int:
    """Run both, compare."""
    with tempfile.TemporaryDirectory(prefix="vj-bench-") as name:
        work = Path(name)
        files = _files(arguments, work)
        bare = _run_bare(arguments.jobs, work)
        print(f"bare Celery: {bare.wall_s:.0f} s", file=sys.stderr)
        with private_database(arguments.database, work) as server:
            options = ["-o", str(work / "out"), "--engine", "fake", "-f", "txt", "--no-progress"]
            ours = run(
                voicejobs("transcribe", str(files), *options),
                work / "ours.log",
                environment=voicejobs_environment(work / "state", VOICEJOBS_DATABASE_URL=server.url),
            )
            server_s = server.cpu_s()
            finished = _finish_times(server.url or f"sqlite:///{work / 'state' / 'voicejobs.db'}")
        written = sum(1 for _ in (work / "out").rglob("*.txt"))
    return _report(arguments, ours, bare, server_s, finished, written)


def _files(arguments: argparse.Namespace, work: Path) -> Path:
    """Return the folder of files, made where it is not there."""
    folder: Path = (arguments.folder or work) / f"seconds-{arguments.jobs}"
    if not folder.exists():
        print(f"writing {arguments.jobs} files", file=sys.stderr)
        partial = folder.with_suffix(".partial")
        write_seconds(partial, arguments.jobs)
        partial.rename(folder)
    return folder


def _run_bare(jobs: int, work: Path) -> Account:
    """Run the bare chains with as many worker threads as our worker has on this machine."""
    threads = cpu_slot(Settings(state_dir=work, models_dir=work)).threads
    (work / "bare").mkdir()
    script = str(Path(__file__).with_name("celery_chain.py"))
    environment = {**inherited_environment(), "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, script, str(jobs), str(threads), str(work / "bare")]
    return run(command, work / "bare.log", environment=environment)


@contextlib.contextmanager
def private_database(kind: str, work: Path) -> Iterator[Server]:
    """Start a private Postgres where one is asked for."""
    if kind == "sqlite":
        yield Server()
        return
    server = Postgres().start()
    try:
        server.create_database("bench")
        migrate = voicejobs_environment(work / "migrate", VOICEJOBS_DATABASE_URL=server.url("bench"))
        run(voicejobs("db", "upgrade"), work / "migrate.log", environment=migrate)
        process = psutil.Process(server.pid)
        yield Server(server.url("bench"), process, _tree_cpu_s(process))
    finally:
        server.close()


def _tree_cpu_s(process: psutil.Process) -> float:
    """Return the CPU time of a process, of what it reaped, and of its living children."""
    times = process.cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in process.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            own = child.cpu_times()
            total += own.user + own.system
    return float(total)


def _finish_times(url: str) -> list[float]:
    """Return when each job that succeeded was finished, in order."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            rows = connection.execute(
                text("SELECT finished_at FROM jobs WHERE state = 'succeeded' ORDER BY finished_at")
            )
            return [float(row[0]) for row in rows]
    finally:
        engine.dispose()


def _pace_s(finished: list[float], begin: float, end: float) -> float:
    """Return the seconds of one job between two shares of the jobs."""
    first, last = int(len(finished) * begin), min(int(len(finished) * end), len(finished) - 1)
    return (finished[last] - finished[first]) / max(1, last - first)


def _report(
    arguments: argparse.Namespace, ours: Account, bare: Account, server_s: float, finished: list[float], written: int
) -> int:
    """Print the table and write the JSON."""
    jobs = arguments.jobs
    decode_s, vad_s = ours.kind("decoder", "cpu_s"), ours.kind("vad", "cpu_s")
    total_s = ours.cpu_s + server_s
    own_s = total_s - decode_s - vad_s
    rows = [("CPU of", "ms for a job", "of bare Celery")]
    parts = [(f"  {kind}", float(entry["cpu_s"])) for kind, entry in sorted(ours.kinds.items())]
    parts += [("  database server", server_s)] if server_s else []
    for label, seconds in [
        ("bare Celery, all processes", bare.cpu_s),
        ("voicejobs, all processes", total_s),
        ("voicejobs without decoding and voice activity", own_s),
        *parts,
    ]:
        rows.append((label, f"{seconds / jobs * 1000:.2f}", f"{seconds / bare.cpu_s:.2f}"))
    print_table(rows)
    slope = _pace_s(finished, LAST_PART, 1.0) / max(_pace_s(finished, *FIRST_PART), 1e-9) if finished else 0.0
    command_mb = ours.kind("command", "largest_rss_mb")
    print(f"wall: voicejobs {ours.wall_s:.0f} s, bare Celery {bare.wall_s:.0f} s; slope {slope:.2f}; ", end="")
    print(f"command {command_mb:.0f} MB; {len(finished)} jobs succeeded, {written} files written")
    result: dict[str, Any] = {
        "jobs": jobs,
        "database": arguments.database,
        "cpu_s": {
            "bare": bare.cpu_s,
            "voicejobs": total_s,
            "decode": decode_s,
            "vad": vad_s,
            "database_server": server_s,
            "kinds": ours.kinds,
        },
        "ratio_all": total_s / bare.cpu_s,
        "ratio_without_decode_and_vad": own_s / bare.cpu_s,
        "wall_s": {"voicejobs": ours.wall_s, "bare": bare.wall_s},
        "slope": slope,
        "command_mb": command_mb,
        "succeeded": len(finished),
        "written": written,
        "holds": {
            f"CPU without decoding and voice activity at most {RATIO_LIMIT} of bare Celery": own_s
            <= RATIO_LIMIT * bare.cpu_s,
            f"the last fifth of jobs at most {SLOPE_LIMIT} times as slow as an early twentieth": slope <= SLOPE_LIMIT,
            f"the command under {COMMAND_LIMIT_MB} MB": command_mb < COMMAND_LIMIT_MB,
            "every job succeeded and every file is there": len(finished) == written == jobs,
        },
    }
    return finish(f"queue-{arguments.database}", result, arguments.json)
