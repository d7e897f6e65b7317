"""Child processes that end with the process that started them, and what the private servers share."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

PR_SET_PDEATHSIG = 1
NOBODY_FALLBACK_ID = 65_534
LONGEST_BASE_PATH = 60
"""A unix socket path holds 107 bytes: longer temporary folders than this are passed over."""


class ServerMissingError(RuntimeError):
    """Say that this machine has no binary of a server."""


class ServerFailedError(RuntimeError):
    """Say that a server did not start, with the end of its log."""


def new_folder(prefix: str) -> Path:
    """Make a short folder of our own under the temporary folder, mode 0700."""
    base = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix=prefix, dir=base if len(base) <= LONGEST_BASE_PATH else "/tmp"))


def free_port() -> int:
    """Return a loopback port that is free now; the caller tries again where another program takes it first."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def die_with_parent(with_signal: int = signal.SIGKILL) -> Callable[[], None] | None:
    """Return a `preexec_fn` after which the kernel signals the child when the thread that started it ends.

    So a server is started by the main thread of pytest, even where a test restarts it. Elsewhere than on Linux
    there is no such call: there the servers end by `stop` only.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def ask_kernel() -> None:
        prctl(PR_SET_PDEATHSIG, int(with_signal), 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and prctl
            os._exit(1)

    return ask_kernel


def spawn(
    command: Sequence[str | Path], log: Path, *, identity: Mapping[str, Any], with_signal: int = signal.SIGKILL
) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own (Ctrl-C is for pytest), its output appended to `log`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            cwd=log.parent,
            start_new_session=True,
            preexec_fn=die_with_parent(with_signal),  # noqa: PLW1509 - a ctypes call and no lock; tests only
            **identity,
        )


def wait_ready(process: subprocess.Popen[bytes], answers: Callable[[], bool], log: Path, timeout_s: float) -> None:
    """Wait until `answers` is true.

    Raises:
        ServerFailedError: the process ended, or did not answer in time.
    """
    deadline = time.monotonic() + timeout_s
    while not answers():
        if process.poll() is not None or time.monotonic() > deadline:
            how = f"ended with {process.returncode}" if process.poll() is not None else "does not answer"
            tail = log.read_text(errors="replace")[-2000:]
            raise ServerFailedError(f"{process.args!r} {how}:\n{tail}")
        time.sleep(0.01)


def wait_gone(processes: Sequence[psutil.Process], timeout_s: float) -> None:
    """Wait until processes are dead, whether or not somebody has reaped them."""
    deadline = time.monotonic() + timeout_s
    while any(_alive(process) for process in processes):
        if time.monotonic() > deadline:
            raise TimeoutError(f"still alive: {processes}")
        time.sleep(0.01)


def _alive(process: psutil.Process) -> bool:
    """Say whether a process runs; a zombie does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def unprivileged() -> dict[str, Any]:
    """Return the `subprocess` arguments that drop root, and nothing for an ordinary user."""
    if os.getuid() != 0:
        return {}
    import pwd

    try:
        entry = pwd.getpwnam("nobody")
        user, group = entry.pw_uid, entry.pw_gid
    except KeyError:
        user = group = NOBODY_FALLBACK_ID
    return {"user": user, "group": group, "extra_groups": []}


def hand_over(folder: Path) -> None:
    """Give `folder` to the user of `unprivileged`; its parents stay as they are."""
    identity = unprivileged()
    if identity:
        os.chown(folder, identity["user"], identity["group"])


def remove_folder(folder: Path) -> None:
    """Remove a folder of ours; what a dying server still writes there is no failure."""
    shutil.rmtree(folder, ignore_errors=True)
