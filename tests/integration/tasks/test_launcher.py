"""The launcher: one worker for each device, each in its own environment, started again whatever ends it."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.bench import LEASE_S, Bench
from tests.servers.process import wait_gone
from tests.waiting import wait_until
from voicejobs import queries

DRIVER = """#!/bin/sh
case "$1" in
  -L) ;;
  --query-gpu*) printf '0, GPU-aaaa, Fake Card, 81920, Disabled\\n1, GPU-bbbb, Fake Card, 81920, Disabled\\n' ;;
esac
"""

pytestmark = pytest.mark.timeout(300)


@dataclass
class Launched:
    """Start a launcher on a machine whose driver tells of two cards."""

    bench: Bench
    folder: Path
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start(self, *words: str, **environment: str) -> "subprocess.Popen[bytes]":
        """Start it; its log is the bench's."""
        tool = self.folder / "bin" / "nvidia-smi"
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(DRIVER)
        tool.chmod(0o755)
        settings = {
            "VOICEJOBS_BROKER_URL": self.bench.broker_url,
            "VOICEJOBS_DATABASE_URL": self.bench.database.url,
            "VOICEJOBS_STATE_DIR": str(self.folder / "state"),
            "VOICEJOBS_MODELS_DIR": str(self.folder / "models"),
            "VOICEJOBS_LEASE_S": str(LEASE_S),
            "VOICEJOBS_ENGINE_PROCESSES": "1",
            **{f"VOICEJOBS_{name.upper()}": value for name, value in self.bench.settings.items()},
        }
        command = [sys.executable, "-m", "voicejobs_workers.launcher", "--ready-file", str(self.ready_file), *words]
        with (self.folder / "worker.log").open("ab") as log:
            path = f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
            env = {**os.environ, **settings, "PATH": path, **environment}
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=env))
        return self.processes[-1]

    @property
    def ready_file(self) -> Path:
        """Return the file that tells that all workers take work."""
        return self.folder / "ready"

    def wait_ready(self) -> None:
        """Wait until all workers take work."""
        wait_until(self.ready_file.exists, 40, what=lambda: self.bench.log[-4000:])

    def workers(self) -> dict[str, psutil.Process]:
        """Return the living workers by the name of their slot."""
        found = {}
        for process in psutil.Process(self.processes[-1].pid).children():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if "--slot" in words:
                    found[words[words.index("--slot") + 1].partition('"name":"')[2].partition('"')[0]] = process
        return found

    def close(self) -> None:
        """End what is left."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
                process.wait(30)


@pytest.fixture
def launched(bench: Bench, tmp_path: Path) -> Iterator[Launched]:
    """Return a launcher to start."""
    launched = Launched(bench, tmp_path)
    yield launched
    launched.close()


def where(bench: Bench, job_id: str) -> dict[str, tuple[str, str]]:
    """Return worker and device of each step of a job."""
    return {
        step["node"]: (step["worker"], step["device"]) for step in queries.show_job(bench.database, job_id)["steps"]
    }


def test_each_device_has_a_worker_in_its_own_environment(launched: Launched) -> None:
    """Workers and engines see their card alone; cards recognise, the CPU does the rest; one restarted is the same."""
    bench = launched.bench
    bench.settings.update(fake_cost_base_s="0.3")  # so that no worker can take all
    process = launched.start("--devices", "cuda:0,cuda:1,cpu", CUDA_MPS_PIPE_DIRECTORY="/run/no-mps")
    launched.wait_ready()
    assert "CUDA MPS is set up" in bench.log
    before = launched.workers()
    assert {one.environ()["CUDA_MPS_PIPE_DIRECTORY"] for one in before.values()} == {"/run/no-mps"}
    assert {name: one.environ()["CUDA_VISIBLE_DEVICES"] for name, one in before.items()} == {
        "cuda0": "GPU-aaaa", "cuda1": "GPU-bbbb", "cpu": "",
    }  # fmt: skip
    ids = bench.submit(*(bench.recording(f"{number}.wav") for number in range(12)))
    before["cuda0"].kill()
    bench.wait_ended(*ids)
    wait_until(lambda: launched.workers().get("cuda0", before["cuda0"]) != before["cuda0"], 40)
    launched.wait_ready()
    for turn in range(5):  # a worker that is quicker than the other may take all of one turn
        more = bench.submit(*(bench.recording(f"{turn}-{number}.wav") for number in range(12)))
        bench.wait_ended(*more)
        ids += more
        if len({where(bench, job_id)["recognise"] for job_id in more}) > 1:
            break
    after = launched.workers()
    assert after["cuda0"].pid != before["cuda0"].pid
    assert after["cuda0"].environ()["CUDA_VISIBLE_DEVICES"] == "GPU-aaaa"
    assert after["cpu"].pid == before["cpu"].pid
    told = [where(bench, job_id) for job_id in ids]
    assert {steps["prepare"] for steps in told} == {steps["deliver"] for steps in told} == {("cpu", "cpu")}
    assert {steps["recognise"] for steps in told} == {("cuda0", "cuda:0"), ("cuda1", "cuda:1")}
    for name in ("cuda0", "cuda1"):
        engines = [one for one in after[name].children(recursive=True) if "voicejobs.hosting.child" in one.cmdline()]
        visible = {one.environ()["CUDA_VISIBLE_DEVICES"] for one in engines}
        assert visible <= {after[name].environ()["CUDA_VISIBLE_DEVICES"]}
    process.terminate()
    assert process.wait(20) == 0
    wait_gone(list(after.values()), 10)
    assert not launched.ready_file.exists()


def test_workers_follow_each_other_without_a_gap(launched: Launched) -> None:
    """On SIGHUP the workers are started anew one at a time, under load, and no attempt is burnt."""
    bench = launched.bench
    bench.settings.update(fake_cost_base_s="0.2")
    process = launched.start("--devices", "cuda:0,cuda:1,cpu")
    launched.wait_ready()
    before = launched.workers()
    ids = bench.submit(*(bench.recording(f"{number}.wav") for number in range(40)))
    process.send_signal(signal.SIGHUP)
    gone = [wait_until(lambda: set(before) - _same(before, launched.workers()), 40)]
    assert len(gone[0]) == 1
    wait_until(lambda: not _same(before, launched.workers()), 60, what=lambda: bench.log[-4000:])
    assert set(bench.wait_ended(*ids).values()) == {"succeeded"}
    outcomes = {outcome for one in ids for story in bench.stories(one).values() for outcome in story}
    assert outcomes <= {"succeeded", "released"}
    launched.wait_ready()


def _same(before: dict[str, psutil.Process], after: dict[str, psutil.Process]) -> set[str]:
    """Return the slots whose worker is still the same."""
    return {name for name, one in before.items() if name in after and after[name].pid == one.pid}


def test_a_worker_that_takes_too_much_memory_is_started_anew(launched: Launched) -> None:
    """Above the limit a worker gives its leases back and ends; the next one goes on with its jobs."""
    bench = launched.bench
    # Left to itself it would begin nothing so near its limit.
    launched.start("--devices", "cpu", "--max-memory-mb", "1", VOICEJOBS_MAX_MEMORY_BYTES=str(10**12))
    launched.wait_ready()
    first = launched.workers()["cpu"].pid
    wait_until(lambda: {one.pid for one in launched.workers().values()} - {first}, 40)
    (job_id,) = bench.submit(bench.recording("one.wav"))
    assert bench.wait_ended(job_id, timeout_s=90)[job_id] == "succeeded"
    assert "memory_bytes" in bench.log


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--devices", "cuda:7"], 7, "device_refused"),
        (["--devices", "cuda:0@0.9,cuda:0@0.9"], 7, "device_refused"),
        (["--devices", "card"], 2, "bad_option"),
    ],
)
def test_what_cannot_be_placed_ends_at_once(launched: Launched, words: list[str], code: int, told: str) -> None:
    """The exit code tells a refusal from a usage error, and the message what to do."""
    assert launched.start(*words).wait(30) == code
    assert told in launched.bench.log


def test_a_worker_that_never_starts_ends_the_launcher(launched: Launched) -> None:
    """A worker that dies at once, time and again, is given up with the code of a temporary failure."""
    process = launched.start("--devices", "cpu", VOICEJOBS_DATABASE_URL="mysql://nowhere/none")
    assert process.wait(120) == 5
    assert "in a row" in launched.bench.log
