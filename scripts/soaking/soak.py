"""One soak: faults from a sequence that the seed fixes, jobs all the while, and a verdict."""

import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError
from soaking.site import LEASE_S, Site
from soaking.stream import Stream, Verdict

from tests.bench import read_speech
from voicejobs.errors import DatabaseUnavailable
from voicejobs.messages import queue_name, task_name
from voicejobs.tasks.app import configure

TURN_S = 0.1
UNFINISHED = 24
"""Jobs that are always under way."""
CALM_S = 120.0
DRAIN_S = 180.0
PAUSE_S = (0.5, 4.0)
"""Seconds between two faults."""
FAULTS = {
    "kill worker": 3,
    "kill child": 6,
    "sigterm worker": 1,
    "stop worker": 2,
    "flushall": 2,
    "broker away": 2,
    "database away": 2,
    "duplicates": 3,
    "poison": 2,
}
"""What happens, and how often beside the others."""


@dataclass(frozen=True)
class Fault:
    """Hold one step of the sequence: when, what, and a number in 0..1 for each choice that it leaves."""

    at_s: float
    kind: str
    which: float
    how: float
    long: float


def sequence(seed: int, seconds: float) -> Iterator[Fault]:
    """Return the faults of a seed; a longer soak begins as a shorter one."""
    dice = random.Random(seed)  # noqa: S311 - repeatable on purpose
    at_s = 0.0
    while True:
        at_s += dice.uniform(*PAUSE_S)
        (kind,) = dice.choices(list(FAULTS), list(FAULTS.values()))
        fault = Fault(at_s, kind, dice.random(), dice.random(), dice.random())
        if at_s > seconds:
            return
        yield fault


@dataclass
class Soak:
    """Do one soak."""

    site: Site
    stream: Stream
    faults: int = 0
    _undo: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    _sender: Celery = field(init=False)

    def __post_init__(self) -> None:
        self._sender = Celery("soak", set_as_current=False)
        configure(self._sender, self.site.valkey.broker_url(1))

    def calm(self) -> None:
        """Run everything once without faults."""
        self.stream.prepare()
        self._turn_until(lambda: self.stream.unfinished() == 0, CALM_S)
        self.stream.learn()

    def storm(self, seed: int, seconds: float) -> None:
        """Run the faults of a seed."""
        began = time.monotonic()
        for fault in sequence(seed, seconds):
            self._turn_until(lambda at_s=fault.at_s: time.monotonic() - began >= at_s, seconds, feed=True)
            print(f"{fault.at_s:7.1f} s  {fault.kind}", file=sys.stderr, flush=True)
            self.faults += 1
            with suppress(psutil.NoSuchProcess, OperationalError, RedisError, DatabaseUnavailable, OSError):
                getattr(self, "_" + fault.kind.replace(" ", "_"))(fault)

    def drain(self) -> Verdict:
        """Let everything end without faults, and judge."""
        self._undo.clear()
        self.site.calm_down()
        self.site.database.engine.dispose()
        with suppress(TimeoutError):  # what has not ended is lost
            self._turn_until(lambda: self.stream.unfinished() == 0, DRAIN_S)
        return self.stream.judge()

    def _turn_until(self, reached: Callable[[], bool], timeout_s: float, *, feed: bool = False) -> None:
        """Supervise, feed and end faults until something is reached."""
        deadline = time.monotonic() + timeout_s + CALM_S
        while not reached():
            if time.monotonic() > deadline:
                raise TimeoutError
            self.site.supervise()
            now = time.monotonic()
            for item in [item for item in self._undo if item[0] <= now]:
                self._undo.remove(item)
                item[1]()
            if feed and self.site.postgres.is_started:
                missing = UNFINISHED - self.stream.unfinished()
                if missing > 0:
                    self.stream.feed(missing)
            time.sleep(TURN_S)

    def _later(self, seconds: float, act: Callable[[], object]) -> None:
        """Do something when some seconds have passed."""
        self._undo.append((time.monotonic() + seconds, act))

    # ---- faults

    def _kill_worker(self, fault: Fault) -> None:
        """Kill -9 a worker."""
        self.site.workers[int(fault.which * len(self.site.workers))].process.kill()

    def _kill_child(self, fault: Fault) -> None:
        """Kill -9 a decoder, its zygote or an engine."""
        workers = {worker.process.pid for worker in self.site.workers}
        children = [process for process in self.site.processes() if process.pid not in workers]
        if children:
            children[int(fault.which * len(children))].kill()

    def _sigterm_worker(self, fault: Fault) -> None:
        """Ask a worker to end."""
        self.site.workers[int(fault.which * len(self.site.workers))].process.terminate()

    def _stop_worker(self, fault: Fault) -> None:
        """Stop a worker for up to two leases."""
        process = self.site.workers[int(fault.which * len(self.site.workers))].process
        process.send_signal(signal.SIGSTOP)
        self._later(2 * LEASE_S * fault.long, lambda: process.send_signal(signal.SIGCONT))

    def _flushall(self, fault: Fault) -> None:
        """Empty the broker."""
        with self.site.valkey.client() as client:
            client.flushall()

    def _broker_away(self, fault: Fault) -> None:
        """End the broker by SIGTERM or SIGKILL, and start it again, empty."""
        if self.site.valkey.is_started:
            (self.site.valkey.kill if fault.how < 0.5 else self.site.valkey.stop)()  # noqa: PLR2004 - one of two
            self._later(3.0 * fault.long, self.site.valkey.start)

    def _database_away(self, fault: Fault) -> None:
        """End the database at once or by SIGKILL, and start it again; now and then for longer than a lease."""
        if self.site.postgres.is_started:
            self.site.database.engine.dispose()
            (self.site.postgres.kill if fault.how < 0.5 else self.site.postgres.stop_immediately)()  # noqa: PLR2004
            self._later(1.5 * LEASE_S * fault.long**2, self.site.postgres.start)

    def _duplicates(self, fault: Fault) -> None:
        """Send messages of step runs in any state, each one to five times."""
        dice = random.Random(fault.which)  # noqa: S311 - repeatable on purpose
        for step, job_id, run_id, queue in self.stream.step_runs(20, dice):
            for _ in range(dice.randint(1, 5)):
                self._sender.send_task(task_name(step), args=(job_id, run_id), queue=queue_name(queue), retry=False)

    def _poison(self, fault: Fault) -> None:
        """Submit a file that must fail."""
        self.stream.feed_poison("segv" if fault.how < 0.5 else "noise")  # noqa: PLR2004 - one of two


def run(seconds: float, seed: int, *, keep: bool = False) -> int:
    """Run a soak and print its verdict; return the exit status."""
    folder = Path(tempfile.mkdtemp(prefix="vj-soak-"))
    site = Site(folder)
    bad = False
    try:
        site.start()
        soak = Soak(site, Stream(site.database, folder, read_speech(), random.Random(seed)))  # noqa: S311
        soak.calm()
        soak.storm(seed, seconds)
        verdict = soak.drain()
        bad = bool(verdict.lost or verdict.doubled)
        for story in verdict.stories:
            print(story, file=sys.stderr)
        print(f"jobs {verdict.jobs} faults {soak.faults} lost {verdict.lost} doubled {verdict.doubled}")
    finally:
        site.close()
        if keep or bad:
            print(f"see {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return int(bad)
