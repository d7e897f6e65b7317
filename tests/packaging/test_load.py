"""The load test tool: it keeps to its schedule, counts from when a request was due, and stays on this machine."""

import asyncio
import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def hold_up() -> None:
    """Block the loop that calls."""
    time.sleep(0.3)


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that imports a module of scripts/loading."""
    pytest.importorskip("grpc", reason="the extra `server` is not installed")
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return lambda name: importlib.import_module(f"loading.{name}")


def test_a_slow_server_does_not_slow_the_load(loading: Any) -> None:
    """Requests to a server that takes half a second go out on time all the same, and none waits for another."""
    openloop = loading("openloop")
    sent: list[float] = []

    async def send(number: int) -> str:
        sent.append(time.perf_counter())
        await asyncio.sleep(0.5)
        return "OK"

    account = asyncio.run(openloop.drive(openloop.Schedule(rate=40, seconds=0.5), send))
    assert len(sent) == 20
    assert sent[-1] - sent[0] < 0.9
    assert account.statuses == {"OK": 20}


def test_latency_counts_from_when_a_request_was_due(loading: Any) -> None:
    """While the loop is held up for 0.3 s, requests that were due meanwhile have waited, and their latency says so."""
    openloop = loading("openloop")

    async def send(number: int) -> str:
        if number == 0:
            hold_up()
        return "OK"

    account = asyncio.run(openloop.drive(openloop.Schedule(rate=50, seconds=0.4), send))
    summary = account.summary()
    assert summary["max_s"] >= 0.25
    assert summary["generator_late_p99_s"] >= 0.2


def test_refused_requests_are_no_errors(loading: Any) -> None:
    """Answers of a server that sheds load are counted apart from errors, and no latency comes of either."""
    openloop = loading("openloop")
    statuses = ["OK", "RESOURCE_EXHAUSTED", "503", "INTERNAL"]

    async def send(number: int) -> str:
        return statuses[number % 4]

    summary = asyncio.run(openloop.drive(openloop.Schedule(rate=400, seconds=0.1), send)).summary()
    assert (summary["ok"], summary["refused"], summary["errors"]) == (10, 20, 10)


def test_requests_in_flight_are_bounded(loading: Any) -> None:
    """Beyond the bound requests are counted as not sent, so that a dead server fills no memory."""
    openloop = loading("openloop")

    async def send(number: int) -> str:
        await asyncio.sleep(0.3)
        return "OK"

    account = asyncio.run(openloop.drive(openloop.Schedule(rate=100, seconds=0.1, in_flight=3), send))
    assert account.statuses == {"OK": 3, "not sent": 7}


@pytest.mark.parametrize(
    "values", [{"rate": 0, "seconds": 1}, {"rate": 10, "seconds": 1e9}, {"rate": 1e6, "seconds": 1}]
)
def test_runs_are_bounded(loading: Any, values: dict[str, float]) -> None:
    """No schedule is longer or denser than a load test may be."""
    with pytest.raises(ValueError, match="rate must be"):
        loading("openloop").Schedule(**values).arrivals_s()


def test_random_arrivals_keep_the_rate(loading: Any) -> None:
    """Arrivals at random have the rate on the whole, differ in their gaps, and are the same for a seed."""
    times = loading("openloop").Schedule(rate=50, seconds=100, poisson=True).arrivals_s()
    assert 4500 < len(times) < 5500
    assert np.diff(times).std() > 0.01
    assert np.array_equal(times, loading("openloop").Schedule(rate=50, seconds=100, poisson=True).arrivals_s())


@pytest.mark.parametrize(
    "address", ["127.0.0.1:50051", "localhost:1", "[::1]:1", "unix:/tmp/x", "http://127.0.0.1:1/x"]
)
def test_this_machine_may_be_loaded(loading: Any, address: str) -> None:
    """Loopback and unix sockets are taken."""
    loading("clients").check_loopback(address)


@pytest.mark.parametrize("address", ["192.0.2.1:50051", "example.com:1", "http://10.0.0.1/x", "0.0.0.0:1", "[::]:1"])
def test_no_other_machine_is_loaded(loading: Any, address: str) -> None:
    """Every other address, and every name that may be another machine's, is refused."""
    clients = loading("clients")
    with pytest.raises(clients.NotLoopbackError):
        clients.check_loopback(address)


def test_every_result_states_its_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The JSON of every benchmark and load test names cores, memory, system and versions."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    report = importlib.import_module("benchmarks.report")
    assert report.finish("x", {"holds": {"a": True}}, tmp_path / "x.json") == 0
    assert report.finish("x", {"holds": {"a": True, "b": False}}, tmp_path / "x.json") == 1
    machine = json.loads((tmp_path / "x.json").read_text())["machine"]
    assert machine["cores"] >= 1
    assert machine["memory_gb"] > 0
    assert machine["packages"]["voicejobs"]
    assert {"cpu", "system", "python", "date"} <= machine.keys()


def test_a_server_is_loaded(loading: Any, tmp_path: Path) -> None:
    """The command loads a real voice engine over shared channels and one for each call, and writes what it saw."""
    pytest.importorskip("faster_whisper", reason="the extra `worker` is not installed")
    servers = loading("servers")
    with servers.serving(servers.ServerPlan()) as server:
        for channels in ("2", "0"):
            target = tmp_path / f"{channels}.json"
            words = ["--rate", "10", "--seconds", "1", "--channels", channels, "--pid", str(server.pid)]
            done = subprocess.run(
                [sys.executable, str(ROOT / "scripts" / "load"), "grpc", server.address, *words, "--json", str(target)],
                capture_output=True,
                text=True,
                check=False,
            )
            assert "OK" in done.stdout, done.stderr
            found = json.loads(target.read_text())["found"]
            assert found["statuses"] == {"OK": 10}
            assert found["server_mb"] > 10
