"""What the tasks of one worker process share: store, leases, decoder, engine processes and the upkeep thread."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from celery import Celery
from sqlalchemy import select

from voicejobs import dispatch, notices, spans
from voicejobs.errors import DatabaseUnavailable, VoicejobsError
from voicejobs.hosting.decoder import Decoder
from voicejobs.hosting.host import EngineHost
from voicejobs.hosting.specs import VAD_SPEC, Seat
from voicejobs.memory import MemoryGuard
from voicejobs.messages import QUEUE_CLASSES, queue_name
from voicejobs.settings import Settings
from voicejobs.store import drafts, files, migrate
from voicejobs.store.database import Database, now_s
from voicejobs.store.jobs import live_among
from voicejobs.store.owners import Owner
from voicejobs.store.remote_blobs import blob_store
from voicejobs.store.reports import Report, put_report
from voicejobs.store.wakes import JOBS, Wakes
from voicejobs.tallies import Tally
from voicejobs.tasks.bell import Bell
from voicejobs.tasks.keeper import LeaseKeeper
from voicejobs.tasks.watch import Watch
from voicejobs.tasks.watchdog import Signs, Watchdog

T = TypeVar("T")

logger = logging.getLogger(__name__)

SCHEMA_WAIT_S = 60.0
FILL_EVERY_S = 0.5
FILL_TOGETHER_S = 0.05
TICK_EVERY_S = 5.0
LOST_LOOK_EVERY_S = 3.0
SCRATCH_EVERY_S = 60.0
EXPIRE_EVERY_S = 60.0
REPORT_EVERY_S = 5.0
MEMORY_LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class Place(Seat):
    """Say where this worker stands, besides where its engines run.

    Args:
        worker: name for the story of each step run.
        device: likewise.
        window_jobs: jobs that the dispatcher keeps out at once.
        is_restart: whether the worker before this one died: what it held may have killed it.
    """

    worker: str = "worker"
    device: str = "cpu"
    window_jobs: int = 16
    is_restart: bool = False


class Once:
    """Remember answers that many step runs of a job ask for; each is found once, the oldest are forgotten."""

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._answers: dict[Hashable, Any] = {}

    def get(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return the answer for `key`, finding it where nobody has asked yet; askers wait for each other."""
        with self._lock:
            if key not in self._answers:
                while len(self._answers) >= self._size:
                    del self._answers[next(iter(self._answers))]
                self._answers[key] = find()
            answer: T = self._answers[key]
            return answer


class AudioBudget:
    """Bound the samples that tasks hold in memory at once; whoever asks for more waits."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._held_samples = 0

    @contextmanager
    def reserve(self, samples: int, limit_samples: int, check: Callable[[], None]) -> Iterator[None]:
        """Hold `samples` for the time of the block; one reservation is always granted, however large.

        Args:
            samples: how many are to be read.
            limit_samples: how many may be held together.
            check: called now and then while waiting; raises to give up.
        """
        with self._condition:
            while self._held_samples and self._held_samples + samples > limit_samples:
                check()
                self._condition.wait(1.0)
            self._held_samples += samples
        try:
            yield
        finally:
            with self._condition:
                self._held_samples -= samples
                self._condition.notify_all()


class Runtime:
    """Own everything that tasks need; made once for each worker process, at the first task or at its start."""

    def __init__(self, settings: Settings, app: Celery, place: Place) -> None:
        self.settings = settings
        self.app = app
        self.place = place
        self.owner = str(Owner.of_this_process())
        self.database = Database(settings.effective_database_url, pool_size=place.window_jobs)
        self.blobs = blob_store(settings, memory=True)
        self.decoder = Decoder(settings)
        self.host = EngineHost(settings)
        self.tally = Tally()
        self.upkeep = dispatch.Upkeep(self.database, app, settings.lease_s, wake=self.ring, tally=self.tally)
        self.keeper = LeaseKeeper(self.database, self.owner, settings.lease_s, on_outage=self.upkeep.database_was_away)
        self.languages = Once()
        self.audio = AudioBudget()
        self.sound = AudioBudget()
        self.watch = Watch()
        self.taken = 0
        self._turned_at = time.monotonic()
        self._watchdog = Watchdog(self._signs(), settings.stall_s)
        self.memory = MemoryGuard(settings.max_memory_bytes)
        self._paused: notices.Notice | None = None
        self._notice_due = 0.0
        self._sent = 0
        self._bell = Bell(FILL_EVERY_S, FILL_TOGETHER_S)
        self._wakes = Wakes(self.database, JOBS, self._bell.call)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)

    def start(self) -> None:
        """Start the decoder and the threads."""
        self.blobs.make_folders()
        spans.configure(self.settings.otel_endpoint, "worker")
        self.decoder.start()
        self._guard(self._warm)
        self.keeper.start()
        self._thread.start()
        if self.settings.stall_s:
            self._watchdog.start()

    def serves(self, queue_class: str) -> bool:
        """Tell whether this worker takes the messages of a queue class; another's must not run here."""
        return queue_name(queue_class) in self.app.amqp.queues.consume_from

    def ring(self) -> None:
        """Wake the dispatcher: a job has ended, or came back to the outbox."""
        self._bell.ring()

    def shut_down(self) -> None:
        """Stop claiming, and ask running tasks to give their leases back."""
        self.keeper.shut_down()

    def close(self) -> None:
        """End the threads and the child processes."""
        self._watchdog.close()
        self._end.set()
        self._bell.close()
        self._wakes.close()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        self.keeper.close()
        self.host.close()
        self.decoder.close()
        self.database.close()
        spans.close()

    def _run(self) -> None:
        """Dispatch when called or rung, and now and then; look after leases, messages and idle engines."""
        self._wait_for_schema()
        self._guard(self._begin)
        self._wakes.start()
        duties: list[tuple[float, Callable[[], object]]] = [
            (TICK_EVERY_S, self.upkeep.tick),
            (LOST_LOOK_EVERY_S, self.upkeep.find_lost_messages),
            (SCRATCH_EVERY_S, self._sweep_scratch),
            (EXPIRE_EVERY_S, self._end_uploads),
            (REPORT_EVERY_S, self._report),
            *([(MEMORY_LOOK_S, self._look_at_memory)] if self.memory.limit_bytes else []),
        ]
        due = [time.monotonic() + every for every, _ in duties]
        while not self._end.is_set():
            self._turned_at = time.monotonic()
            sent_before = self._sent
            if not self.keeper.is_closing:
                self._guard(self._fill)
            self._bell.found(something=self._sent > sent_before)
            now = time.monotonic()
            for index, (every, duty) in enumerate(duties):
                if now >= due[index]:
                    self._guard(duty)
                    due[index] = now + every
            # Jobs end one by one; the window is wide enough to refill for several at once.
            self._bell.wait()

    def _warm(self) -> None:
        """Load the detector in the background: the first file of every run needs it."""
        self.host.warm(VAD_SPEC)

    def _sweep_scratch(self, older_than_s: float = SCRATCH_EVERY_S) -> None:
        """Remove decoded audio whose job has ended without a step of ours: cancelled, expired, given up."""
        jobs = self.blobs.jobs_in_scratch(older_than_s=older_than_s)
        with self.database.read() as connection:
            live = live_among(connection, sorted(jobs))
        for job_id in jobs - live:
            self.blobs.remove_scratch(job_id)

    def _report(self) -> None:
        """Tell what this worker counts, in its row: the service shows it, and no port has to be opened for that."""
        host = self.place.worker if "@" in self.place.worker else f"{self.place.worker}@{socket.gethostname()}"
        told = {
            "held": self.keeper.held,
            "taken": self.taken,
            "window": self.place.window_jobs,
            "counts": self.tally.to_json(),
            "pools": self.host.figures(),
        }
        put_report(self.database, Report(self.owner, host, self.place.device, 0.0, told))

    def _end_uploads(self) -> None:
        """Remove the parts of uploads that were not completed in time, and batches that were never whole."""
        files.expire(self.database, self.blobs)
        drafts.expire(self.database)

    def _begin(self) -> None:
        """Free what dead workers of this machine held, before anything else."""
        self._look_at_memory()
        self.upkeep.stack_started(after_crash=self.place.is_restart)
        self._fill()
        self._sweep_scratch(older_than_s=0.0)

    def _fill(self) -> None:
        """Send what the window has room for, while this machine has disk and this worker memory for it."""
        if not self._has_room():
            return
        sent = dispatch.fill(self.database, self.app, self.place.window_jobs)
        if sent:
            self._sent += sent
            self.tally.add("sent", sent)

    def _has_room(self) -> bool:
        """Tell whether disk and memory allow further jobs; say so, in the log and to whoever waits for jobs."""
        notice = self._why_paused()
        now = time.monotonic()
        changed = bool(notice) != bool(self._paused)
        if changed or (notice and now >= self._notice_due):
            self._notice_due = now + notices.REPEAT_S
            with self.app.connection_for_write() as connection:
                notices.tell(connection, f"{socket.gethostname()}/{self.place.worker}", notice)
        if changed:
            told = {"code": notice.code, "reason": notice.text} if notice else {}
            logger.warning("no job is begun" if notice else "jobs are begun again", extra=told)
        self._paused = notice
        return notice is None

    def _why_paused(self) -> notices.Notice | None:
        """Return why this worker begins no job; None where it does."""
        reason = notices.disk_low(self.settings)
        if reason:
            return notices.Notice(notices.DISK_LOW, reason)
        return notices.Notice(notices.MEMORY_LOW, self.memory.reason) if self.memory.reason else None

    def _look_at_memory(self) -> None:
        """Measure what this worker holds; where that is too much, what is idle goes at once."""
        if self.memory.look():
            self.host.end_idle()

    def _wait_for_schema(self) -> None:
        """Wait until somebody has migrated the database: commands and the deployment do, workers never."""
        deadline = time.monotonic() + SCHEMA_WAIT_S
        while not self._end.is_set():
            self._turned_at = time.monotonic()
            try:
                migrate.check(self.database)
            except VoicejobsError as error:
                if time.monotonic() > deadline:
                    logger.warning("waiting for the database", extra={"error": error.message})
                    deadline += SCHEMA_WAIT_S
                self._end.wait(0.05)
            else:
                return

    def _signs(self) -> Signs:
        """Return what tells the watchdog that this worker lives."""
        return Signs(
            turned_at=lambda: self._turned_at,
            taken=lambda: self.taken,
            is_idle=lambda: not self.keeper.held,
            is_closing=lambda: self.keeper.is_closing,
            # Asked each time: Celery settles the queues of a worker after its runtime is made.
            waiting=lambda: self.upkeep.messages_in([name for name in QUEUE_CLASSES if self.serves(name)]),
            answers=self._database_answers,
        )

    def _database_answers(self) -> bool:
        """Ask the database on a connection of its own: those of the pool may be what we wait for."""
        with closing(Database(self.settings.effective_database_url, pool_size=1)) as database:
            try:
                with database.read() as connection:
                    connection.execute(select(now_s()))
            except DatabaseUnavailable:
                return False
        return True

    def _guard(self, duty: Callable[[], object]) -> None:
        """Run a duty; what it cannot do now it can do next time."""
        try:
            duty()
        except VoicejobsError as error:
            if isinstance(error, DatabaseUnavailable):  # a worker without leases has no heartbeat that would tell
                self.upkeep.database_was_away()
            logger.warning("upkeep failed", extra={"duty": duty.__name__, "error": error.message})
        except Exception:
            logger.exception("upkeep failed", extra={"duty": duty.__name__})
