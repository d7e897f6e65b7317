"""`voicejobs serve api` as a process of its own, and keys for those who call it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import psutil

from tests.servers.process import die_with_parent, wait_ready
from voicejobs.store import keys, migrate
from voicejobs.store.database import Database
from voicejobs.store.keys import NewKey

START_S = 30.0


class ApiServer:
    """Run the service on a free port of this machine, with a database of its own and no workers unless asked.

    Args:
        folder: where state, log and ready file go; made if it is not there.
        broker_url: the broker; empty starts an embedded stack with workers.
        words: further options of the command.
        settings: further settings, such as `api_concurrency=2`.
    """

    def __init__(self, folder: Path, broker_url: str, *words: str, **settings: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log_path = folder / "api.log"
        self._ready = folder / "ready"
        self._words = words
        self._settings = {
            "state_dir": folder / "state",
            "models_dir": folder / "models",
            "broker_url": broker_url,
            "local_workers": 0 if broker_url else 1,
            **settings,
        }
        self.database = Database(str(self._settings.get("database_url") or f"sqlite:///{folder}/state/voicejobs.db"))
        migrate.upgrade(self.database)
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.first_key = ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def process(self) -> psutil.Process:
        """Return the process, to look at its memory."""
        assert self._process is not None
        return psutil.Process(self._process.pid)

    @property
    def log(self) -> str:
        """Return what the service has logged."""
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    @property
    def variables(self) -> dict[str, str]:
        """Return the settings as variables, for commands and workers on the same database and broker."""
        return {f"VOICEJOBS_{name.upper()}": str(value) for name, value in self._settings.items() if value != ""}

    def start(self) -> Self:
        """Start it and wait until it takes requests."""
        self._ready.unlink(missing_ok=True)
        port = self.url.rpartition(":")[2] if self.url else "0"
        command = [sys.executable, "-P", "-m", "voicejobs.cli.main", "serve", "api", "--port", port, "--ready-file"]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self._ready), *self._words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.variables},
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGTERM),  # noqa: PLW1509 - a ctypes call and no lock; tests only
            )
        wait_ready(
            self._process, lambda: self._ready.exists() and self._ready.stat().st_size > 0, self.log_path, START_S
        )
        self.url = self._ready.read_text().strip()
        return self

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal, wait for its end and return its exit code."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(how)
        code = self._process.wait(START_S)
        self._process = None
        return code

    def close(self) -> None:
        """End it, and let go of its database."""
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.stop(signal.SIGKILL)
        self.database.close()

    def key(self, tenant: str = "default", *scopes: str, **more: Any) -> str:
        """Make a key and return its text; with no scope it has `admin`."""
        return keys.create_key(self.database, NewKey(tenant=tenant, scopes=scopes or ("admin",), **more))[1]

    @contextmanager
    def client(self, key: str | None = None, headers: Mapping[str, str] | None = None) -> Iterator[httpx.Client]:
        """Return a client that sends a key."""
        own = {"authorization": f"Bearer {key}"} if key else {}
        with httpx.Client(base_url=self.url, headers={**own, **(headers or {})}, timeout=30, trust_env=False) as client:
            yield client
