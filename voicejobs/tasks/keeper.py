"""Keep the leases of this process: one heartbeat for all of them, and a word to tasks that must stop."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import Connection

from voicejobs.errors import Cancelled, LeaseLost, ShuttingDown, StepTimeout, VoicejobsError
from voicejobs.store import leases, outbox
from voicejobs.store.database import Database
from voicejobs.store.jobs import send_again
from voicejobs.store.leases import Ending, Lease
from voicejobs.store.states import StepState

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""How often running tasks learn that their job was cancelled."""


@dataclass(slots=True, eq=False)
class Hold:
    """Stand for one held lease; its task looks at it between windows.

    `base_s` and `factor` limit the time of the step: the one whatever its audio, the other for each second of it.
    """

    lease: Lease
    reason: VoicejobsError | None = None
    base_s: float = float("inf")
    factor: float = 0.0
    until: float = float("inf")
    _started: float = field(default_factory=time.monotonic)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def allow(self, audio_s: float) -> None:
        """Give the step the time that so much audio may take, counted from its start."""
        self.until = self._started + self.base_s + self.factor * audio_s

    def stop(self, reason: VoicejobsError) -> None:
        """Tell the task to stop; the first reason stays."""
        if self.reason is None:
            self.reason = reason
        self._stopped.set()

    @property
    def is_stopped(self) -> bool:
        """Tell whether the task should stop."""
        return self._stopped.is_set()

    def check(self) -> None:
        """Raise the reason to stop, if there is one."""
        if self._stopped.is_set():
            raise self.reason or LeaseLost(self.lease.step_run_id)


class LeaseKeeper:
    """Run the heartbeat of all leases of one process in one thread.

    Args:
        database: the store.
        owner: who we are, as `Owner` writes it.
        lease_s: the length of a lease in seconds; heartbeats come three times as often.
        on_outage: called when the database did not answer a heartbeat.
    """

    def __init__(
        self, database: Database, owner: str, lease_s: float, *, on_outage: Callable[[], None] = lambda: None
    ) -> None:
        self.database = database
        self.owner = owner
        self.lease_s = lease_s
        self._on_outage = on_outage
        self._holds: dict[str, Hold] = {}
        self._owed: list[Lease] = []
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._closing: ShuttingDown | None = None
        self._thread = threading.Thread(target=self._run, name="lease-keeper", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; leases that are still held run out."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(timeout=self.lease_s)

    def shut_down(self) -> None:
        """Ask every task, also those that begin later, to stop and give its lease back."""
        self._closing = ShuttingDown("The worker is going down")
        with self._lock:
            for hold in self._holds.values():
                hold.stop(self._closing)

    @property
    def is_closing(self) -> bool:
        """Tell whether no new work should be claimed."""
        return self._closing is not None

    @property
    def held(self) -> int:
        """Return the number of leases held."""
        return len(self._holds)

    @contextmanager
    def hold(self, lease: Lease, *, base_s: float = float("inf"), factor: float = 0.0) -> Iterator[Hold]:
        """Keep a lease alive for the time of the block; `base_s` and `factor` are those of `Hold`."""
        hold = Hold(lease, base_s=base_s, factor=factor)
        hold.allow(0.0)
        with self._lock:
            before = self._holds.get(lease.step_run_id)
            self._holds[lease.step_run_id] = hold
        if before is not None:  # our own lease ran out while we were held up, and we claimed the step run again
            before.stop(LeaseLost(f"The step run {lease.step_run_id} was claimed again"))
        if self._closing is not None:
            hold.stop(self._closing)
        try:
            yield hold
        finally:
            with self._lock:
                if self._holds.get(lease.step_run_id) is hold:
                    del self._holds[lease.step_run_id]

    def owe(self, lease: Lease) -> None:
        """Give a lease back as soon as the database answers again: its task could not tell how it ended.

        Left alone it would run out, as if this worker had died under the job.
        """
        with self._lock:
            self._owed.append(lease)

    def _run(self) -> None:
        """Beat and look until the end."""
        next_beat = time.monotonic() + self.lease_s / 3
        while not self._end.wait(min(LOOK_EVERY_S, self.lease_s / 6)):
            if not self._holds and not self._owed:
                next_beat = time.monotonic() + self.lease_s / 3
                continue
            self._stop_late()
            try:
                self._pay()
                self._look()
                if time.monotonic() >= next_beat:
                    self._beat()
                    next_beat = time.monotonic() + self.lease_s / 3
            except VoicejobsError as error:
                logger.warning("heartbeat failed", extra={"error": error.message})
                self._on_outage()
            except Exception:
                logger.exception("heartbeat failed")
                self._on_outage()

    def _pay(self) -> None:
        """Give back what is owed; a lease that is no longer ours, or whose commit got through after all, is not."""
        with self._lock:
            owed = list(self._owed)
        for lease in owed:
            with suppress(LeaseLost):
                self.database.run(partial(_give_back, lease=lease, owner=self.owner))
            with self._lock:
                self._owed.remove(lease)

    def _stop_late(self) -> None:
        """Stop the tasks whose time is over."""
        now = time.monotonic()
        with self._lock:
            late = [hold for hold in self._holds.values() if now > hold.until and not hold.is_stopped]
        for hold in late:
            hold.stop(StepTimeout(f"The step {hold.lease.step!r} took longer than its recording allows"))

    def _look(self) -> None:
        """Stop the tasks of jobs that are no longer to run."""
        with self.database.read() as connection:
            stopped = outbox.stopped_jobs(connection, self.owner)
        for step_run_id, state in stopped:
            hold = self._holds.get(step_run_id)
            if hold is not None:
                hold.stop(Cancelled(f"The job is {state}"))

    def _beat(self) -> None:
        """Extend the leases, and stop the tasks whose lease is gone."""
        with self._lock:
            before = {(hold.lease.step_run_id, hold.lease.fence): hold for hold in self._holds.values()}
        with self.database.begin() as connection:
            alive = outbox.heartbeat(connection, self.owner, self.lease_s, [step_run_id for step_run_id, _ in before])
        for key, hold in before.items():
            if key not in alive:
                hold.stop(LeaseLost(f"The step run {hold.lease.step_run_id} is no longer ours"))


def _give_back(connection: Connection, *, lease: Lease, owner: str) -> None:
    """Put a step run back to the queue, at no cost to its job."""
    leases.end(connection, lease, Ending(StepState.QUEUED, "released"), owner=owner)
    send_again(connection, lease.job_id)
