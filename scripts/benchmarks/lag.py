"""How late the event loop of the service is while large requests come in, by its own metric and by what others wait."""

import http.client
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.long_speech import add_transcribed, long_transcript
from tests.servers.api import ApiServer
from voicejobs.settings import Settings
from voicejobs.store.remote_blobs import blob_store

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import httpx

LIMIT_S = 0.05
HOURS = 10.0
JOBS = 10_000
LARGE_TEXTS = 3_800
ASK_EVERY_S = 0.01
SETTLE_S = 0.2
LONGEST_ANSWER_S = 120.0
JSON = {"content-type": "application/json"}
NAME = "voicejobs_api_loop_lag_seconds_bucket"


@dataclass(frozen=True)
class Lateness:
    """Hold one run: the step of the metric that nothing was above, the longest wait for `/healthz`, the request itself.

    All in seconds; `late` is how often the loop was late by more than the limit.
    """

    lag_s: float
    late: int
    wait_s: float
    request_s: float


def measure(runs: int) -> dict[str, list[Lateness]]:
    """Return what so many runs of each kind of request found, on a service of their own."""
    quiet: dict[str, object] = {"api_requests_per_minute": 0, "api_concurrency": 0, "log_level": "WARNING"}
    with (
        tempfile.TemporaryDirectory(prefix="vj-lag-", ignore_cleanup_errors=True) as name,
        ApiServer(Path(name), "redis://127.0.0.1:1/0", **quiet) as server,
        server.client(server.key()) as client,
    ):
        client.timeout = LONGEST_ANSWER_S
        asks = _requests(server, client)
        client.get("/metrics")
        return {kind: [_run(server, client, ask) for _ in range(runs)] for kind, ask in asks.items()}


def rows(found: dict[str, list[Lateness]]) -> list[tuple[str, ...]]:
    """Return the table."""
    table = [("request", "lag ms", "at most", "wait ms", "at most", "over 50 ms", "request s")]
    for kind, runs in found.items():
        lags, waits = [one.lag_s * 1000 for one in runs], [one.wait_s * 1000 for one in runs]
        middle, most = statistics.median, max
        table.append(
            (kind, f"{middle(lags):.0f}", f"{most(lags):.0f}", f"{middle(waits):.0f}", f"{most(waits):.0f}",
             str(sum(one.late for one in runs)), f"{middle(one.request_s for one in runs):.2f}")
        )  # fmt: skip
    return table


def _requests(server: ApiServer, client: "httpx.Client") -> dict[str, Callable[[], "httpx.Response"]]:
    """Return the requests by name."""
    wish = {"pipeline": "speak", "engine": "fake_voice"}
    many = [{**wish, "custom_id": str(number), "source": {"text": f"Text {number}."}} for number in range(JOBS)]
    texts = [{**wish, "source": {"text": f"{number} " + "wörd " * 1300}} for number in range(LARGE_TEXTS)]
    metadata = {f"name {number}": "x" * 500 for number in range(16)}
    bodies = [json.dumps({"items": items}, ensure_ascii=False).encode() for items in (many, texts)]
    client.post("/api/v1/batches", json={"items": [{**one, "metadata": metadata} for one in many[:100]]})
    job = add_transcribed(
        server.database,
        blob_store(Settings.from_env({"HOME": str(server.folder), **server.variables})),
        long_transcript(HOURS),
    )
    path = f"/api/v1/jobs/{job}/transcript"
    gets = {"a page of 100 large rows": "/api/v1/jobs?limit=100", f"{HOURS:g} hours as json": f"{path}.native",
            f"{HOURS:g} hours as docx": f"{path}.docx"}  # fmt: skip
    posts = {f"a batch of {JOBS:,} jobs": bodies[0], f"a batch of {len(bodies[1]) / 1e6:.0f} MB": bodies[1]}
    return {
        "nothing": lambda: client.get("/healthz"),
        **{kind: lambda where=where: client.get(where) for kind, where in gets.items()},
        **{kind: lambda body=body: client.post("/api/v1/batches", content=body, headers=JSON)
           for kind, body in posts.items()},
    }  # fmt: skip


def _run(server: ApiServer, client: "httpx.Client", ask: Callable[[], "httpx.Response"]) -> Lateness:
    """Send one request while somebody else asks for `/healthz` again and again."""
    before = _buckets(client)
    with _asking(urlsplit(server.url).port or 0) as longest_s:
        time.sleep(SETTLE_S)
        since = time.perf_counter()
        ask().raise_for_status()
        request_s = time.perf_counter() - since
        time.sleep(SETTLE_S)
        wait_s = longest_s()
    after = _buckets(client)
    new = {step_s: after[step_s] - before[step_s] for step_s in after}
    count = new[float("inf")]
    return Lateness(min(step_s for step_s in new if new[step_s] == count), count - new[LIMIT_S], wait_s, request_s)


def _buckets(client: "httpx.Client") -> dict[float, int]:
    """Return how often the loop was late by no more than each step of the histogram."""
    lines = client.get("/metrics").text.splitlines()
    values = [line.removeprefix(NAME).split() for line in lines if line.startswith(NAME)]
    return {float(label.split('"')[1]): int(float(value)) for label, value in values}


@contextmanager
def _asking(port: int) -> Iterator[Callable[[], float]]:
    """Ask for `/healthz` from a process of its own; what it yields stops that and returns the longest wait."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_ask, args=(port, theirs))
    process.start()

    def stop() -> float:
        ours.send(None)
        return float(ours.recv())

    try:
        yield stop
    finally:
        process.kill()
        process.join()


def _ask(port: int, pipe: "Connection[Any, Any]") -> None:
    """Ask until told to end, and tell the longest wait."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    longest_s = 0.0
    while not pipe.poll(ASK_EVERY_S):
        since = time.perf_counter()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        longest_s = max(longest_s, time.perf_counter() - since)
    pipe.send(longest_s)
