"""The checks themselves: `python -m gpu_checks.checks NAME` runs one and prints what it found as a line of JSON."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import soundfile as sf
from gpu_checks.work import WorkError, two_workers
from numpy.typing import NDArray

from voicejobs.engines.base import EngineFacts, EngineSpec, RecogniseOptions, Recogniser, VoiceActivityDetector
from voicejobs.errors import OutOfMemory, VoicejobsError
from voicejobs.hosting.host import EngineHost
from voicejobs.hosting.share import hold_torch_to_share
from voicejobs.models.pull import ensure
from voicejobs.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
CARD = "cuda:0"
"""The runner shows one card alone."""
RATE_HZ = 16_000
FREED_WITHIN_S = 15.0
NOISE_BYTES = 64 << 20
"""What the driver's figures move by themselves."""
MEASURE_S = 3.0


class FailedError(Exception):
    """Say what is not as it should be."""


@contextlib.contextmanager
def hosted() -> Iterator[EngineHost]:
    """Return a host of engine processes, ended with the block."""
    with TemporaryDirectory(prefix="vj-gpu-") as name:
        settings = Settings.from_env()
        with EngineHost(Settings(Path(name), settings.models_dir, engine_processes=1)) as host:
            yield host


def detector(device: str = "", fraction: float = 0.0) -> EngineSpec:
    """Return the engine on torch, on the card where no device is named."""
    files = ensure("silero-vad", Settings.from_env())
    return EngineSpec("silero_torch", files.name, str(files.dir), device or CARD, memory_fraction=fraction)


def whisper(model: str, device: str, threads: int = 1) -> EngineSpec:
    """Return a recogniser."""
    files = ensure(model, Settings.from_env())
    return EngineSpec("whisper", files.name, str(files.dir), device, threads=threads)


def speech() -> NDArray[np.int16]:
    """Return seven seconds of speech at 16 kHz."""
    samples, rate = sf.read(ROOT / "examples" / "harbor.flac", dtype="int16")
    places = np.arange(0, len(samples) - 1, rate / RATE_HZ)
    return np.asarray(np.interp(places, np.arange(len(samples)), samples), dtype=np.int16)


def free_bytes() -> int:
    """Return the free memory of the card, whoever holds the rest."""
    import torch

    return int(torch.cuda.mem_get_info()[0])


def share() -> dict[str, Any]:
    """Hold torch to a tenth of the card in this process, and an engine process to less than its model needs."""
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    facts = EngineFacts("vad", needs_model=True, uses_torch=True)
    hold_torch_to_share(EngineSpec("check", device=CARD, memory_fraction=0.1), facts)
    inside = torch.empty(total // 20, dtype=torch.uint8, device=CARD)
    try:
        torch.empty(total // 5, dtype=torch.uint8, device=CARD)
    except torch.cuda.OutOfMemoryError as error:
        beyond = str(error)
    else:
        raise FailedError("a fifth of the card was allocated with a fraction of 0.1")
    del inside
    torch.ones(1024, device=CARD).sum().item()  # the process goes on
    with hosted() as host:
        second = np.zeros(RATE_HZ, np.int16)
        try:
            host.vad(detector(fraction=1e-6)).probabilities(second, b"")
        except OutOfMemory as error:
            engine = error.message
        else:
            raise FailedError("an engine process loaded its model beyond its fraction")
        found, _ = host.vad(detector(fraction=0.45)).probabilities(second, b"")
    return {"total_bytes": total, "beyond": beyond, "engine": engine, "frames_within": int(found.size)}


def fork() -> dict[str, Any]:
    """Use CUDA, fork, and use it again: torch refuses. Engine processes are started by exec, and work."""
    import torch

    torch.ones(1, device=CARD)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            torch.ones(1, device=CARD)
            told = ""
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent wants to know
            told = f"{type(error).__name__}: {error}"
        os.write(writer, told.encode()[:2000])
        os._exit(0)
    os.close(writer)
    _, status = os.waitpid(pid, 0)
    told = os.read(reader, 2000).decode()
    if not told or status:
        raise FailedError(f"CUDA worked in a forked child, or the child crashed (status {status}): {told!r}")
    with hosted() as host:
        found, _ = host.vad(detector()).probabilities(np.zeros(RATE_HZ, np.int16), b"")
    return {"refusal": told.splitlines()[0], "frames_of_an_engine": int(found.size)}


def kill() -> dict[str, Any]:
    """Kill an engine process that holds memory of the card: the memory comes back, and the next call has a new one."""
    import torch

    torch.ones(1, device=CARD)  # our own context, before anything is compared
    before = free_bytes()
    with hosted() as host:
        engine = host.vad(detector())
        second = np.zeros(RATE_HZ, np.int16)
        engine.probabilities(second, b"")
        (pid,) = host.pids()
        held = before - free_bytes()
        if held < NOISE_BYTES:
            raise FailedError(f"an engine on the card holds {held} bytes: it cannot be there")
        os.kill(pid, 9)
        began = time.monotonic()
        while before - free_bytes() > NOISE_BYTES:
            if time.monotonic() - began > FREED_WITHIN_S:
                raise FailedError(f"{before - free_bytes()} of {held} bytes are still taken {FREED_WITHIN_S} s later")
            time.sleep(0.05)
        freed_s = time.monotonic() - began
        engine.probabilities(second, b"")
        if host.pids() in ([], [pid]):
            raise FailedError("no new engine process has taken over")
    return {"held_bytes": held, "freed_after_s": round(freed_s, 2)}


def workers() -> dict[str, Any]:
    """Run two workers at 0.45 of the card each, with real jobs."""
    try:
        with hosted() as host:
            host.recogniser(whisper("tiny.en", CARD)).recognise([speech()], RecogniseOptions())
    except VoicejobsError as error:
        return {**two_workers(speech(), "silero_torch"), "why_not_whisper": error.message}
    return two_workers(speech(), "whisper")


def throughput() -> dict[str, Any]:
    """Measure seconds of audio a second on the CPU and on the card; a card on which whisper fails is a failure."""
    cores = len(os.sched_getaffinity(0))
    samples = speech()
    found: dict[str, Any] = {"cores": cores}
    problems = []
    for model in ("tiny.en", "base"):
        for device, threads in ((CARD, 1), ("cpu", cores)):
            try:
                with hosted() as host:
                    recogniser = host.recogniser(whisper(model, device, threads))
                    found[f"{model} {device}"] = _rate(partial(_recognise, recogniser, samples))
            except VoicejobsError as error:
                problems.append(f"{model} {device}: {error.message}")
    minute = np.resize(samples, 60 * RATE_HZ)
    for device in (CARD, "cpu"):
        with hosted() as host:
            found[f"silero_torch {device}"] = _rate(partial(_hear, host.vad(detector(device)), minute))
    if problems:
        raise FailedError(f"{'; '.join(problems)}; the others, in times of real time: {found}")
    return found


def _recognise(recogniser: Recogniser, samples: NDArray[np.int16]) -> float:
    """Recognise a window and return its seconds."""
    recogniser.recognise([samples], RecogniseOptions(language="en"))
    return samples.size / RATE_HZ


def _hear(engine: VoiceActivityDetector, samples: NDArray[np.int16]) -> float:
    """Tell speech in a recording and return its seconds."""
    engine.probabilities(samples, b"")
    return samples.size / RATE_HZ


def _rate(call: Callable[[], float]) -> float:
    """Return the seconds of audio of a call for each second that it takes, the first call left out."""
    call()
    began, audio_s = time.monotonic(), 0.0
    while time.monotonic() - began < MEASURE_S:
        audio_s += call()
    return round(audio_s / (time.monotonic() - began), 1)


CHECKS: dict[str, Callable[[], dict[str, Any]]] = {
    "share": share,
    "fork": fork,
    "kill": kill,
    "workers": workers,
    "throughput": throughput,
}


def _demand_card() -> None:
    """Fail where torch cannot use the card."""
    import torch

    if not torch.cuda.is_available():
        raise FailedError(f"torch {torch.__version__} cannot use the card: a CPU build, or too new for the driver")


def main(name: str) -> int:
    """Run one check and print what it found."""
    try:
        _demand_card()
        detail: Any = CHECKS[name]()
        code = 0
    except (FailedError, WorkError, VoicejobsError, ImportError) as error:
        detail, code = str(error), 1
    print(json.dumps(detail), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
