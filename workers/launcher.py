"""Start the workers of this machine, one for each device, and keep them running.

`voicejobs serve worker` becomes this process (`python -m voicejobs_workers.launcher`). It loads no model library and
holds no card: whatever happens to a worker or its device, the launcher is there to start another.
"""

import argparse
import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from voicejobs import logs
from voicejobs.accelerators import find_devices, sharing_service
from voicejobs.children import Child, Children
from voicejobs.errors import BadOption, DeviceRefused, StackUnavailable, VoicejobsError
from voicejobs.memory import tree_bytes
from voicejobs.settings import Settings, inherited_environment

from .devices import place
from .slots import Slot, plan_slots

logger = logging.getLogger(__name__)

EXIT_USAGE = 2
EXIT_KILLED = 3
EXIT_TEMPORARY = 5
EXIT_REJECTED = 7
"""Exit codes, as docs/workers.md explains them; 0 says that every worker left in time when it was asked to."""

GRACE_S = 10.0
TICK_S = 0.2
MEMORY_LOOK_S = 5.0
FULL_SHARE = 0.9
"""Share of the limit at which a worker begins nothing more, so that it seldom comes to be started anew."""
MAX_QUICK_DEATHS = 8


@dataclass(slots=True)
class Worker:
    """Hold one worker of the launcher: its slot, its process, and the pipe on which it says that it takes work.

    Args:
        slot: what it owns.
        settings: those of the worker.
        grace_s: time that it has to give its leases back.
    """

    slot: Slot
    settings: Settings
    grace_s: float
    pipe: int = -1
    is_ready: bool = False
    child: Child = field(init=False)

    def __post_init__(self) -> None:
        self.child = Child(self.slot.name, self.start, self.grace_s, max_quick_deaths=MAX_QUICK_DEATHS)

    def start(self, restart: bool) -> "subprocess.Popen[bytes]":
        """Start the process; `restart` says that the one before it died by itself."""
        if self.pipe >= 0:
            os.close(self.pipe)
        self.is_ready = False
        self.pipe, theirs = os.pipe()
        words = ["--die-with-parent", "--slot", self.slot.dump(), "--ready-fd", str(theirs)]
        try:
            return subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-P", "-m", "voicejobs_workers", *words, *(["--restart"] if restart else [])],
                stdin=subprocess.DEVNULL,
                env=worker_environment(self.settings, self.slot),
                pass_fds=(theirs,),
                start_new_session=True,  # Ctrl-C in a terminal comes to the launcher alone
            )
        finally:
            os.close(theirs)

    def look(self) -> bool:
        """Read the pipe; return whether the worker has become ready just now."""
        if self.pipe < 0 or not select.select([self.pipe], [], [], 0)[0]:
            return False
        told = os.read(self.pipe, 16)
        os.close(self.pipe)
        self.pipe = -1
        self.is_ready = told.startswith(b"ready")
        return self.is_ready


@dataclass(slots=True)
class Launcher:
    """Run the workers of some slots until a signal comes.

    Args:
        settings: those of the workers.
        slots: one for each worker.
        grace_s: time that a worker has to give its leases back.
        max_memory_bytes: resident memory of a worker with its children above which it is started anew; 0 for no limit.
        ready_file: file that is there while every worker takes work.
    """

    settings: Settings
    slots: Sequence[Slot]
    grace_s: float = GRACE_S
    max_memory_bytes: int = 0
    ready_file: Path | None = None
    _workers: list[Worker] = field(default_factory=list)
    _signals: list[int] = field(default_factory=list)
    _was_ready: bool = False
    _rolling: list[Worker] = field(default_factory=list)

    def run(self) -> int:
        """Start the workers, keep them running, and return an exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note_signal)
        self._workers = [Worker(slot, self.settings, self.grace_s) for slot in self.slots]
        # Each worker is minded alone: one that dies young keeps no other from being started again.
        minded = [Children([worker.child]) for worker in self._workers]
        every = Children([worker.child for worker in self._workers])
        failed = False
        try:
            self._supervise(minded)
        except StackUnavailable as error:
            logger.error("giving up", extra={"error": error.message})  # noqa: TRY400 - the trace says nothing
            failed = True
        finally:
            self._note_readiness(ready=False)
            asked = len(self._signals)
            every.stop_together(hurry=lambda: len(self._signals) > asked)
        if failed:
            return EXIT_TEMPORARY
        return EXIT_KILLED if every.killed else 0

    def _supervise(self, minded: Sequence[Children]) -> None:
        """Mind the workers until a signal says to stop."""
        next_look = time.monotonic() + MEMORY_LOOK_S
        while not {signal.SIGTERM, signal.SIGINT} & set(self._signals):
            for children in minded:
                children.mind()
            for worker in self._workers:
                if worker.look():
                    logger.info("worker takes work", extra={"worker": worker.slot.name, "device": worker.slot.device})
            self._note_readiness(ready=all(worker.is_ready and worker.child.is_running for worker in self._workers))
            if signal.SIGHUP in self._signals:
                self._signals.remove(signal.SIGHUP)
                self._rolling = list(self._workers)
            self._roll()
            if self.max_memory_bytes and time.monotonic() >= next_look:
                next_look = time.monotonic() + MEMORY_LOOK_S
                self._look_at_memory()
            time.sleep(TICK_S)

    def _roll(self) -> None:
        """Start the next worker anew, once all take work: one at a time, so that the others carry on."""
        if self._rolling and self._was_ready:
            worker = self._rolling.pop(0)
            logger.info("starting a worker anew", extra={"worker": worker.slot.name, "reason": "asked to"})
            self._renew(worker)

    def _look_at_memory(self) -> None:
        """Start a worker anew that holds more memory than it may; its jobs go on where they were."""
        for worker in self._workers:
            if worker.child.process is None or not worker.child.is_running or worker.child.is_expected_to_end:
                continue
            held = tree_bytes(worker.child.process.pid)
            if held > self.max_memory_bytes:
                logger.warning("starting a worker anew", extra={"worker": worker.slot.name, "memory_bytes": held})
                self._renew(worker)

    def _renew(self, worker: Worker) -> None:
        """Ask a worker to give its leases back and end; `mind` starts the next. One that stays is killed."""
        process = worker.child.process
        if process is None:
            return
        worker.child.is_expected_to_end = True
        worker.is_ready = False
        self._note_readiness(ready=False)
        process.terminate()
        deadline = time.monotonic() + self.grace_s
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(TICK_S / 4)
        if process.poll() is None:
            process.kill()
            process.wait()

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        """Note a signal for the next turn of the loop."""
        self._signals.append(number)

    def _note_readiness(self, *, ready: bool) -> None:
        """Tell whoever waits for it whether every worker takes work."""
        if ready == self._was_ready:
            return
        self._was_ready = ready
        logger.info("ready" if ready else "not ready", extra={"workers": len(self._workers)})
        if self.ready_file is not None:
            with contextlib.suppress(OSError):
                self.ready_file.touch() if ready else self.ready_file.unlink(missing_ok=True)
        if ready:
            notify_service_manager("READY=1")


def worker_environment(settings: Settings, slot: Slot) -> dict[str, str]:
    """Return the environment of a worker: its device is set before any of its imports can look."""
    return {"MALLOC_ARENA_MAX": "2", **inherited_environment(), **settings.to_env(), **slot.environment()}


def _tell_placement(slots: Sequence[Slot]) -> None:
    """Log where the workers go, and whether NVIDIA's Multi-Process Service is set up: its clients share faults."""
    for slot in slots:
        told = {"worker": slot.name, "device": slot.device, "visible": slot.visible, "fraction": slot.memory_fraction}
        logger.info("worker placed", extra=told)
    shared = sharing_service(os.environ)
    logger.info("CUDA MPS is set up" if shared else "CUDA MPS is not set up", extra={"variables": shared})


def notify_service_manager(word: str) -> None:
    """Tell systemd, where it listens (NOTIFY_SOCKET), as sd_notify(3) describes it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.sendto(word.encode(), address)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, place the workers, run them."""
    parser = argparse.ArgumentParser(prog="voicejobs serve worker", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--devices", default="auto", help="auto, cpu, or a list such as cuda:0@0.45,cuda:1")
    parser.add_argument("--grace", type=float, default=GRACE_S, metavar="SECONDS", help="time to give leases back")
    parser.add_argument("--max-memory-mb", type=int, default=0, help="start a worker anew above this; 0: never")
    parser.add_argument("--ready-file", type=Path, help="file that is there while all workers take work")
    options = parser.parse_args(arguments)
    try:
        settings = Settings.from_env()
        logs.configure(settings.log_level)
        if not settings.broker_url or not settings.database_url:
            raise BadOption(
                "Workers of their own need servers", hint="Set VOICEJOBS_BROKER_URL and VOICEJOBS_DATABASE_URL."
            )
        slots = plan_slots(settings, place(options.devices, find_devices()))
        _tell_placement(slots)
    except VoicejobsError as error:
        sys.stderr.write(f"error: {error.message} [{error.code}]\n  {error.hint}\n")
        return EXIT_REJECTED if isinstance(error, DeviceRefused) else EXIT_USAGE
    memory_bytes = options.max_memory_mb * 1_000_000
    if memory_bytes and not settings.max_memory_bytes:
        settings = replace(settings, max_memory_bytes=int(memory_bytes * FULL_SHARE))
    return Launcher(settings, slots, options.grace, memory_bytes, options.ready_file).run()


if __name__ == "__main__":
    sys.exit(main())
