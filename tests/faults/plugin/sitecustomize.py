"""Faults that a process brings along, as TEST_FAULT_* in its environment says; Python imports this at its start.

`TEST_FAULT_CLOCK_S`: seconds by which its clock is wrong. `TEST_FAULT_HOST`: the machine it believes to be on.
`TEST_FAULT_DIE_BEFORE_SENDING`: the worker is killed between its commit and the message. `TEST_FAULT_STICK`:
the upkeep stands still unless this file is there, and makes it. `TEST_FAULT_RESULT_EXPIRES`:
Celery's `result_expires`. Decoders crash on files whose names begin with `segv`, and want 50 GB for `greedy`.
"""

import ctypes
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any


def wrong_clock(offset_s: float) -> None:
    """Move the clock of this process."""
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + offset_s
    time.time_ns = lambda: right_ns() + int(offset_s * 1e9)


def other_host(name: str) -> None:
    """Believe to be on another machine."""
    socket.gethostname = lambda: name


def die_before_sending() -> None:
    """Be killed where a committed job would go to the broker."""
    from voicejobs import dispatch

    def die(signature: object) -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        return False

    dispatch._publish = die


def stick(once: Path) -> None:
    """Let the upkeep of the first worker stand still."""
    from threading import Event

    from voicejobs.dispatch import Upkeep

    ours = Upkeep.tick

    def tick(self: Upkeep) -> None:
        if not once.exists():
            once.touch()
            Event().wait()
        ours(self)

    Upkeep.tick = tick  # type: ignore[method-assign]


def expire_results(seconds: float) -> None:
    """Let Celery forget results soon."""
    from voicejobs.tasks import app as ours

    configure = ours.configure

    def and_expire(app: Any, broker_url: str) -> None:
        configure(app, broker_url)
        app.conf.result_expires = seconds

    ours.configure = and_expire


def bad_decoder() -> None:
    """Crash, or take memory, where the name of the file says so."""
    from voicejobs.audio import decode

    ours: Any = decode
    decode_file = ours.decode

    def misbehave(path: str, *rest: Any) -> Any:
        name = Path(path).name
        if name.startswith("segv"):
            ctypes.string_at(0)  # the sandbox allows no kill
        if name.startswith("greedy"):
            bytearray(50 << 30)
        return decode_file(path, *rest)

    ours.decode = misbehave


if "TEST_FAULT_CLOCK_S" in os.environ:
    wrong_clock(float(os.environ["TEST_FAULT_CLOCK_S"]))
if "TEST_FAULT_HOST" in os.environ:
    other_host(os.environ["TEST_FAULT_HOST"])
if "voicejobs_workers" in sys.orig_argv:
    if "TEST_FAULT_DIE_BEFORE_SENDING" in os.environ:
        die_before_sending()
    if "TEST_FAULT_STICK" in os.environ:
        stick(Path(os.environ["TEST_FAULT_STICK"]))
    if "TEST_FAULT_RESULT_EXPIRES" in os.environ:
        expire_results(float(os.environ["TEST_FAULT_RESULT_EXPIRES"]))
if "voicejobs.hosting.zygote" in sys.orig_argv:
    bad_decoder()
