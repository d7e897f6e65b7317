"""Rate of `voicejobs submit --manifest` beside a bare COPY of the same rows; killed in the middle and run again."""

import argparse
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from benchmarks.report import finish, print_table
from benchmarks.runs import RunFailedError, run, voicejobs, voicejobs_environment

from tests.servers.postgres import Postgres

RATIO_LIMIT = 0.5
GROWTH_LIMIT_MB = 10.0
SMALL_PART = 10
"""The memory of the command is compared with that for a manifest so many times shorter."""
TABLES = ("batches", "jobs", "step_runs")
BLOCK_BYTES = 1 << 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument(
        "--rounds", type=int, default=3, help="pairs of runs; the figures are those of the median ratio"
    )


@dataclass(frozen=True)
class Site:
    """Hold the server and the folder of the benchmark."""

    server: Postgres
    work: Path

    def database(self, name: str) -> str:
        """Return the address of a new, migrated database."""
        self.server.create_database(name)
        url = self.server.url(name)
        environment = voicejobs_environment(self.work / "migrate", VOICEJOBS_DATABASE_URL=url)
        run(voicejobs("db", "upgrade"), self.work / f"{name}.log", environment=environment)
        return url

    def count(self, name: str) -> tuple[int, int]:
        """Return the numbers of jobs and of different recordings among them."""
        with psycopg.connect(_plain(self.server.url(name))) as connection:
            (row,) = connection.execute("SELECT count(*), count(DISTINCT target) FROM jobs").fetchall()
        return int(row[0]), int(row[1])


@dataclass(frozen=True)
class Submitted:
    """Hold what a command took: seconds, and the most memory in MB."""

    wall_s: float
    peak_mb: float


def main(arguments: argparse.Namespace) -> int:
    """Run all of it, compare."""
    with tempfile.TemporaryDirectory(prefix="vj-bench-") as folder:
        work = Path(folder)
        manifest = write_manifest(work / "manifest.jsonl", arguments.lines)
        small = write_manifest(work / "small.jsonl", arguments.lines // SMALL_PART)
        server = Postgres().start()
        try:
            site = Site(server, work)
            rounds = [_round(site, manifest, number) for number in range(arguments.rounds)]
            few = _submit(site.database("small"), small, work)
            killed = _killed_and_again(site, manifest, min(ours.wall_s for ours, _ in rounds))
        finally:
            server.close()
    rounds.sort(key=lambda pair: pair[1] / pair[0].wall_s)
    return _report(arguments, rounds, few, killed)


def write_manifest(path: Path, lines: int) -> Path:
    """Write a manifest of recordings that are not there; names and sizes are like those of an archive of calls."""
    with path.open("w", encoding="utf-8") as stream:
        for number in range(lines):
            name = f"calls/2026/{number // 1000:04}/call-{number:07}.wav"
            stream.write(json.dumps({"path": f"/archive/{name}", "name": name, "size": 100_000 + number}) + "\n")
    return path


def _command(url: str, manifest: Path, work: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command line, and its environment."""
    words = ["submit", "--manifest", str(manifest), "-o", str(work / "out"), "--engine", "fake", "-q"]
    return voicejobs(*words), voicejobs_environment(work / "state", VOICEJOBS_DATABASE_URL=url)


def _submit(url: str, manifest: Path, work: Path) -> Submitted:
    """Run the command to its end.

    Raises:
        RunFailedError: it failed.
    """
    command, environment = _command(url, manifest, work)
    began = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RunFailedError(f"voicejobs submit ended with {process.returncode}")
    return Submitted(time.monotonic() - began, usage.ru_maxrss / 1024)


def _round(site: Site, manifest: Path, number: int) -> tuple[Submitted, float]:
    """Return what the command took, and the seconds of a bare COPY of the rows that it wrote into another database."""
    ours, bare = f"ours{number}", f"bare{number}"
    submitted = _submit(site.database(ours), manifest, site.work)
    site.database(bare)
    files = {table: site.work / f"{table}.copy" for table in TABLES}
    with psycopg.connect(_plain(site.server.url(ours))) as connection, connection.cursor() as cursor:
        for table, path in files.items():
            with path.open("wb") as stream, cursor.copy(f"COPY {table} TO STDOUT") as copy:
                stream.writelines(bytes(block) for block in copy)
    with psycopg.connect(_plain(site.server.url(bare))) as connection, connection.cursor() as cursor:
        began = time.monotonic()
        for table, path in files.items():
            with cursor.copy(f"COPY {table} FROM STDIN") as copy:
                for block in _blocks(path):
                    copy.write(block)
        connection.commit()
        bare_s = time.monotonic() - began
    return submitted, bare_s


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield a file block by block."""
    with path.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            yield block


def _killed_and_again(site: Site, manifest: Path, wall_s: float) -> dict[str, int]:
    """Kill the command about the middle, run it again, and return how many jobs there were, and are."""
    url = site.database("killed")
    command, environment = _command(url, manifest, site.work)
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    time.sleep(wall_s / 2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before, _ = site.count("killed")
    _submit(url, manifest, site.work)
    after, different = site.count("killed")
    return {"before": before, "after": after, "different": different}


def _plain(url: str) -> str:
    """Return an address as libpq takes it."""
    return url.replace("postgresql+psycopg://", "postgresql://")


def _report(
    arguments: argparse.Namespace, rounds: list[tuple[Submitted, float]], few: Submitted, killed: dict[str, int]
) -> int:
    """Print the table and write the JSON."""
    lines = arguments.lines
    rows = [("round", "bare COPY, lines/s", "submit, lines/s", "ratio", "peak RSS, MB")]
    for number, (ours, bare_s) in enumerate(rounds, start=1):
        rates = (f"{lines / bare_s:.0f}", f"{lines / ours.wall_s:.0f}")
        rows.append((str(number), *rates, f"{bare_s / ours.wall_s:.2f}", f"{ours.peak_mb:.0f}"))
    print_table(rows)
    ours, bare_s = rounds[len(rounds) // 2]
    growth_mb = max(one.peak_mb for one, _ in rounds) - few.peak_mb
    print(f"memory: {few.peak_mb:.0f} MB for a tenth of the lines, {growth_mb:+.1f} MB for all of them")
    print(f"killed with {killed['before']} jobs in the database, run again: {killed['after']}")
    result: dict[str, Any] = {
        "lines": lines,
        "ratio": bare_s / ours.wall_s,
        "rounds": [{"submit_s": one.wall_s, "bare_s": bare, "peak_mb": one.peak_mb} for one, bare in rounds],
        "peak_mb_of_a_tenth": few.peak_mb,
        "killed": killed,
        "holds": {
            f"at least {RATIO_LIMIT} of the rate of a bare COPY": bare_s / ours.wall_s >= RATIO_LIMIT,
            f"the command's memory grows by less than {GROWTH_LIMIT_MB:.0f} MB": growth_mb < GROWTH_LIMIT_MB,
            "killed in the middle": 0 < killed["before"] < lines,
            "and run again, exactly the lines of the manifest": killed["after"] == killed["different"] == lines,
        },
    }
    return finish("submit", result, arguments.json)
