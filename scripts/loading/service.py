"""Loads of the REST service: one large upload, and many clients that poll beside uploads and a batch."""

import argparse
import asyncio
import itertools
import random
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from benchmarks.report import print_table

from tests.servers.api import ApiServer

if TYPE_CHECKING:
    import httpx

MIB = 1 << 20
MOST_GROWN_BYTES = 50 * 10**6
MOST_TIMES_IDLE = 5.0
POLL_EVERY_S = 5.0
IDLE_RATE = 10.0
UPLOAD_BYTES_PER_S = 2_000_000
UPLOADERS = 4
LOOK_EVERY_S = 0.05
JOBS_OF_A_BATCH = 500
STEP_COST_S = 0.5
LONGEST_ANSWER_S = 600.0
FIRST_SERVER_STATUS = 500
UNLIMITED = {"api_requests_per_minute": 0, "api_concurrency": 0, "log_level": "WARNING", "linger_s": 0.2}


def run_upload(arguments: argparse.Namespace) -> dict[str, Any]:
    """Upload one file in one piece and the same in parts, and say how far the memory of the service grew."""
    size_bytes = int(arguments.gigabytes * 10**9)
    with _serving(**UNLIMITED, api_upload_bytes=size_bytes + MIB) as (server, client):
        client.get("/api/v1/limits")
        ways = {"one piece": lambda: _whole(client, size_bytes), "parts": lambda: _parts(client, size_bytes)}
        found = {}
        for name, send in ways.items():
            with _Memory(server) as memory:
                since = time.monotonic()
                send()
                found[name] = {"seconds": time.monotonic() - since, "grown_bytes": memory.grown_bytes}
    print_table(
        [("upload", "GB", "s", "MB/s", "grown MB")]
        + [
            (name, f"{size_bytes / 1e9:g}", f"{one['seconds']:.1f}", f"{size_bytes / one['seconds'] / 1e6:.0f}",
             f"{one['grown_bytes'] / 1e6:.1f}")
            for name, one in found.items()
        ]
    )  # fmt: skip
    grown = max(one["grown_bytes"] for one in found.values())
    return {"found": found, "holds": {f"an upload grows the service by less than {MOST_GROWN_BYTES / 1e6:.0f} MB":
                                      grown < MOST_GROWN_BYTES}}  # fmt: skip


def run_polls(arguments: argparse.Namespace) -> dict[str, Any]:
    """Poll one job after the other with many clients, first idle, then beside uploads and a batch."""
    settings = {**UNLIMITED, "fake_cost_base_s": STEP_COST_S, "engine_processes": 2}
    with _serving(**settings, workers=True) as (server, client):
        job_ids = _jobs(client, 20)
        _wait_ended(client, job_ids)
        found = asyncio.run(_polled(arguments, server, job_ids))
        jobs = client.get("/api/v1/usage").json()["jobs"]
    idle, busy = found["idle"], found["busy"]
    times = busy.p95_s / idle.p95_s
    print_table(
        [("phase", "polls", "p50 ms", "p95 ms", "p99 ms", "most ms", "uploads MB/s", "statuses")]
        + [_row(name, one) for name, one in found.items()]
    )
    print(f"p95 beside uploads and a batch is {times:.1f} times the idle one; jobs: {jobs}")
    statuses = Counter(itertools.chain.from_iterable(one.statuses.elements() for one in found.values()))
    return {
        "found": {name: one.summary() for name, one in found.items()} | {"times_idle": times, "jobs": jobs},
        "holds": {
            "no answer from 500 on": max(statuses) < FIRST_SERVER_STATUS,
            f"p95 at most {MOST_TIMES_IDLE:g} times its idle p95": times <= MOST_TIMES_IDLE,
        },
    }


@contextmanager
def _serving(*, workers: bool = False, **settings: object) -> Iterator[tuple[ApiServer, "httpx.Client"]]:
    """Run a service with an embedded stack, its workers only where they are wanted, and return it with a client."""
    with (
        tempfile.TemporaryDirectory(prefix="vj-load-", ignore_cleanup_errors=True) as name,
        ApiServer(Path(name), "" if workers else "redis://127.0.0.1:1/0", "--grace", "1", **settings) as server,
        server.client(server.key("load")) as client,
    ):
        client.timeout = LONGEST_ANSWER_S
        yield server, client


class _Memory:
    """Look how far the resident memory of a service grows while a block runs."""

    def __init__(self, server: ApiServer) -> None:
        self._process = server.process
        self._before = self._most = self._process.memory_info().rss

    def __enter__(self) -> Self:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def grown_bytes(self) -> int:
        """Return by how much it was above what it began with, at most."""
        return self._most - self._before

    def _look(self) -> None:
        """Look again and again."""
        while not self._ended.wait(LOOK_EVERY_S):
            self._most = max(self._most, self._process.memory_info().rss)


def _blocks(size_bytes: int) -> Iterator[bytes]:
    """Yield blocks that are not all alike."""
    block = random.Random(1).randbytes(MIB)  # noqa: S311 - a load, and no secret
    for place in range(0, size_bytes, MIB):
        yield block[: min(MIB, size_bytes - place)]


def _whole(client: "httpx.Client", size_bytes: int) -> None:
    """Upload a file by one request with a form."""
    edge = "voicejobs-load"
    head = (
        f'--{edge}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n--{edge}\r\n'
        'content-disposition: form-data; name="file"; filename="a.wav"\r\ncontent-type: audio/wav\r\n\r\n'
    ).encode()
    tail = f"\r\n--{edge}--\r\n".encode()
    answer = client.post(
        "/v1/files",
        content=itertools.chain([head], _blocks(size_bytes), [tail]),
        headers={"content-type": f"multipart/form-data; boundary={edge}"},
    )
    answer.raise_for_status()
    if answer.json()["bytes"] != size_bytes:
        raise RuntimeError(f"the service says {answer.json()}")


def _parts(client: "httpx.Client", size_bytes: int, part_bytes: int = 64 * MIB) -> None:
    """Upload a file in parts, as the client of OpenAI does."""
    made = client.post(
        "/v1/uploads", json={"bytes": size_bytes, "filename": "b.wav", "mime_type": "audio/wav", "purpose": "user_data"}
    )
    made.raise_for_status()
    place = f"/v1/uploads/{made.json()['id']}"
    ids = []
    for start in range(0, size_bytes, part_bytes):
        data = b"".join(_blocks(min(part_bytes, size_bytes - start)))
        answer = client.post(f"{place}/parts", files={"data": ("part", data)})
        answer.raise_for_status()
        ids.append(answer.json()["id"])
    client.post(f"{place}/complete", json={"part_ids": ids}).raise_for_status()


@dataclass
class Phase:
    """Hold what polls of one phase found."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    uploaded_bytes: int = 0
    length_s: float = 0.0

    @property
    def p95_s(self) -> float:
        """Return the time within which 95 of 100 polls were answered."""
        return statistics.quantiles(self.seconds, n=100)[94]

    def summary(self) -> dict[str, Any]:
        """Return the figures."""
        cuts = statistics.quantiles(self.seconds, n=100)
        return {
            "polls": len(self.seconds), "p50_s": cuts[49], "p95_s": cuts[94], "p99_s": cuts[98],
            "most_s": max(self.seconds), "statuses": dict(self.statuses),
            "uploaded_bytes_per_s": self.uploaded_bytes / self.length_s,
        }  # fmt: skip


def _row(name: str, phase: Phase) -> tuple[str, ...]:
    """Return a row of the table."""
    found = phase.summary()
    times = [f"{found[one] * 1000:.1f}" for one in ("p50_s", "p95_s", "p99_s", "most_s")]
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(phase.statuses.items()))
    return (name, str(found["polls"]), *times, f"{found['uploaded_bytes_per_s'] / 1e6:.2f}", statuses)


def _jobs(client: "httpx.Client", count: int, *, batch: bool = False) -> list[str]:
    """Submit texts to an engine that sleeps, as jobs of their own or as one batch; return ids."""
    wishes = [
        {"pipeline": "speak", "engine": "fake_voice", "source": {"text": f"This is text {random.random()}."}}  # noqa: S311
        for _ in range(count)
    ]
    answers = [client.post("/api/v1/batches", json={"items": wishes})] if batch else [
        client.post("/api/v1/jobs", json=wish) for wish in wishes
    ]  # fmt: skip
    for answer in answers:
        answer.raise_for_status()
    return [answer.json()["id"] for answer in answers]


def _wait_ended(client: "httpx.Client", job_ids: list[str]) -> None:
    """Wait until jobs have succeeded."""
    for job_id in job_ids:
        while client.get(f"/api/v1/jobs/{job_id}").json()["status"] != "succeeded":
            time.sleep(0.2)


@dataclass(frozen=True)
class Polls:
    """Say who polls: so many clients, each as often, for how long."""

    clients: int
    every_s: float
    length_s: float


async def _polled(arguments: argparse.Namespace, server: ApiServer, job_ids: list[str]) -> dict[str, Phase]:
    """Run the phases."""
    headers = {"authorization": f"Bearer {server.key('load')}"}
    idle, alone, busy = Phase(), Phase(), Phase()
    await _poll(idle, server.url, headers, job_ids, Polls(1, 1 / IDLE_RATE, arguments.idle_seconds))
    await _poll(alone, server.url, headers, job_ids, Polls(arguments.clients, POLL_EVERY_S, arguments.idle_seconds))
    async with _client(server.url, headers) as client:
        beside = [asyncio.create_task(_upload(busy, client)) for _ in range(UPLOADERS)]
        beside.append(asyncio.create_task(_keep_busy(server, headers)))
        await asyncio.sleep(POLL_EVERY_S)
        await _poll(busy, server.url, headers, job_ids, Polls(arguments.clients, POLL_EVERY_S, arguments.seconds))
        for task in beside:
            task.cancel()
        for ended in await asyncio.gather(*beside, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
    return {"idle": idle, "polls alone": alone, "busy": busy}


def _client(url: str, headers: dict[str, str]) -> "httpx.AsyncClient":
    """Return a client; it loads no certificates, which would cost each as much as a hundred polls."""
    import ssl  # noqa: PLC0415 - only here

    import httpx

    return httpx.AsyncClient(
        base_url=url, headers=headers, timeout=60, trust_env=False, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )


async def _poll(phase: Phase, url: str, headers: dict[str, str], job_ids: list[str], polls: Polls) -> None:
    """Let clients poll for some time, each on a connection of its own, evenly spread."""
    begin = time.monotonic()

    async def one(number: int) -> None:
        async with _client(url, headers) as client:
            for turn in itertools.count():
                due = begin + polls.every_s * (number / polls.clients + turn)
                if due > begin + polls.length_s:
                    return
                await asyncio.sleep(max(due - time.monotonic(), 0))
                since = time.perf_counter()
                answer = await client.get(f"/api/v1/jobs/{random.choice(job_ids)}")  # noqa: S311 - a load
                phase.seconds.append(time.perf_counter() - since)
                phase.statuses[answer.status_code] += 1

    await asyncio.gather(*(one(number) for number in range(polls.clients)))
    phase.length_s = time.monotonic() - begin


async def _upload(phase: Phase, client: "httpx.AsyncClient") -> None:
    """Upload files one after the other, as fast as the share of this uploader allows, until cancelled."""
    size_bytes, rate = MIB, UPLOAD_BYTES_PER_S / UPLOADERS
    due = time.monotonic()
    for number in itertools.count():
        files = {"file": (f"{number}.wav", next(_blocks(size_bytes)), "audio/wav")}
        answer = await client.post("/v1/files", data={"purpose": "user_data"}, files=files)
        phase.statuses[answer.status_code] += 1
        phase.uploaded_bytes += size_bytes
        due += size_bytes / rate
        await asyncio.sleep(max(due - time.monotonic(), 0))


async def _keep_busy(server: ApiServer, headers: dict[str, str]) -> None:
    """Keep a batch in the queue until cancelled."""

    def submit() -> None:
        with server.client(headers=headers) as client:
            _jobs(client, JOBS_OF_A_BATCH, batch=True)

    while True:
        await asyncio.to_thread(submit)
        await asyncio.sleep(JOBS_OF_A_BATCH * STEP_COST_S / 4)
