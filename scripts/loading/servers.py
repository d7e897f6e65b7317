"""A voice engine of its own for a load test, with the engine `fake` or a real model, on a free port of loopback."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from voicejobs.settings import Settings, inherited_environment

READY_S = 60.0
STOP_S = 20.0


@dataclass(frozen=True)
class ServerPlan:
    """Say which server to start.

    Args:
        batch_size: windows of one engine call; 1: no batching.
        base_s: seconds of one call of the engine `fake`, which sleeps.
        window_s: seconds that each window adds.
        processes: engine processes; 0: as many as cores.
        model: of whisper; empty takes the engine `fake`.
        extra: further options of `voicejobs serve engine`.
    """

    batch_size: int = 8
    base_s: float = 0.03
    window_s: float = 0.004
    processes: int = 1
    model: str = ""
    extra: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Running:
    """Hold a server that takes calls."""

    pid: int
    address: str


@contextmanager
def serving(plan: ServerPlan) -> Iterator[Running]:
    """Run a server while a block runs.

    Raises:
        RuntimeError: it did not start; the message ends with its log.
    """
    with tempfile.TemporaryDirectory(prefix="vj-load-") as name:
        folder = Path(name)
        ready, log = folder / "ready", folder / "log"
        command = [str(Path(sys.executable).with_name("voicejobs")), "serve", "engine", "--address", "127.0.0.1:0"]
        engine = ["--engine", "whisper", "--model", plan.model] if plan.model else ["--engine", "fake"]
        if plan.batch_size:
            engine += ["--batch-size", str(plan.batch_size)]
        environment = {
            **inherited_environment(),
            "VOICEJOBS_STATE_DIR": str(folder / "state"),
            "VOICEJOBS_MODELS_DIR": str(Settings.from_env().models_dir),
            "VOICEJOBS_ENGINE_PROCESSES": str(plan.processes),
            "VOICEJOBS_FAKE_COST_BASE_S": str(plan.base_s),
            "VOICEJOBS_FAKE_COST_WINDOW_S": str(plan.window_s),
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, *engine, *plan.extra, "--ready-file", str(ready)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        try:
            yield Running(process.pid, _address(process, ready, log))
        finally:
            _stop(process)


def _address(process: "subprocess.Popen[bytes]", ready: Path, log: Path) -> str:
    """Wait until the server takes calls, and return where."""
    deadline = time.monotonic() + READY_S
    while not ready.exists() or not ready.read_text().endswith("\n"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.05)
    return ready.read_text().strip()


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the server in order, and by force where it does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
