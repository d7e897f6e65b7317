"""A client's side of the embedded stack: start it where none runs, join it where one does, notice when it dies."""

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from voicejobs.embedded.supervisor import CONTROL_SOCKET, fingerprint
from voicejobs.errors import BadOption, DiskFull, StackUnavailable
from voicejobs.settings import Settings, inherited_environment

START_TIMEOUT_S = 30.0
RETRY_S = 0.02
MAX_RESTARTS = 3


@dataclass(slots=True)
class Stack:
    """Hold the connection that keeps the stack alive; use as a context manager.

    Raises:
        StackUnavailable: the stack did not start, or keeps dying.
    """

    settings: Settings
    _connection: socket.socket | None = None
    _buffer: bytes = b""
    _restarts: int = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_needed(self) -> bool:
        """Tell whether there is anything to run on this machine."""
        return self.settings.local_workers or not self.settings.broker_url

    def start(self) -> None:
        """Ask for a supervisor without waiting for it; `join` waits. None is needed where all runs elsewhere."""
        if self.is_needed and not self._connect():
            self._spawn()

    def join(self) -> None:
        """Wait until the supervisor has greeted us."""
        if not self.is_needed:
            return
        deadline = time.monotonic() + START_TIMEOUT_S
        spawned_at = time.monotonic()
        while time.monotonic() < deadline:
            if self._connection is not None or self._connect():
                return
            if time.monotonic() - spawned_at > START_TIMEOUT_S / 6:
                self._spawn()  # the one we asked for lost a race against one that was going down
                spawned_at = time.monotonic()
            time.sleep(RETRY_S)
        raise StackUnavailable(f"The embedded stack did not start; see {self.settings.logs_dir / 'supervisor.log'}")

    def check(self) -> None:
        """Notice that the stack has failed or died; a dead one is started again, a few times.

        Raises:
            StackUnavailable: it says that it failed, or it died too often.
        """
        if self._connection is None:
            self.join()
            return
        self._connection.setblocking(False)
        try:
            data = self._connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._read(data)
            return
        self.close()
        self._restarts += 1
        if self._restarts > MAX_RESTARTS:
            raise StackUnavailable(f"The embedded stack died {self._restarts} times; see {self.settings.logs_dir}")
        self.start()

    def close(self) -> None:
        """Leave; the stack ends by itself when its last client has left."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None

    def _connect(self) -> bool:
        """Connect to a running supervisor that has our settings; ask one with others, if it is idle, to go."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(5.0)
        try:
            connection.connect(str(self.settings.runtime_dir / CONTROL_SOCKET))
            greeting = _read_line(connection)
        except OSError:
            connection.close()
            return False
        if greeting.get("state") != "running":
            connection.close()
            return False
        if greeting.get("settings") != fingerprint(self.settings) and self._asked_to_go(connection):
            connection.close()
            return False
        self._connection = connection
        return True

    @staticmethod
    def _asked_to_go(connection: socket.socket) -> bool:
        """Ask a stack to end; True once it has, False where others use it, and we join it as it is."""
        connection.sendall(b"stop\n")
        connection.settimeout(1.0)
        try:
            return connection.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    def _read(self, data: bytes) -> None:
        """Take the supervisor's messages.

        Raises:
            StackUnavailable: it gives up.
        """
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message.get("state") == "failed":
                raise StackUnavailable(message["reason"], hint=message.get("hint") or None)

    def _spawn(self) -> None:
        """Start a supervisor in a session of its own, so that neither Ctrl-C nor our end reaches it."""
        make_state_dir(self.settings)
        with (self.settings.logs_dir / "supervisor.log").open("ab") as log:
            subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "voicejobs.embedded.supervisor", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**inherited_environment(), **self.settings.to_env()},
                cwd=os.sep,
                start_new_session=True,
            )


def make_state_dir(settings: Settings) -> None:
    """Make the state folder for our user alone: transcripts are nobody else's business.

    Raises:
        BadOption: it cannot be made or written.
        DiskFull: it has no room.
    """
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings.logs_dir.mkdir(exist_ok=True, mode=0o700)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise DiskFull(f"No space is left for the state folder {settings.state_dir}") from error
        raise BadOption(
            f"The state folder {settings.state_dir} cannot be written: {error.strerror}",
            hint="Set VOICEJOBS_STATE_DIR to a folder that you can write.",
        ) from error


def _read_line(connection: socket.socket) -> dict[str, Any]:
    """Read one line of JSON; an empty object where the connection ends first."""
    data = b""
    while not data.endswith(b"\n"):
        chunk = connection.recv(4096)
        if not chunk:
            return {}
        data += chunk
    message: dict[str, Any] = json.loads(data.split(b"\n", maxsplit=1)[0])
    return message
