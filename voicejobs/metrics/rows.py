"""Metrics from the rows: what waits, what runs, what has ended, and how fast."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import Metric

from voicejobs.messages import QUEUE_CLASSES
from voicejobs.metrics.families import gauge
from voicejobs.queries import dead_letter_codes
from voicejobs.store import figures
from voicejobs.store.database import Database
from voicejobs.store.reports import Report, reports
from voicejobs.store.states import FINAL_JOB, LIVE_JOB, JobState

LANES = ("interactive", "bulk")


@dataclass(frozen=True, slots=True)
class Live:
    """Hold what the rows say of the work under way, what workers told, and the seconds that it took to ask."""

    waiting: figures.Rows
    sent: figures.Rows
    queues: Sequence[figures.Queue]
    running: figures.Rows
    batches: figures.Rows
    owed: Any
    workers: Sequence[Report]
    cost_s: float


def read_live(database: Database) -> Live:
    """Ask for what is under way."""
    began = time.monotonic()
    with database.read() as connection:
        return Live(
            waiting=figures.waiting_jobs(connection),
            sent=figures.sent_jobs(connection),
            queues=figures.queues(connection),
            running=figures.running_steps(connection),
            batches=figures.open_batches(connection),
            owed=figures.owed_deliveries(connection),
            workers=reports(connection),
            cost_s=time.monotonic() - began,
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """Hold what the rows say of jobs that have ended, when they were asked, and the speed since the time before."""

    rows: figures.Rows
    audio_s: float
    asked_at: float
    realtime_factor: float


class EndedReader:
    """Ask for what has ended; the difference to the answer before tells the speed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._before: Ended | None = None

    def read(self) -> Ended:
        """Ask."""
        with self._database.read() as connection:
            rows = figures.ended(connection)
        now, audio_s = time.monotonic(), sum(row.audio_s for row in rows if row.state == JobState.SUCCEEDED)
        before = self._before
        factor = max(0.0, audio_s - before.audio_s) / (now - before.asked_at) if before else 0.0
        self._before = Ended(rows, audio_s, now, factor)
        return self._before


def of_jobs(live: Live, ended: Ended) -> Iterator[Metric]:
    """Yield the metrics of jobs and batches."""
    states: Counter[str] = Counter(dict.fromkeys([*LIVE_JOB, *FINAL_JOB], 0))
    for row in [*live.sent, *ended.rows]:
        states[row.state] += row.jobs
    states[JobState.QUEUED] += sum(int(row.jobs) for row in live.waiting)  # those to be tried again, too
    dead = set(dead_letter_codes())
    yield gauge("jobs", "Jobs by state.", [({"state": str(state)}, count) for state, count in states.items()])
    yield gauge(
        "dead_letters",
        "Failed jobs that were given up after all attempts, or as poison.",
        [({}, sum(row.jobs for row in ended.rows if row.state == JobState.FAILED and row.error_code in dead))],
    )
    yield gauge(
        "done_audio_seconds", "Seconds of audio of the succeeded jobs that the database holds.", [({}, ended.audio_s)]
    )
    yield gauge(
        "realtime_factor",
        "Seconds of audio done in a second of time, between the last two counts of them.",
        [({}, ended.realtime_factor)],
    )
    batches = {row.lane: row.batches for row in live.batches}
    yield gauge(
        "open_batches", "Batches that have not ended.", [({"lane": lane}, batches.get(lane, 0)) for lane in LANES]
    )
    yield gauge("webhook_owed", "Messages that webhooks are owed.", [({}, live.owed.owed)])
    yield gauge("webhook_oldest_seconds", "Age of the oldest of them.", [({}, live.owed.age_s or 0.0)])
    yield gauge("metrics_query_seconds", "What the newest queries for this page took.", [({}, live.cost_s)])


def of_queues(live: Live) -> Iterator[Metric]:
    """Yield how much waits where, and since when."""
    waits = {row.lane: int(row.jobs) for row in live.waiting}
    oldest = {row.lane: float(row.age_s) for row in live.waiting}
    yield gauge(
        "outbox_jobs",
        "Jobs that were not yet sent to workers.",
        [({"lane": lane}, waits.get(lane, 0)) for lane in LANES],
    )
    yield gauge(
        "outbox_oldest_seconds",
        "Age of the oldest of them.",
        [({"lane": lane}, oldest.get(lane, 0.0)) for lane in LANES],
    )
    queued = {row.queue: row for row in live.queues}
    yield gauge(
        "queue_depth",
        "Step runs of jobs that were sent, which no worker has taken.",
        [({"queue": name}, queued[name].steps if name in queued else 0) for name in QUEUE_CLASSES],
    )
    yield gauge(
        "queue_oldest_seconds",
        "How long the oldest of them has waited.",
        [({"queue": name}, queued[name].age_s if name in queued else 0.0) for name in QUEUE_CLASSES],
    )
    yield gauge(
        "running_steps", "Step runs that workers hold.", [({"step": row.step}, row.steps) for row in live.running]
    )
    yield gauge(
        "late_leases",
        "Leases that have run out and were not taken back yet.",
        [({}, sum(row.late for row in live.running))],
    )
