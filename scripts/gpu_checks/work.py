"""Two workers on one card, with servers of their own and real jobs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import soundfile as sf
from numpy.typing import NDArray
from voicejobs_workers.devices import Placement
from voicejobs_workers.launcher import worker_environment
from voicejobs_workers.slots import Slot, plan_slots

from voicejobs import queries
from voicejobs.accelerators import Device, find_devices
from voicejobs.embedded import valkey
from voicejobs.messages import QUEUE_CLASSES
from voicejobs.models.pull import ensure
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.settings import Settings, inherited_environment
from voicejobs.store import migrate
from voicejobs.store.database import Database
from voicejobs.store.states import FINAL_JOB, JobState
from voicejobs.submit import InputFile, Submission

ON_TORCH = "silero_torch"
SHARE = 0.45
JOBS = 60
"""More than one worker has threads for, so that both get some."""
ROUNDS = 3
WAIT_S = 60.0
RATE_HZ = 16_000


class WorkError(Exception):
    """Say what went wrong with the jobs or the workers."""


def slots_of(settings: Settings, device: Device, engine: str) -> list[Slot]:
    """Return two slots on one card, and that of the CPU where the card only recognises.

    With the detector on torch the card does what the CPU does otherwise: then its workers serve all queues.
    """
    slots = plan_slots(settings, [Placement(device, SHARE), Placement(device, SHARE)])
    if engine == ON_TORCH:
        return [replace(slot, queues=QUEUE_CLASSES) for slot in slots]
    return [*slots, *(slot for slot in plan_slots(settings, _beside(device)) if slot.device == "cpu")]


def _beside(device: Device) -> list[Placement]:
    """Return placements that make a slot of the CPU beside a card."""
    return [Placement(device, SHARE), Placement(Device("cpu", "", "CPU", 0))]


def options_of(settings: Settings, engine: str) -> dict[str, dict[str, Any]]:
    """Return the options of the jobs: whisper, or the detector on torch; `fake` proves these workers without a card."""
    if engine == "whisper":
        model = ensure("tiny.en", settings)
        return TRANSCRIBE.options(
            {"recognise": {"engine": "whisper", "model": model.name, "model_sha256": model.sha256, "language": "en"}}
        )
    fake = {"engine": "fake", "model": ""}
    if engine == "fake":
        return TRANSCRIBE.options({"recognise": fake})
    detector = {"vad_engine": engine, "vad_model_sha256": ensure("silero-vad", settings).sha256}
    return TRANSCRIBE.options({"prepare": detector, "recognise": fake})


def two_workers(speech: NDArray[np.int16], engine: str) -> dict[str, Any]:
    """Let two workers share the first card until each has done a job; return what `job show` says of one of each.

    Raises:
        WorkError: a job failed, or one worker never got one.
    """
    node = "prepare" if engine == ON_TORCH else "recognise"
    with TemporaryDirectory(prefix="vj-gpu-") as name:
        folder = Path(name)
        with _site(folder, engine) as (settings, database):
            done: list[dict[str, Any]] = []
            for number in range(ROUNDS):
                done += _round(folder / f"round{number}", settings, database, speech, engine)
                by_worker = {job["worker"]: job for job in (_place(job, node) for job in done)}
                if len(by_worker) > 1:
                    shown = {worker: _shown(settings, job["id"], node) for worker, job in by_worker.items()}
                    return {"step": node, "jobs": len(done), "job_show": shown}
    raise WorkError(f"{len(done)} jobs, and all went to {sorted(by_worker)}")


def _place(job: dict[str, Any], node: str) -> dict[str, Any]:
    """Return id, worker and device of a step of a job."""
    (step,) = [step for step in job["steps"] if step["node"] == node]
    return {"id": job["id"], "worker": step["worker"], "device": step["device"]}


def _shown(settings: Settings, job_id: str, node: str) -> dict[str, Any]:
    """Return what the command line says of a job."""
    told = subprocess.run(
        [sys.executable, "-P", "-m", "voicejobs.cli.main", "job", "show", job_id, "--json"],
        env={**inherited_environment(), **settings.to_env()},
        capture_output=True,
        check=True,
    ).stdout
    return _place(json.loads(told)["job"], node)


def _round(
    folder: Path, settings: Settings, database: Database, speech: NDArray[np.int16], engine: str
) -> list[dict[str, Any]]:
    """Submit recordings and wait for them; return the story of each."""
    folder.mkdir()
    files = []
    for number in range(JOBS):
        path = folder / f"{number}.wav"
        samples = speech.copy()
        samples[0] = number  # another file, and so another job
        sf.write(path, samples, RATE_HZ, subtype="PCM_16")
        files.append(InputFile(str(path), path.name, str(folder / "out" / path.stem)))
    submission = Submission(database, TRANSCRIBE, options_of(settings, engine), force=True)
    ids = [one.job_id for one in submission.add(files)]
    submission.seal()
    deadline = time.monotonic() + WAIT_S
    while True:
        told = [queries.show_job(database, one) for one in ids]
        if all(job["state"] in FINAL_JOB for job in told):
            break
        if time.monotonic() > deadline:
            raise WorkError(f"not all jobs have ended within {WAIT_S} s: {[job['state'] for job in told]}")
        time.sleep(0.1)
    failed = [job["error"] for job in told if job["state"] != JobState.SUCCEEDED]
    if failed:
        raise WorkError(f"{len(failed)} of {len(told)} jobs failed, the first with {failed[0]}")
    return told


@contextmanager
def _site(folder: Path, engine: str) -> Iterator[tuple[Settings, Database]]:
    """Start a private Valkey and the workers; end them with the block."""
    socket = folder / "valkey.sock"
    settings = replace(
        Settings.from_env(),
        state_dir=folder / "state",
        broker_url=valkey.url(socket),
        database_url=f"sqlite:///{folder / 'jobs.db'}",
        engine_processes=1,
    )
    processes = [subprocess.Popen(valkey.command(valkey.find_server(), socket), stdout=sys.stderr)]
    database = Database(settings.database_url)
    try:
        valkey.wait_until_ready(processes[0], socket)
        migrate.upgrade(database)
        processes += _start(settings, slots_of(settings, find_devices()[0], engine))
        yield settings, database
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(processes):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        database.close()


def _start(settings: Settings, slots: Sequence[Slot]) -> "list[subprocess.Popen[bytes]]":
    """Start a worker for each slot, as the launcher does."""
    settings.state_dir.mkdir(exist_ok=True)
    return [
        subprocess.Popen(
            [sys.executable, "-P", "-m", "voicejobs_workers", "--die-with-parent", "--slot", slot.dump()],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            env={**worker_environment(settings, slot), "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        )
        for slot in slots
    ]
