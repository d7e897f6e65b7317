"""The part of the machine that one worker process owns."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from voicejobs.messages import QUEUE_CLASSES
from voicejobs.settings import Settings

from .devices import CPU, Placement

WINDOW_PER_PROCESS = 4
"""Jobs out at once for each engine process: enough that none waits while others decode, render and write."""
MIN_WINDOW_JOBS = 8
SPARE_THREADS = 4
"""Threads beyond the bulk window, so that an interactive task always finds one."""
WINDOW_PER_CARD = 24
"""Jobs out at once for a card: enough windows at hand to fill its batches."""

CPU_QUEUES = ("cpu",)
"""What a worker without a card serves beside cards: decoding and writing, which no card must wait for."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Describe a worker process.

    Args:
        name: unique on this machine.
        device: label for people: `cpu`, or such as `cuda:0`.
        window_jobs: jobs that may be out at once.
        threads: size of the Celery thread pool.
        queues: queue classes whose messages it takes.
        visible: what CUDA_VISIBLE_DEVICES holds for it; empty hides every card.
        memory_fraction: its share 0..1 of the memory of its card; 0 without one.
        memory_bytes: that share in bytes; 0 without a card.
        is_placed: whether the launcher chose the device; a worker started without it uses what it finds.
    """

    name: str
    device: str
    window_jobs: int
    threads: int
    queues: tuple[str, ...] = QUEUE_CLASSES
    visible: str = ""
    memory_fraction: float = 0.0
    memory_bytes: int = 0
    is_placed: bool = True

    @property
    def engine_device(self) -> str:
        """Return how the slot's device is called inside its processes, which see no other."""
        return ("cuda:0" if self.visible else "cpu") if self.is_placed else "auto"

    def dump(self) -> str:
        """Return the slot as one word of a command line."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Build a slot from `dump`."""
        values: dict[str, Any] = json.loads(text)
        return cls(**{**values, "queues": tuple(values["queues"])})

    def environment(self) -> Mapping[str, str]:
        """Return what must be set before a process of this slot imports anything."""
        return {"CUDA_VISIBLE_DEVICES": self.visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def cpu_slot(settings: Settings, *, name: str = "cpu", queues: tuple[str, ...] = QUEUE_CLASSES) -> Slot:
    """Return the slot of the cores of this machine: all its work, or what it does beside accelerators."""
    processes = settings.engine_processes or _cores()
    window_jobs = settings.window_jobs or max(MIN_WINDOW_JOBS, WINDOW_PER_PROCESS * processes)
    return Slot(name, "cpu", window_jobs, window_jobs + SPARE_THREADS, queues)


def plan_slots(settings: Settings, placements: Sequence[Placement]) -> list[Slot]:
    """Return the slot of each placement.

    Beside cards the CPU serves the queue of CPU-only steps, and a card only that of recognisers: then no card waits for
    decoding. Alone, the CPU serves all.
    """
    cards = [placement for placement in placements if placement.device != CPU]
    slots = []
    seen: dict[str, int] = {}
    for placement in placements:
        device = placement.device
        if device == CPU:
            slots.append(cpu_slot(settings, queues=CPU_QUEUES if cards else QUEUE_CLASSES))
            continue
        number = seen[device.label] = seen.get(device.label, 0) + 1
        window_jobs = settings.window_jobs or WINDOW_PER_CARD
        slots.append(
            Slot(
                name=_slot_name(device.label, number),
                device=device.label,
                window_jobs=window_jobs,
                threads=window_jobs + SPARE_THREADS,
                queues=tuple(name for name in QUEUE_CLASSES if name not in CPU_QUEUES),
                visible=device.uuid,
                memory_fraction=placement.fraction,
                memory_bytes=int(device.memory_bytes * placement.fraction),
            )
        )
    return slots


def _slot_name(label: str, number: int) -> str:
    """Return a name that fits a host name of Celery: `cuda0`, `cuda0-1` for an instance, `cuda0.2` for a second."""
    name = label.replace(":", "").replace("/", "-")
    return name if number == 1 else f"{name}.{number}"


def _cores() -> int:
    """Return the cores that this process may use; not every system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
