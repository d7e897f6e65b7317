"""`voicejobs serve engine` as a process of its own, for those who call it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

COMMAND = Path(sys.executable).with_name("voicejobs")
START_S = 60.0


class VoiceEngine:
    """Serve engines on a loopback port, in a state folder of its own below `folder`.

    Args:
        folder: an empty folder, or one that does not exist yet.
        words: further words of the command, such as `--engine fake`.
        port: 0 takes a free one.
        settings: settings by their names in small letters.
    """

    def __init__(self, folder: Path, *words: str, port: int = 0, **settings: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._ready = folder / "ready"
        self._log = folder / "engine.log"
        place = ("--address", f"127.0.0.1:{port}", "--ready-file", str(self._ready), "--grace", "1")
        self._command = [str(COMMAND), "serve", "engine", *place, *words]
        ours = {f"VOICEJOBS_{name.upper()}": str(value) for name, value in settings.items()}
        self._environment = {**os.environ, "VOICEJOBS_STATE_DIR": str(folder / "state"), **ours}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return its address, as `VOICEJOBS_REMOTE_URL` has it."""
        return f"grpc://{self._ready.read_text().strip()}"

    @property
    def log(self) -> str:
        """Return what it has written."""
        return self._log.read_text("utf-8", "replace")

    def start(self) -> Self:
        """Start it, and wait until it takes calls."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=output, env=self._environment, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        while not self._ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the voice engine did not start:\n{self.log}")
            time.sleep(0.02)
        return self

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Send it a signal, and wait for its end."""
        if self._process is None:
            return
        self._process.send_signal(how)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        self._process.kill()
        self._process.wait()
        self._process = None
        self._ready.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
