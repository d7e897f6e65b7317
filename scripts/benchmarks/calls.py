"""Short calls that wait for their answer: time of each on an idle stack, and what the stack costs when nobody asks."""

import argparse
import io
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import soundfile as sf
from benchmarks.report import finish, print_table

from tests.servers.api import ApiServer
from tests.servers.postgres import Postgres
from tests.servers.valkey import Valkey

if TYPE_CHECKING:
    import httpx

MEDIAN_LIMIT_S = 0.1
RATE_HZ = 16_000
WARM_UP = 10
SETTLE_S = 3.0
ALIASES = {"api_aliases": "whisper-1=fake,tts-1=fake_voice", "log_level": "WARNING",
           "api_requests_per_minute": 0, "engine_processes": 1, "offline": 1}  # fmt: skip

Ask = Callable[["httpx.Client"], "httpx.Response"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--calls", type=int, default=200, help="calls of each kind, one after the other")
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds at most between two calls; chance says how many"
    )
    parser.add_argument("--idle-seconds", type=float, default=30.0, help="time for which nobody asks")
    parser.add_argument("--database", choices=("sqlite", "postgres"), action="append", help="default: both")


@dataclass(frozen=True)
class Site:
    """Hold a service, its worker, and a client of the service."""

    client: "httpx.Client"
    service: psutil.Process
    worker: psutil.Process


def main(arguments: argparse.Namespace) -> int:
    """Measure each database, print the tables."""
    found: dict[str, Any] = {}
    for kind in arguments.database or ("sqlite", "postgres"):
        with ExitStack() as stack:
            site = stack.enter_context(_site(kind))
            found[kind] = _measure(site, arguments)
    rows = [("call", "p50 ms", "p95 ms", "most ms")]
    for kind, one in found.items():
        rows += [(f"{name}, {kind}", *(f"{value * 1000:.0f}" for value in times.values()))
                 for name, times in one["calls"].items()]  # fmt: skip
    print_table(rows)
    print_table([("idle", "% of a core"), *((f"{name}, {kind}", f"{share:.2f}")
                 for kind, one in found.items() for name, share in one["idle"].items())])  # fmt: skip
    holds = {
        f"half of the calls with {kind} within {MEDIAN_LIMIT_S:g} s": all(
            times["p50_s"] <= MEDIAN_LIMIT_S for times in one["calls"].values()
        )
        for kind, one in found.items()
    }
    return finish("calls", {"found": found, "holds": holds}, arguments.json)


@contextmanager
def _site(kind: str) -> Iterator[Site]:
    """Serve with one worker, a broker and a database of its own."""
    with tempfile.TemporaryDirectory(prefix="vj-calls-", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        settings: dict[str, object] = dict(ALIASES)
        if kind == "postgres":
            server = Postgres().start()
            stack.callback(server.close)
            server.create_database("bench")
            settings["database_url"] = server.url("bench")
        broker = Valkey().start()
        stack.callback(broker.close)
        api = stack.enter_context(ApiServer(Path(name), broker.broker_url(1), **settings))
        with (Path(name) / "worker.log").open("ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-P", "-m", "voicejobs_workers", "--die-with-parent"],
                stdout=log,
                stderr=log,
                env={**os.environ, **api.variables},
                start_new_session=True,
            )
        stack.callback(_end, worker)
        client = stack.enter_context(api.client(api.key("bench")))
        client.timeout = 60
        yield Site(client, api.process, psutil.Process(worker.pid))


def _end(worker: "subprocess.Popen[bytes]") -> None:
    """End a worker with what it has started."""
    worker.send_signal(signal.SIGTERM)
    try:
        worker.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def _measure(site: Site, arguments: argparse.Namespace) -> dict[str, Any]:
    """Time the calls of each kind, and what idle processes cost."""
    calls: dict[str, Any] = {}
    for name, ask in (("transcription", _transcribe), ("speech", _speak)):
        for _ in range(WARM_UP):
            ask(site.client).raise_for_status()
        calls[name] = _timed(site, ask, arguments)
    time.sleep(SETTLE_S)
    before = [_cpu_s(site.service), _cpu_s(site.worker)]
    time.sleep(arguments.idle_seconds)
    spent = [after - was for after, was in zip([_cpu_s(site.service), _cpu_s(site.worker)], before, strict=True)]
    shares = [100 * seconds / arguments.idle_seconds for seconds in spent]
    return {"calls": calls, "idle": dict(zip(("service", "worker"), shares, strict=True))}


def _timed(site: Site, ask: Ask, arguments: argparse.Namespace) -> dict[str, float]:
    """Return median, 95th percentile and the longest of calls, one after the other."""
    seconds: list[float] = []
    for _ in range(arguments.calls):
        time.sleep(random.uniform(0.0, arguments.pause))  # noqa: S311 - a load
        began = time.perf_counter()
        answer = ask(site.client)
        seconds.append(time.perf_counter() - began)
        answer.raise_for_status()
    cuts = statistics.quantiles(seconds, n=20)
    return {"p50_s": statistics.median(seconds), "p95_s": cuts[18], "most_s": max(seconds)}


def _transcribe(client: "httpx.Client") -> "httpx.Response":
    """Send half a second of noise, each time another."""
    noise = np.random.default_rng().normal(0, 0.1, RATE_HZ // 2).astype(np.float32)
    file = io.BytesIO()
    sf.write(file, noise, RATE_HZ, format="WAV", subtype="PCM_16")
    form = {"model": "whisper-1", "vad_filter": "false"}
    return client.post("/v1/audio/transcriptions", data=form, files={"file": ("a.wav", file.getvalue())})


def _speak(client: "httpx.Client") -> "httpx.Response":
    """Send a short text, each time another."""
    text = f"Number {random.randrange(10**9)}."  # noqa: S311 - a load
    form = {"model": "tts-1", "voice": "alloy", "input": text, "response_format": "wav"}
    return client.post("/v1/audio/speech", json=form)


def _cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and of its children."""
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        times = one.cpu_times()
        total += times.user + times.system
    return total
