"""The supervisor of the embedded stack: `python -m voicejobs.embedded.supervisor`, one for each state folder.

It holds the folder's lock, owns the private Valkey and the worker, restarts what dies, and ends when its last client
has left. A connection to its control socket is what makes a client: the kernel closes it however the client dies.
"""

import contextlib
import errno
import fcntl
import json
import logging
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import IO

from voicejobs import logs
from voicejobs.children import Child, Children
from voicejobs.embedded import valkey
from voicejobs.errors import StackUnavailable, VoicejobsError
from voicejobs.settings import Settings, inherited_environment
from voicejobs.store.owners import is_alive, process_start

logger = logging.getLogger(__name__)

CONTROL_SOCKET = "control.sock"
BROKER_SOCKET = "valkey.sock"
CHILDREN_FILE = "children.json"
LOCK_FILE = "supervisor.lock"

TICK_S = 0.2
WORKER_GRACE_S = 10.0
SERVER_GRACE_S = 3.0
MAX_LOG_BYTES = 10_000_000
FIRST_CLIENT_WAIT_S = 15.0
LOCK_WAIT_S = WORKER_GRACE_S + SERVER_GRACE_S + 2.0
LOCK_LOOK_S = 0.02


def fingerprint(settings: Settings) -> str:
    """Return a mark of the settings that a running stack was started with."""
    return sha256(json.dumps(settings.to_env(), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(slots=True)
class Supervisor:
    """Keep the children running for as long as there are clients.

    Args:
        settings: those of the stack.
        starter_pid: process that is to become the first client; 0 where nobody in particular is.
    """

    settings: Settings
    starter_pid: int = 0
    _clients: list[socket.socket] = field(default_factory=list)
    _children: Children = field(default_factory=lambda: Children([]))
    _stopping: bool = False

    def run(self) -> None:
        """Hold the lock and supervise; return at once where another supervisor holds it."""
        self.settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.settings.logs_dir.mkdir(exist_ok=True, mode=0o700)
        with (self.settings.state_dir / LOCK_FILE).open("a") as lock:
            if not self._locked(lock):
                return
            runtime_dir = private_folder(self.settings.runtime_dir)
            kill_orphans(self.settings.state_dir / CHILDREN_FILE)
            signal.signal(signal.SIGTERM, lambda *_: self._ask_to_stop())
            with _listen(runtime_dir / CONTROL_SOCKET) as control:
                try:
                    self._children = Children(self._plan(runtime_dir), self._record_children)
                    self._supervise(control)
                except VoicejobsError as error:
                    logger.exception("the stack failed")
                    self._tell({"state": "failed", "reason": error.message, "hint": error.hint})
                finally:
                    # No client may join what is going down: the socket goes first, then the children.
                    with contextlib.suppress(OSError):
                        (runtime_dir / CONTROL_SOCKET).unlink()
                    self._children.stop_in_turn()
                    with contextlib.suppress(OSError):
                        (runtime_dir / BROKER_SOCKET).unlink(missing_ok=True)
                        runtime_dir.rmdir()
                    (self.settings.state_dir / CHILDREN_FILE).unlink(missing_ok=True)

    def _locked(self, lock: IO[str]) -> bool:
        """Take the folder's lock; False where another supervisor serves clients, whom ours can join.

        One that is going down answers no more, and holds the lock only until its children have ended.
        """
        deadline = time.monotonic() + LOCK_WAIT_S
        while time.monotonic() < deadline:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if (self.settings.runtime_dir / CONTROL_SOCKET).exists():
                    return False
                time.sleep(LOCK_LOOK_S)
            else:
                return True
        return False

    def _ask_to_stop(self) -> None:
        """End after this turn of the loop."""
        self._stopping = True

    def _plan(self, runtime_dir: Path) -> list[Child]:
        """Return the processes to run, in the order of their start."""
        children: list[Child] = []
        settings = self.settings
        if not settings.broker_url:
            socket_path = runtime_dir / BROKER_SOCKET
            server = valkey.find_server()
            settings = replace(settings, broker_url=valkey.url(socket_path))
            children.append(
                Child(
                    "valkey",
                    lambda restart: _spawn(
                        valkey.command(server, socket_path), self._log("valkey"), inherited_environment()
                    ),
                    SERVER_GRACE_S,
                    ready=lambda process: valkey.wait_until_ready(process, socket_path),
                    log=str(self.settings.logs_dir / "valkey.log"),
                )
            )
        if settings.local_workers:
            # Many threads with a malloc arena each keep far more memory than they use.
            environment = {"MALLOC_ARENA_MAX": "2", **inherited_environment(), **settings.to_env()}
            worker = [sys.executable, "-m", "voicejobs_workers", "--die-with-parent"]
            children.append(
                Child(
                    "worker",
                    lambda restart: _spawn(
                        [*worker, *(["--restart"] if restart else [])], self._log("worker"), environment
                    ),
                    WORKER_GRACE_S,
                    log=str(self.settings.logs_dir / "worker.log"),
                )
            )
        return children

    def _supervise(self, control: socket.socket) -> None:
        """Serve clients and mind the children until nobody needs them."""
        lonely_since = time.monotonic()
        had_client = False
        while not self._stopping:
            self._children.mind()
            ready, _, _ = select.select([control, *self._clients], [], [], TICK_S)
            for connection in ready:
                if connection is control:
                    self._accept(control)
                else:
                    self._hear(connection)
            now = time.monotonic()
            if self._clients:
                had_client, lonely_since = True, now
            if now - lonely_since > (self.settings.linger_s if had_client else FIRST_CLIENT_WAIT_S):
                return
            if not had_client and self.starter_pid and not process_start(self.starter_pid):
                return  # whoever started us found nothing to do

    def _accept(self, control: socket.socket) -> None:
        """Take a new client and greet it."""
        connection, _ = control.accept()
        connection.settimeout(1.0)
        self._clients.append(connection)
        self._send(connection, {"state": "running", "pid": os.getpid(), "settings": fingerprint(self.settings)})

    def _hear(self, connection: socket.socket) -> None:
        """Take a client's word (`stop` ends a stack that nobody else uses), or notice that it has left."""
        try:
            word = connection.recv(64)
        except OSError:
            word = b""
        if word.startswith(b"stop") and len(self._clients) == 1:
            self._stopping = True
            word = b""  # hanging up says yes at once, however long the children take to end
        if not word:
            self._clients.remove(connection)
            connection.close()

    def _tell(self, message: dict[str, object]) -> None:
        """Send a message to every client."""
        for connection in list(self._clients):
            self._send(connection, message)

    @staticmethod
    def _send(connection: socket.socket, message: dict[str, object]) -> None:
        """Send one line of JSON; a client that does not read has left."""
        with contextlib.suppress(OSError):
            connection.sendall(json.dumps(message).encode() + b"\n")

    def _record_children(self) -> None:
        """Note pids and start times, so that the next supervisor can clean up after a killed one."""
        entries = [[pid, process_start(pid)] for pid in self._children.pids()]
        (self.settings.state_dir / CHILDREN_FILE).write_text(json.dumps(entries), "ascii")

    def _log(self, name: str) -> IO[bytes]:
        """Open a child's log for appending; a long one is started anew, with one generation kept."""
        path = self.settings.logs_dir / f"{name}.log"
        if path.exists() and path.stat().st_size > MAX_LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
        return path.open("ab")


def private_folder(path: Path) -> Path:
    """Make a folder that only our user can open, in a place where others may write.

    Raises:
        StackUnavailable: somebody else has put something there.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise StackUnavailable(f"{path} is not a private folder of this user", hint="Remove it, or set TMPDIR.")
    return path


def kill_orphans(record: Path) -> None:
    """Kill the children that a killed supervisor has left; their pid and start time prove that they are ours."""
    for pid in _recorded(record):
        logger.warning("killing an orphan", extra={"orphan": pid})
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    record.unlink(missing_ok=True)


def orphans(settings: Settings) -> list[int]:
    """Return the processes that a killed supervisor has left; none while a supervisor runs, for they are its own."""
    try:
        with (settings.state_dir / LOCK_FILE).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _recorded(settings.state_dir / CHILDREN_FILE)
    except OSError:
        return []


def _recorded(record: Path) -> list[int]:
    """Return the recorded children that still live."""
    try:
        entries = json.loads(record.read_text("ascii"))
    except (OSError, ValueError):
        return []
    return [pid for pid, started in entries if started and is_alive(pid, started)]


def _listen(path: Path) -> socket.socket:
    """Listen on a unix socket; whoever holds the lock may replace one that is left over."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        control.bind(str(path))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        path.unlink()
        control.bind(str(path))
    control.listen(64)
    return control


def _spawn(words: list[str], log: IO[bytes], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start a child in the folder of the file system's root, its output going to `log`."""
    with log:
        return subprocess.Popen(  # noqa: S603 - the words are ours
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd="/"
        )


def main() -> None:
    """Supervise with the settings of the environment."""
    settings = Settings.from_env()
    logs.configure(settings.log_level)
    Supervisor(settings, starter_pid=int(sys.argv[1]) if len(sys.argv) > 1 else 0).run()


if __name__ == "__main__":
    main()
