"""The part of the machine that one worker process owns."""

import os
from dataclasses import dataclass

from voicejobs.settings import Settings

WINDOW_PER_PROCESS = 4
"""Jobs out at once for each engine process: enough that none waits while others decode, render and write."""
MIN_WINDOW_JOBS = 8
SPARE_THREADS = 4
"""Threads beyond the bulk window, so that an interactive task always finds one."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Describe a worker process.

    Args:
        name: unique on this machine.
        device: `cpu`, or a CUDA device.
        window_jobs: jobs that may be out at once.
        threads: size of the Celery thread pool.
    """

    name: str
    device: str
    window_jobs: int
    threads: int


def cpu_slot(settings: Settings, *, name: str = "cpu") -> Slot:
    """Return the slot of a machine without accelerators: all of its cores."""
    processes = settings.engine_processes or _cores()
    window_jobs = settings.window_jobs or max(MIN_WINDOW_JOBS, WINDOW_PER_PROCESS * processes)
    return Slot(name, "cpu", window_jobs, window_jobs + SPARE_THREADS)


def _cores() -> int:
    """Return the cores that this process may use; not every system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
