"""Nothing that a request does holds up the event loop for more than 50 ms."""

import asyncio
import io
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import uvicorn

from tests.bench import Bench, bench, make_bench, speech
from tests.long_speech import add_transcribed, long_transcript
from tests.waiting import wait_until
from voicejobs import piecewise
from voicejobs.api.app import create_app
from voicejobs.api.server import open_context
from voicejobs.settings import Settings

__all__ = ["bench", "make_bench", "speech"]

LIMIT_S = 0.05
BEAT_S = 0.005
LONGEST_CALL_CHARS = 128 * 1024
TRIES = 4
"""A request that blocks does so each time; a machine that is busy otherwise does not."""


class Monitor:
    """Watch an event loop from beside it: how long it stood still, and where."""

    def __init__(self) -> None:
        self.beaten = 0.0
        self.blocks: list[tuple[float, str]] = []
        self._thread_id = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    async def beat(self) -> None:
        """Run on the loop and show that it turns; computing between two beats may have kept out all threads."""
        self._thread_id = threading.get_ident()
        self.beaten = time.monotonic()
        self._thread.start()
        while not self._end.is_set():
            computed_s = time.thread_time()
            await asyncio.sleep(BEAT_S)
            computed_s = time.thread_time() - computed_s
            self.beaten = time.monotonic()
            if computed_s > LIMIT_S:
                self.blocks.append((computed_s, "it computed"))

    def _watch(self) -> None:
        """Note when it does not; what a look of this thread was late itself says nothing."""
        looked = time.monotonic()
        where, waited_s = "", 0.0
        while not self._end.wait(BEAT_S):
            now = time.monotonic()
            if now - looked > LIMIT_S / 2:  # nobody got the processor
                where, waited_s = "", -1.0
            looked = now
            still_s = now - self.beaten
            if still_s > LIMIT_S and waited_s >= 0:
                frame = sys._current_frames().get(self._thread_id)
                where = where or "".join(traceback.format_stack(frame)[-6:])
                waited_s = max(waited_s, still_s)
            elif still_s <= LIMIT_S:
                if where and waited_s > 0:
                    self.blocks.append((waited_s, where))
                where, waited_s = "", 0.0

    def end(self) -> None:
        """Stop watching."""
        self._end.set()


class Service:
    """Run the service in a thread of this process, with its loop watched."""

    def __init__(self, settings: Settings) -> None:
        self.monitor = Monitor()
        self.context = open_context(settings, open_to_all=True)
        config = uvicorn.Config(create_app(self.context), port=0, log_config=None, lifespan="on", access_log=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        wait_until(lambda: self._server.started)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)

    def _serve(self) -> None:
        """Serve until the end."""

        async def both() -> None:
            beating = asyncio.ensure_future(self.monitor.beat())
            await self._server.serve()
            self.monitor.end()
            await beating

        asyncio.run(both())

    def close(self) -> None:
        """End it."""
        self.client.close()
        self._server.should_exit = True
        self._thread.join(20)
        self.context.close()


@pytest.fixture
def service(bench: Bench) -> Iterator[Service]:
    """Return a service beside a worker."""
    bench.start_worker()
    service = Service(Settings.from_env({"HOME": str(bench.folder), **bench.variables()}))
    yield service
    service.close()


@pytest.fixture
def idle_service(bench: Bench) -> Iterator[Service]:
    """Return a service whose jobs nobody does."""
    service = Service(Settings.from_env({"HOME": str(bench.folder), **bench.variables()}))
    yield service
    service.close()


def requests(client: httpx.Client, bench: Bench) -> dict[str, Callable[[], httpx.Response]]:
    """Return requests by name, after a job that has ended."""
    sound = bench.recording("a.wav", seconds=60.0).read_bytes()
    file = client.post("/v1/files", files={"file": ("a.wav", sound)}, data={"purpose": "user_data"}).json()["id"]
    source = {"engine": "fake", "source": {"file_id": file}}
    job = client.post("/api/v1/jobs", json=source).json()["id"]
    bench.wait_ended(job)
    artifact = client.get(f"/api/v1/jobs/{job}").json()["artifacts"][0]["id"]
    large = io.BytesIO(bytes(20 << 20))
    items = json.dumps(
        {"defaults": {"engine": "fake"}, "items": [{"source": {"file_id": file}} for _ in range(10_000)]}
    )
    got = {
        path: lambda path=path: client.get(path)
        for path in (
            "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/api/v1/jobs", f"/api/v1/jobs/{job}",
            f"/api/v1/jobs/{job}/attempts", f"/api/v1/jobs/{job}/events", f"/api/v1/jobs/{job}/transcript.srt",
            f"/api/v1/jobs/{job}/transcript.docx", f"/api/v1/jobs/{job}/transcript.TextGrid", "/api/v1/batches",
            f"/api/v1/artifacts/{artifact}/content", "/api/v1/engines", "/api/v1/voices", "/api/v1/pipelines",
            "/api/v1/usage", "/api/v1/limits", "/api/v1/webhooks", "/v1/models", "/v1/files",
            f"/v1/files/{file}/content",
        )
    }  # fmt: skip
    posted: dict[str, Callable[[], httpx.Response]] = {
        "20 MB": lambda: client.post(
            "/v1/files", files={"file": ("b", large.getvalue())}, data={"purpose": "user_data"}
        ),
        "a job": lambda: client.post("/api/v1/jobs", json={**source, "force": True}),
        "a job with its file": lambda: client.post(
            "/api/v1/jobs/upload", data={"engine": "fake"}, files={"file": ("c.wav", sound)}
        ),
        "10,000 items": lambda: client.post(
            "/api/v1/batches", content=items, headers={"content-type": "application/json"}
        ),
        "a transcription that waits": lambda: client.post(
            "/v1/audio/transcriptions", data={"model": "fake"}, files={"file": ("d.wav", sound)}
        ),
        "a wrong body": lambda: client.post("/api/v1/jobs", json={"source": 1}),
    }
    return {**got, **posted}


def test_no_request_blocks_the_loop(service: Service, bench: Bench) -> None:
    """Each kind of request, large ones too, leaves the loop turning: others are answered meanwhile."""
    told: dict[str, Any] = {}
    for name, ask in requests(service.client, bench).items():
        worst: list[tuple[float, str]] = []
        for _ in range(TRIES):
            before = len(service.monitor.blocks)
            answer = ask()
            assert answer.status_code < 400 or name.startswith("a wrong"), (name, answer.text)
            time.sleep(3 * BEAT_S)
            worst = service.monitor.blocks[before:]
            if not worst:
                break
        if worst:
            told[name] = max(worst)
    assert not told, "\n".join(f"{name}: {seconds * 1000:.0f} ms\n{where}" for name, (seconds, where) in told.items())
    assert service.context.lag.count > 0


class Calls:
    """Note how much JSON single calls read and write: other threads, and the loop, stand still meanwhile."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.longest = 0
        self.pieces = 0
        decode, encode, read = json.JSONDecoder.decode, json.JSONEncoder.encode, piecewise._read

        def decoding(decoder: json.JSONDecoder, text: str) -> Any:
            self.longest = max(self.longest, len(text))
            return decode(decoder, text)

        def encoding(encoder: json.JSONEncoder, value: Any) -> str:
            text = encode(encoder, value)
            self.longest = max(self.longest, len(text))
            return text

        def reading(text: str, at: int) -> Any:
            self.pieces += 1
            value, end = read(text, at)
            if text[at] in "{[":  # a text is long where it is, and quickly read
                self.longest = max(self.longest, end - at)
            return value, end

        patch.setattr(json.JSONDecoder, "decode", decoding)
        patch.setattr(json.JSONEncoder, "encode", encoding)
        patch.setattr(piecewise, "_read", reading)


def large_bodies() -> list[tuple[str, int, bytes]]:
    """Return paths, the status that each is answered with, and bodies of megabytes; the last is of large rows."""
    wish = {"pipeline": "speak", "engine": "fake_voice", "source": {"text": "A text."}}
    metadata = {f"name {number}": "x" * 500 for number in range(16)}
    long_options = dict.fromkeys(map(str, range(999)), "x" * 3_000)
    given: list[tuple[str, int, dict[str, Any]]] = [
        ("jobs", 422, {**wish, "options": long_options}),
        ("jobs", 422, {**wish, "options": {"many": [[]] * 300_000}}),
        ("jobs", 202, {**wish, "source": {"text": "word " * 300_000}}),
        ("batches", 422, {"items": [{**wish, "options": long_options}]}),
        ("batches", 422, {"items": [{**wish, "options": {"many": [[]] * 300_000}}]}),
        ("batches", 202, {"items": [wish] * 3_000}),
        ("batches", 202, {"items": [{**wish, "metadata": metadata}] * 100}),
    ]
    return [(f"/api/v1/{path}", status, json.dumps(body).encode()) for path, status, body in given]


def test_no_call_reads_or_writes_megabytes_of_json(idle_service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a batch of many jobs, a large job, a page of large rows nor hours of speech: all goes in pieces."""
    job = add_transcribed(idle_service.context.database, idle_service.context.blobs, long_transcript(0.5))
    bodies = large_bodies()
    calls = Calls(monkeypatch)
    client = idle_service.client
    for path, status, body in bodies:
        answer = client.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == status, answer.text
    page = client.get(f"{answer.headers['location']}/items?limit=100")
    assert len(page.content) > 100 * 16 * 500
    for form in ("srt", "json", "native", "verbose_json", "TextGrid"):
        assert client.get(f"/api/v1/jobs/{job}/transcript.{form}").status_code == 200
    assert calls.pieces > 1_000
    assert calls.longest < LONGEST_CALL_CHARS
