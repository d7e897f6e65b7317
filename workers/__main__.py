"""Run one worker in this process: `python -m voicejobs_workers`; the launcher starts several."""

import contextlib
import ctypes
import logging
import os
import signal
import socket
import sys
from dataclasses import replace

from voicejobs import logs
from voicejobs.heap import give_back_large_blocks
from voicejobs.messages import queue_name

PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""


def main() -> None:
    """Start the Celery worker of the slot that the environment describes, and stay until it ends.

    `--die-with-parent` makes the kernel end it when its supervisor is killed; `--restart` says that the worker
    before it died; `--slot` describes its slot, as `Slot.dump` writes it; `--ready-fd` is closed when it takes work.
    """
    if "--die-with-parent" in sys.argv[1:]:
        die_with_parent()
    give_back_large_blocks()
    from .app import app, runtime, settings, slot  # noqa: PLC0415 - reads the environment, so not at import

    logs.configure(settings.log_level)
    logging.captureWarnings(capture=True)  # warnings are lines of the log, too

    runtime.place = replace(runtime.place, is_restart="--restart" in sys.argv[1:])
    if "--ready-fd" in sys.argv[1:]:
        _tell_ready(int(sys.argv[sys.argv.index("--ready-fd") + 1]))

    _close_stdout()
    app.worker_main(
        [
            "--quiet",
            "worker",
            "--pool=threads",
            f"--concurrency={slot.threads}",
            f"--hostname={slot.name}@{socket.gethostname()}",
            f"--queues={','.join(queue_name(name) for name in slot.queues)}",
            "--without-gossip",
            "--without-mingle",
            "--loglevel=WARNING",
        ]
    )


def _close_stdout() -> None:
    """Send standard output nowhere: Celery tells people of its shutdown there, and our log is JSON alone."""
    null_fd = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_fd, 1)
    os.close(null_fd)


def _tell_ready(fd: int) -> None:
    """Write to the launcher's pipe once the worker takes messages."""
    from celery import signals  # noqa: PLC0415 - the launcher imports this module's package too

    @signals.worker_ready.connect(weak=False)
    def ready(**kwargs: object) -> None:
        with contextlib.suppress(OSError):
            os.write(fd, b"ready")
            os.close(fd)


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
