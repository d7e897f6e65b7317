"""Run the checks of a card one by one, each in a child process with a limit, and say in JSON how they ended."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpu_checks.checkout import python_path

from voicejobs.accelerators import Device, find_devices, sharing_service

ROOT = Path(__file__).resolve().parents[2]
TOTAL_S = 290.0
SKIPPED = "skipped: no CUDA device"
EXIT_FAILED = 1
EXIT_NO_DEVICE = 3
ENDING_CHARACTERS = 1500
"""How much of what a failed check wrote is shown."""


@dataclass(frozen=True, slots=True)
class Check:
    """Name a check and the seconds that it may take."""

    name: str
    limit_s: float


CHECKS = (Check("share", 60), Check("fork", 40), Check("kill", 50), Check("workers", 80), Check("throughput", 60))


@dataclass(frozen=True, slots=True)
class Result:
    """Say how a check ended: `ok` is None where it was skipped, `detail` figures or the reason."""

    name: str
    ok: bool | None
    seconds: float
    detail: Any


Command = Callable[[str], Sequence[str]]
"""Return the command line of a check; its last line of output is what it found, as JSON."""


def command_of(name: str) -> Sequence[str]:
    """Return the command line of one of our checks."""
    return [sys.executable, "-P", "-m", "gpu_checks.checks", name]


def run_all(checks: Sequence[Check], devices: Sequence[Device], command: Command = command_of) -> list[Result]:
    """Run the checks in turn on the first device; without one all are skipped."""
    if not devices:
        return [Result(check.name, None, 0.0, SKIPPED) for check in checks]
    end = time.monotonic() + TOTAL_S
    with python_path(ROOT) as path:
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "CUDA_VISIBLE_DEVICES": devices[0].uuid,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        return [
            run_one(check.name, command(check.name), min(check.limit_s, max(0.0, end - time.monotonic())), environment)
            for check in checks
        ]


def run_one(name: str, words: Sequence[str], limit_s: float, environment: dict[str, str]) -> Result:
    """Run one check in a process group of its own, which is killed whole when the check or its time is over."""
    began = time.monotonic()
    if limit_s <= 0:
        return Result(name, ok=False, seconds=0.0, detail=f"no time was left of {TOTAL_S:.0f} s")
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=log, env=environment, start_new_session=True
        )
        try:
            code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        seconds = round(time.monotonic() - began, 1)
        out.seek(0)
        log.seek(0)
        found = out.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        ending = log.read().decode("utf-8", "replace").strip()[-ENDING_CHARACTERS:]
    if code is None:
        return Result(name, ok=False, seconds=seconds, detail=f"took more than {limit_s:.0f} s\n{ending}".strip())
    try:
        detail = json.loads(found)
    except ValueError:
        return Result(name, ok=False, seconds=seconds, detail=f"ended with {code}\n{ending}".strip())
    return Result(name, ok=code == 0, seconds=seconds, detail=detail)


def main(names: Sequence[str]) -> int:
    """Run the named checks, print the document, and return the exit status."""
    began = time.monotonic()
    devices = find_devices()
    results = run_all([check for check in CHECKS if check.name in names], devices)
    document = {
        "v": 1,
        "devices": [asdict(device) for device in devices],
        "sharing_service": sharing_service(os.environ),
        "checks": [asdict(result) for result in results],
        "ok": all(result.ok for result in results),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(document, indent=2))
    if not devices:
        return EXIT_NO_DEVICE
    return 0 if document["ok"] else EXIT_FAILED
