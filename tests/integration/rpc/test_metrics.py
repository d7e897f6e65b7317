"""The metrics of a server of the voice engine: on loopback, by its own account, and only where asked for."""

import re
import socket
import threading
import urllib.request

import pytest

from tests.integration.rpc.calls import NO_VAD, noise
from tests.integration.rpc.conftest import Server, Starter, eventually
from voicejobs.errors import QueueFull
from voicejobs.proto import voice_engine_pb2 as pb

pytestmark = pytest.mark.timeout(120)
SLOW = {"VOICEJOBS_FAKE_COST_BASE_S": "1.5"}


def page(url: str) -> str:
    """Return the page of metrics."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return str(answer.read().decode())


def value(text: str, name: str, **labels: str) -> float | None:
    """Return the value of a sample, None where it is not there."""
    for line in text.splitlines():
        found = re.fullmatch(rf"voicejobs_{name}(?:\{{(.*)\}})? (\S+)", line)
        if found and dict(re.findall(r'(\w+)="([^"]*)"', found[1] or "")).items() >= labels.items():
            return float(found[2])
    return None


def flood(server: Server, url: str) -> list[str]:
    """Call until one call is refused; return how each ended."""
    client = server.client()
    outcomes: list[str] = []

    def ask() -> None:
        try:
            client.recognise(noise(), "pcm_s16le_16k", options=NO_VAD)
            outcomes.append("ok")
        except QueueFull as error:
            outcomes.append(error.code)

    callers: list[threading.Thread] = []
    while "queue_full" not in outcomes and len(callers) < 20:  # however slowly callers come: the queue fills
        callers.append(threading.Thread(target=ask))
        callers[-1].start()
        eventually(lambda: value(page(url), "rpc_working") == 1, 20)
        if value(page(url), "rpc_waiting") == 1:
            assert value(page(url), "rpc_most_waiting") == 1
    for caller in callers:
        caller.join()
    assert len(outcomes) == len(callers)
    return outcomes


def test_a_server_tells_what_it_does(serve: Starter) -> None:
    """Work, queue, refusals, streams, batches and how busy the engines are: each as the clients have seen it."""
    server = serve("--slots", "1", "--queue-length", "1", "--metrics-port", "0", settings=SLOW)
    assert server.process.stdout is not None
    url = server.process.stdout.readline().removeprefix("metrics on ").strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", url)
    before = page(url)
    assert value(before, "rpc_slots") == 1
    assert value(before, "rpc_working") == value(before, "rpc_waiting") == value(before, "rpc_streams") == 0
    outcomes = flood(server, url)
    done, refused = outcomes.count("ok"), outcomes.count("queue_full")
    assert refused
    server.client().synthesise(pb.SynthesizeRequest(text="Good morning."))
    after = page(url)
    assert value(after, "rpc_requests_total", outcome="accepted") == done + 1
    assert value(after, "rpc_requests_total", outcome="refused") == refused
    assert value(after, "rpc_calls_total", method="Recognize", code="ok") == done
    assert value(after, "rpc_calls_total", method="Recognize", code="queue_full") == refused
    assert (value(after, "rpc_call_seconds_total", method="Recognize", code="ok") or 0) >= 1.5
    assert value(after, "engine_batch_size_count", engine="fake", worker="serve-engine") == done
    assert (value(after, "engine_busy_seconds_total", engine="fake") or 0) >= 1.5 * done * 0.9
    assert value(after, "model_pool_loaded", engine="fake_voice") == 1
    assert value(after, "rpc_most_waiting") == 1
    assert server.stop() == 0
    host, _, port = url.removeprefix("http://").removesuffix("/metrics").partition(":")
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind((host, int(port)))


def test_a_port_that_is_taken_is_told(serve: Starter) -> None:
    """The server does not start, and says why."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process, log = serve.launch("--metrics-port", str(taken.getsockname()[1]))
        with process:
            assert process.wait(60) == 7
    assert "metrics cannot be served" in log.read_text()
