"""`scripts/gpu_check` where there is no card: what it says then, and that its checks can fail."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.bench import read_speech
from tests.servers.process import wait_gone
from voicejobs.accelerators import Device
from voicejobs.errors import ModelUnavailable
from voicejobs.models.installed import resolve
from voicejobs.settings import Settings

ROOT = Path(__file__).parents[2]
NAMES = ["share", "fork", "kill", "workers", "throughput"]
CARD = Device("cuda:0", "GPU-aaaa", "Fake Card", 80 << 30)
DRIVER = """#!/bin/sh
case "$1" in
  --query-gpu*) printf '0, GPU-aaaa, Fake Card, 81920, Disabled\\n' ;;
esac
"""


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Return a function that imports a module of scripts/gpu_checks."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return lambda name: import_module(f"gpu_checks.{name}")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a driver's tool on the PATH that tells of one card."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(DRIVER)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)


@pytest.fixture
def on_cpu(scripts: Callable[[str], Any], models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the checks, with the CPU for the card; skip where torch or the detector's model is missing."""
    pytest.importorskip("torch", reason="torch is not installed")
    try:
        resolve("silero-vad", Settings(models_dir, models_dir))
    except ModelUnavailable as error:
        pytest.skip(error.message)
    monkeypatch.setenv("VOICEJOBS_MODELS_DIR", str(models_dir))
    checks = scripts("checks")
    monkeypatch.setattr(checks, "CARD", "cpu")
    return checks


def run(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the script with this Python."""
    command = [sys.executable, str(ROOT / "scripts" / "gpu_check"), *words]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=100)


@pytest.mark.parametrize("chosen", [[], ["kill", "fork"]])
def test_without_a_card_every_check_is_skipped(tmp_path: Path, chosen: list[str]) -> None:
    """The document names each check as skipped, and the exit status is one that nothing else has."""
    done = run(*chosen, PATH=str(tmp_path))
    document = json.loads(done.stdout)
    assert done.returncode == 3
    assert (document["devices"], document["ok"]) == ([], False)
    expected = [name for name in NAMES if not chosen or name in chosen]
    assert document["checks"] == [
        {"name": name, "ok": None, "seconds": 0.0, "detail": "skipped: no CUDA device"} for name in expected
    ]


def test_an_unknown_check_is_wrong_usage() -> None:
    """The message names those that there are."""
    done = run("speed")
    assert done.returncode == 2
    assert "throughput" in done.stderr


@pytest.mark.usefixtures("driver")
@pytest.mark.timeout(120)
def test_a_card_that_torch_cannot_use_fails_each_check_with_the_reason() -> None:
    """The driver tells of a card, and this torch is built without CUDA: no check passes, and none crashes."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    done = run("share", CUDA_MPS_PIPE_DIRECTORY="/tmp/mps")
    document = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert [device["uuid"] for device in document["devices"]] == ["GPU-aaaa"]
    assert document["sharing_service"] == {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps"}
    assert [(one["name"], one["ok"]) for one in document["checks"]] == [("share", False)]
    assert all(f"torch {torch.__version__} cannot use the card" in one["detail"] for one in document["checks"])


def test_a_check_ends_in_its_time_with_all_that_it_started(scripts: Callable[[str], Any], tmp_path: Path) -> None:
    """One that hangs is killed with its children, one that crashes shows the end of what it wrote, and others go on."""
    runner = scripts("runner")
    codes = {
        "hangs": "import subprocess, sys, time; sleep = [sys.executable, '-c', 'import time; time.sleep(99)'];"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(subprocess.Popen(sleep).pid)); time.sleep(99)",
        "crashes": "import os, sys; sys.stderr.write('it burns'); sys.stderr.flush(); os.abort()",
        "says": "import os; print('noise'); print('[\"' + os.environ['CUDA_VISIBLE_DEVICES'] + '\"]')",
        "fails": "import sys; print('\"too slow\"'); sys.exit(1)",
    }
    checks = [runner.Check(name, 1.5 if name == "hangs" else 20) for name in codes]
    began = time.monotonic()
    found = {one.name: one for one in runner.run_all(checks, [CARD], lambda name: [sys.executable, "-c", codes[name]])}
    assert time.monotonic() - began < 30
    assert {name: one.ok for name, one in found.items()} == {
        "hangs": False, "crashes": False, "says": True, "fails": False,
    }  # fmt: skip
    assert "more than 2 s" in found["hangs"].detail
    assert "it burns" in found["crashes"].detail
    assert found["says"].detail == ["GPU-aaaa"]
    assert found["fails"].detail == "too slow"
    pid = int((tmp_path / "pid").read_text())
    if psutil.pid_exists(pid):
        wait_gone([psutil.Process(pid)], 5)


def test_the_checks_fit_into_five_minutes(scripts: Callable[[str], Any]) -> None:
    """Their limits together, and the total, leave room for the start."""
    runner = scripts("runner")
    assert sum(check.limit_s for check in runner.CHECKS) <= runner.TOTAL_S < 300
    assert [check.name for check in runner.CHECKS] == NAMES == list(scripts("checks").CHECKS)


@pytest.mark.models
def test_a_killed_engine_gives_its_memory_back(on_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check `kill` with resident memory in place of the card's; and it fails where memory stays taken."""

    def free_bytes() -> int:
        children = psutil.Process().children(recursive=True)
        return -sum(child.memory_info().rss for child in children if child.status() != psutil.STATUS_ZOMBIE)

    monkeypatch.setattr(on_cpu, "free_bytes", free_bytes)
    found = on_cpu.kill()
    assert found["held_bytes"] > on_cpu.NOISE_BYTES
    assert found["freed_after_s"] < on_cpu.FREED_WITHIN_S
    leaks = iter([0, -(1 << 30)])
    monkeypatch.setattr(on_cpu, "free_bytes", lambda: next(leaks, -(1 << 30)))
    monkeypatch.setattr(on_cpu, "FREED_WITHIN_S", 0.2)
    with pytest.raises(on_cpu.FailedError, match="still taken"):
        on_cpu.kill()


@pytest.mark.services
@pytest.mark.timeout(150)
@pytest.mark.usefixtures("driver")
def test_two_workers_share_a_card(scripts: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The check `workers` with the engine `fake`: each of two workers has done a job, and `job show` names both."""
    work = scripts("work")
    monkeypatch.setenv("VOICEJOBS_FAKE_COST_BASE_S", "0.2")  # so that no worker can take all

    with scripts("checkout").python_path(ROOT):
        found = work.two_workers(read_speech(), "fake")
    assert found["step"] == "recognise"
    told = {worker: (one["worker"], one["device"]) for worker, one in found["job_show"].items()}
    assert told == {"cuda0": ("cuda0", "cuda:0"), "cuda0.2": ("cuda0.2", "cuda:0")}


def test_a_checkout_without_an_installation_finds_its_engines(
    scripts: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that is lent for minutes nothing is installed: entry points come from setup.cfg."""
    checkout = scripts("checkout")
    monkeypatch.setattr(checkout, "_is_installed", lambda: False)
    code = (
        "from importlib.metadata import distribution; import voicejobs_workers, voicejobs_migrations;"
        "print(distribution('voicejobs').version, sorted(e.name for e in distribution('voicejobs').entry_points))"
    )
    with checkout.python_path(ROOT) as path:
        env = {**os.environ, "PYTHONPATH": path}
        told = subprocess.run([sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True, check=True)
    assert told.stdout.startswith("0 ")
    assert "'silero_torch'" in told.stdout
