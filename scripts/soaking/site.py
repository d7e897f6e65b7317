"""Servers and supervised workers of a soak: all are started by one thread, since they end with the one that did."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.servers.postgres import Postgres
from tests.servers.valkey import Valkey
from voicejobs.settings import inherited_environment
from voicejobs.store import migrate
from voicejobs.store.database import Database

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "tests" / "faults" / "plugin"
LEASE_S = 5.0
WORKERS = 2
MAX_ATTEMPTS = 5
RESTART_AFTER_S = 0.5


@dataclass
class Worker:
    """Hold one place for a worker: whoever dies there is replaced."""

    name: str
    process: "subprocess.Popen[bytes]"
    not_before: float = 0.0
    starts: int = 1


@dataclass
class Site:
    """Hold what voicejobs runs on."""

    folder: Path
    valkey: Valkey = field(default_factory=Valkey)
    postgres: Postgres = field(default_factory=Postgres)
    workers: list[Worker] = field(default_factory=list)
    database: Database = field(init=False)

    def start(self) -> None:
        """Start the servers and the workers."""
        self.valkey.start()
        self.postgres.start()
        self.postgres.create_database("soak")
        self.database = Database(self.postgres.url("soak"), pool_size=2)
        migrate.upgrade(self.database)
        self.workers = [Worker(f"worker-{number}", self._start_worker()) for number in range(WORKERS)]

    def _start_worker(self, *words: str) -> "subprocess.Popen[bytes]":
        """Start a worker as a deployment does."""
        settings = {
            "broker_url": self.valkey.broker_url(1),
            "database_url": self.postgres.url("soak"),
            "state_dir": self.folder / "state",
            "models_dir": self.folder / "models",
            "lease_s": LEASE_S,
            "engine_processes": 1,
            "max_attempts": MAX_ATTEMPTS,
            "fake_cost_base_s": 0.05,
            "fake_cost_window_s": 0.1,
        }
        environment = inherited_environment()
        paths = [str(PLUGIN), *filter(None, [environment.get("PYTHONPATH", "")])]
        environment |= {f"VOICEJOBS_{name.upper()}": str(value) for name, value in settings.items()}
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        command = [sys.executable, "-m", "voicejobs_workers", "--die-with-parent", *words]
        with (self.folder / "worker.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=ROOT, start_new_session=True)

    def supervise(self) -> None:
        """Replace workers that have ended, as a supervisor would."""
        now = time.monotonic()
        for worker in self.workers:
            code = worker.process.poll()
            if code is None:
                worker.not_before = now + RESTART_AFTER_S
            elif now >= worker.not_before:
                worker.process = self._start_worker(*([] if code == 0 else ["--restart"]))
                worker.starts += 1

    def processes(self) -> list[psutil.Process]:
        """Return every process of the workers, in the order of their start."""
        found: list[psutil.Process] = []
        for worker in self.workers:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(worker.process.pid)
                found += [process, *process.children(recursive=True)]
        return sorted(found, key=lambda process: (process.create_time(), process.pid))

    def calm_down(self) -> None:
        """Let everything that stands still or is down run again."""
        for worker in self.workers:
            with suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGCONT)
        for server in (self.valkey, self.postgres):
            if not server.is_started:
                server.start()

    def close(self) -> None:
        """End everything."""
        family = self.processes()
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if hasattr(self, "database"):
            self.database.close()
        self.valkey.close()
        self.postgres.close()
