"""Requests of the REST service on both loops: rate and CPU time; and how late its loop is beside large requests."""

import argparse
import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from benchmarks import lag
from benchmarks.report import finish, print_table

from tests.servers.process import free_port
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store import migrate
from voicejobs.store.database import Database
from voicejobs.submit import InputFile, Submission

LOOPS = ("uvloop", "asyncio")
_HIDE = "import sys; sys.modules['uvloop'] = None; "
_SERVE = "import sys; from voicejobs.api.__main__ import main; sys.exit(main(sys.argv[1:]))"
START_S = 30.0
LATE = "the loop is late by 50 ms at most (median of the runs) whatever comes in"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--requests", type=int, default=1500, help="requests of each kind in each round")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, the loops in turns")
    parser.add_argument("--clients", type=int, default=8, help="connections at once")
    parser.add_argument("--lag-runs", type=int, default=5, help="large requests of each kind")


def main(arguments: argparse.Namespace) -> int:
    """Ask both in turns, print the table."""
    with tempfile.TemporaryDirectory(prefix="vj-service-") as folder, ExitStack() as stack:
        job = _prepare(Path(folder))
        paths = {"healthz": "/healthz", "a job": f"/api/v1/jobs/{job}"}
        services = {name: stack.enter_context(_service(Path(folder), name)) for name in LOOPS}
        figures: dict[str, dict[str, list[float]]] = {}
        for turn in range(arguments.rounds + 1):
            for loop, (process, port) in services.items():
                for name, path in paths.items():
                    rate, cpu_ms = _ask(process, port, path, arguments)
                    if turn:  # the first warms up
                        kept = figures.setdefault(f"{name}, {loop}", {"per_second": [], "cpu_ms": []})
                        kept["per_second"].append(rate)
                        kept["cpu_ms"].append(cpu_ms)
    found = {name: {key: round(statistics.median(values), 3) for key, values in kept.items()}
             for name, kept in figures.items()}  # fmt: skip
    print_table(
        [
            ("request, loop", "a second", "CPU ms of the service"),
            *((name, f"{one['per_second']:.0f}", f"{one['cpu_ms']:.2f}") for name, one in found.items()),
        ]
    )
    spent = {name: [found[f"{name}, {loop}"]["cpu_ms"] for loop in LOOPS] for name in paths}
    gains = {name: round(theirs / ours - 1, 3) for name, (ours, theirs) in spent.items()}
    print("more requests for the same CPU time on uvloop: " + ", ".join(f"{one} {x:+.0%}" for one, x in gains.items()))
    late = lag.measure(arguments.lag_runs)
    print_table(lag.rows(late))
    result = {
        "requests": found,
        "gains": gains,
        "lag": {kind: [asdict(one) for one in runs] for kind, runs in late.items()},
    }
    worst_s = max(statistics.median(one.lag_s for one in runs) for runs in late.values())
    return finish("service", {**result, "holds": {LATE: worst_s <= lag.LIMIT_S}}, arguments.json)


def _prepare(folder: Path) -> str:
    """Make a database with a job that waits, and return its id."""
    path = folder / "a.wav"
    path.write_bytes(b"x")
    database = Database(f"sqlite:///{folder}/voicejobs.db")
    migrate.upgrade(database)
    options = TRANSCRIBE.options({"recognise": {"engine": "fake", "model": ""}})
    (accepted,) = Submission(database, TRANSCRIBE, options).add([InputFile(str(path), path.name)])
    database.close()
    return accepted.job_id


@contextmanager
def _service(folder: Path, loop: str) -> Iterator[tuple[psutil.Process, int]]:
    """Serve on one of the loops."""
    ready = folder / f"ready-{loop}"
    settings = {"STATE_DIR": folder / loop, "DATABASE_URL": f"sqlite:///{folder}/voicejobs.db",
                "BROKER_URL": f"redis://127.0.0.1:{free_port()}/0", "LOCAL_WORKERS": 0, "LOG_LEVEL": "WARNING",
                "API_REQUESTS_PER_MINUTE": 0, "API_CONCURRENCY": 0}  # fmt: skip
    code = (_HIDE if loop == "asyncio" else "") + _SERVE
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--host", "127.0.0.1", "--port", "0", "--ready-file", str(ready)],
        env={**os.environ, **{f"VOICEJOBS_{name}": str(value) for name, value in settings.items()}},
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + START_S
        while not (ready.exists() and ready.stat().st_size):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the service on {loop} did not start")
            time.sleep(0.05)
        yield psutil.Process(process.pid), int(urlsplit(ready.read_text().strip()).port or 0)
    finally:
        process.terminate()
        process.wait(30)


def _ask(process: psutil.Process, port: int, path: str, arguments: argparse.Namespace) -> tuple[float, float]:
    """Send requests on several connections; return how many a second, and CPU milliseconds for each."""
    each = arguments.requests // arguments.clients

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for _ in range(each):
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            if answer.status != http.client.OK:
                sys.exit(f"{path}: {answer.status}")
        connection.close()

    before, began = process.cpu_times(), time.perf_counter()
    with ThreadPoolExecutor(arguments.clients) as pool:
        list(pool.map(client, range(arguments.clients)))
    taken_s, after = time.perf_counter() - began, process.cpu_times()
    spent_s = after.user + after.system - before.user - before.system
    done = each * arguments.clients
    return done / taken_s, 1000 * spent_s / done
