"""A bench for real workers: recordings, jobs, worker processes, and what the rows say in the end."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import psutil
import pytest
import soundfile as sf
from celery import Celery
from numpy.typing import NDArray
from sqlalchemy import select

from tests.rows import job, opened, steps, story
from tests.waiting import wait_until
from voicejobs import queries
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store.database import Database
from voicejobs.store.schema import results
from voicejobs.store.states import FINAL_JOB
from voicejobs.submit import InputFile, Submission
from voicejobs.tasks.app import configure

ROOT = Path(__file__).parents[1]
RATE_HZ = 16_000
LEASE_S = 3.0


def read_speech() -> NDArray[np.int16]:
    """Return seven seconds of speech at 16 kHz."""
    samples, rate = sf.read(ROOT / "examples" / "harbor.flac", dtype="int16")
    places = np.arange(0, len(samples) - 1, rate / RATE_HZ)
    return np.asarray(np.interp(places, np.arange(len(samples)), samples), dtype=np.int16)


@pytest.fixture(scope="session")
def speech() -> NDArray[np.int16]:
    """Return seven seconds of speech at 16 kHz, read once."""
    return read_speech()


@dataclass
class Bench:
    """Hold one store and broker, the jobs of a test, and its workers."""

    database: Database
    broker_url: str
    folder: Path
    speech: NDArray[np.int16]
    settings: dict[str, str] = field(default_factory=dict)
    workers: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def recording(self, name: str, seconds: float = 3.0) -> Path:
        """Write a WAV of speech; each name has other samples."""
        samples = np.resize(self.speech, int(seconds * RATE_HZ))
        samples[0] = crc32(name.encode()) % 10_000
        path = self.folder / "in" / name
        path.parent.mkdir(exist_ok=True)
        sf.write(path, samples, RATE_HZ, subtype="PCM_16", format="WAV")
        return path

    def stereo_recording(self, name: str, channels: int) -> Path:
        """Write a WAV with speech of another loudness in each channel."""
        path = self.recording(name)
        sides = [self.speech // (number + 1) for number in range(channels)]
        sf.write(path, np.stack(sides, axis=1), RATE_HZ, subtype="PCM_16")
        return path

    def copies(self, path: Path, count: int, folder: str) -> list[Path]:
        """Return as many further names of a recording, in a folder of this name."""
        place = self.folder / folder
        place.mkdir(exist_ok=True)
        names = [place / f"{number:06}.wav" for number in range(count)]
        for name in names:
            name.hardlink_to(path)
        return names

    def submit(
        self, *paths: Path, channels: str = "mix", engine: str = "fake", out: str = "out", force: bool = False
    ) -> list[str]:
        """Submit files for an engine without a model and return the ids of their jobs."""
        options = TRANSCRIBE.options({"prepare": {"channels": channels}, "recognise": {"engine": engine, "model": ""}})
        submission = Submission(self.database, TRANSCRIBE, options, force=force)
        accepted = submission.add(
            [InputFile(str(path), path.name, str(self.folder / out / path.stem)) for path in paths]
        )
        submission.seal()
        return [one.job_id for one in accepted]

    def variables(self, **settings: object) -> dict[str, str]:
        """Return the settings of this bench as variables of an environment."""
        ours = {
            "broker_url": self.broker_url,
            "database_url": self.database.url,
            "state_dir": self.folder / "state",
            "models_dir": self.folder / "models",
            "lease_s": LEASE_S,
            "engine_processes": 1,
            **self.settings,
            **settings,
        }
        return {f"VOICEJOBS_{name.upper()}": str(value) for name, value in ours.items()}

    def start_worker(
        self, *words: str, faults: Mapping[str, str] | None = None, **settings: object
    ) -> "subprocess.Popen[bytes]":
        """Start a worker as deployments do; its logs are in `worker.log`.

        Args:
            words: further arguments of its command line.
            faults: further variables of its environment.
            settings: settings of this worker alone.
        """
        environment = {**os.environ, **self.variables(**settings), **(faults or {})}
        with (self.folder / "worker.log").open("ab") as log:
            command = [sys.executable, "-m", "voicejobs_workers", "--die-with-parent", *words]
            worker = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        self.workers.append(worker)
        return worker

    def stop(self, worker: "subprocess.Popen[bytes]", how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a worker and wait for its end."""
        worker.send_signal(how)
        worker.wait(30)

    def close(self) -> None:
        """End all workers and their children."""
        families = [process for worker in self.workers for process in family(worker.pid)]
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()
        for process in families:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    @property
    def log(self) -> str:
        """Return what the workers have logged."""
        return (self.folder / "worker.log").read_text("utf-8", "replace")

    def wait_ended(self, *job_ids: str, timeout_s: float = 40.0) -> dict[str, str]:
        """Wait until jobs have ended and return their states."""

        def states() -> dict[str, str]:
            return {job_id: job(self.database, job_id).state for job_id in job_ids}

        wait_until(
            lambda: set(states().values()) <= set(FINAL_JOB),
            timeout_s,
            what=lambda: f"{[queries.show_job(self.database, one) for one in job_ids]}\n{self.log[-5000:]}",
        )
        return states()

    def wait_running(self, job_id: str, *, worker: "subprocess.Popen[bytes] | None" = None) -> Any:
        """Wait until a job's `recognise` runs, in this worker where one is named, and return its row."""
        owner = f"/{worker.pid}/" if worker else ""

        def running() -> Any:
            found = steps(self.database, job_id).get("recognise")
            return found if found is not None and found.state == "running" and owner in found.owner else None

        return wait_until(running, 30.0, what=lambda: self.log[-5000:])

    def stories(self, job_id: str) -> dict[str, list[str]]:
        """Return the outcomes of all attempts, by step run."""
        return {
            name: [outcome for _, outcome in story(self.database, row.id)]
            for name, row in steps(self.database, job_id).items()
        }

    def text(self, job_id: str) -> str:
        """Return the transcript of a job."""
        with self.database.read() as connection:
            return str(connection.execute(select(results.c.text).where(results.c.job_id == job_id)).scalar_one())


def family(pid: int) -> list[psutil.Process]:
    """Return the living children of a process, down to the last."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench(tmp_path: Path, speech: NDArray[np.int16]) -> Iterator[MakeBench]:
    """Return a maker of benches that are cleared away in the end."""
    with_databases = []

    def make(database_url: str, broker_url: str, **settings: object) -> Bench:
        context = opened(database_url)
        given = {name: str(value) for name, value in settings.items()}
        bench = Bench(context.__enter__(), broker_url, tmp_path, speech, given)
        with_databases.append((context, bench))
        return bench

    yield make
    for context, bench in with_databases:
        try:
            bench.close()
        finally:
            context.__exit__(None, None, None)


@pytest.fixture
def bench(make_bench: MakeBench, sqlite_url: str, broker_url: str) -> Bench:
    """Return a bench on SQLite and the Valkey of this xdist worker."""
    return make_bench(sqlite_url, broker_url)


@pytest.fixture
def either_bench(make_bench: MakeBench, store_url: str, broker_url: str) -> Bench:
    """Return a bench on SQLite and on Postgres in turn."""
    return make_bench(store_url, broker_url)


@pytest.fixture
def producer(broker_url: str) -> Iterator[Celery]:
    """Return an application that only sends."""
    app = Celery("producer", set_as_current=False)
    configure(app, broker_url)
    yield app
    app.close()
