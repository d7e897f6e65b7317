"""A service with workers and a voice engine, for tests of calls that end in results."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.api import ApiServer

ROOT = Path(__file__).parents[3]
HARBOR = ROOT / "examples" / "harbor.flac"
"""Seven seconds of speech."""


@dataclass
class Stack:
    """Hold a service whose jobs are done, and a key for it."""

    api: ApiServer
    key: str
    worker_log: Path

    @property
    def base_url(self) -> str:
        """Return the address as OpenAI's clients want it."""
        return f"{self.api.url}/v1"


@contextmanager
def serving(folder: Path, broker_url: str, **settings: object) -> Iterator[Stack]:
    """Serve with one worker, and end both."""
    with ApiServer(folder, broker_url, **settings) as api:
        log_path = folder / "worker.log"
        command = [sys.executable, "-P", "-m", "voicejobs_workers", "--die-with-parent"]
        with log_path.open("ab") as log:
            worker = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **api.variables}, start_new_session=True
            )
        try:
            yield Stack(api, api.key("first"), log_path)
        finally:
            worker.send_signal(signal.SIGTERM)
            try:
                worker.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
