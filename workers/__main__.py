"""Run one worker in this process: `python -m voicejobs_workers`."""

import ctypes
import os
import signal
import socket
import sys
from dataclasses import replace

PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""


def main() -> None:
    """Start the Celery worker of the slot that the environment describes, and stay until it ends.

    `--die-with-parent` makes the kernel end it when its supervisor is killed; `--restart` says that the worker
    before it died.
    """
    if "--die-with-parent" in sys.argv[1:]:
        die_with_parent()
    from .app import app, runtime, slot  # noqa: PLC0415 - reads the environment, so not at import

    runtime.place = replace(runtime.place, is_restart="--restart" in sys.argv[1:])

    app.worker_main(
        [
            "worker",
            "--pool=threads",
            f"--concurrency={slot.threads}",
            f"--hostname={slot.name}@{socket.gethostname()}",
            "--without-gossip",
            "--without-mingle",
            "--loglevel=WARNING",
        ]
    )


def die_with_parent() -> None:
    """Have SIGTERM sent to this process when the process that started it dies; only Linux can."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("the supervisor ended before its worker began")


if __name__ == "__main__":
    main()
