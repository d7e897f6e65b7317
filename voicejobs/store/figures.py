"""What the rows say about the work at this moment, in numbers: the queries behind metrics.

All but `ended` read what waits or runs through partial indexes, and cost the same however much lies in the database.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, case, func, select, text

from voicejobs.store.database import now_s
from voicejobs.store.schema import (
    CANCELLING,
    RUNNING,
    SENT,
    UNDELIVERED,
    UNSENT,
    batches,
    deliveries,
    jobs,
    qualified,
    step_runs,
)
from voicejobs.store.states import JobState, StepState

_IDS_AT_ONCE = 500
_UNSENT, _SENT = text(qualified("jobs", UNSENT)), text(qualified("jobs", SENT))
_CANCELLING = text(qualified("jobs", CANCELLING))
_RUNNING = text(qualified("step_runs", RUNNING))
Rows = Sequence[Any]


def waiting_jobs(connection: Connection) -> Rows:
    """Return lane, number and age in seconds of the oldest of the jobs that were not yet sent to workers.

    The age is that of their batch: nothing but the partial index is read, however many jobs wait.
    """
    waiting = (
        select(jobs.c.batch_id, func.count().label("jobs")).where(_UNSENT).group_by(jobs.c.batch_id).subquery("waiting")
    )
    return connection.execute(
        select(
            batches.c.lane,
            func.sum(waiting.c.jobs).label("jobs"),
            (now_s() - func.min(batches.c.created_at)).label("age_s"),
        )
        .join(waiting, waiting.c.batch_id == batches.c.id)
        .group_by(batches.c.lane)
    ).all()


def sent_jobs(connection: Connection) -> Rows:
    """Return state and number of the jobs that are with the workers, and of those that are being cancelled."""
    with_workers = (
        select(jobs.c.state, func.count().label("jobs"))
        .where(_SENT, jobs.c.state != JobState.CANCELLING)
        .group_by(jobs.c.state)
    )
    leaving = select(jobs.c.state, func.count().label("jobs")).where(_CANCELLING).group_by(jobs.c.state)
    return [*connection.execute(with_workers), *connection.execute(leaving)]


@dataclass(frozen=True, slots=True)
class Queue:
    """Hold how many step runs wait in a queue, and for how many seconds the oldest of them has."""

    queue: str
    steps: int
    age_s: float


def queues(connection: Connection) -> list[Queue]:
    """Return the queues in which step runs wait for a worker to take them.

    Counted are those of jobs that were sent: the others wait in the outbox, whose length `waiting_jobs` tells.
    """
    sent = {row.id: row.sent_at for row in connection.execute(select(jobs.c.id, jobs.c.sent_at).where(_SENT))}
    ids, since = list(sent), dict[str, list[float]]()
    for first in range(0, len(ids), _IDS_AT_ONCE):
        rows = connection.execute(
            select(step_runs.c.queue, step_runs.c.job_id, step_runs.c.created_at).where(
                step_runs.c.job_id.in_(ids[first : first + _IDS_AT_ONCE]), step_runs.c.state == StepState.QUEUED
            )
        )
        for row in rows:  # a shard waits since it was made, what came with its job since that was sent
            since.setdefault(row.queue, []).append(max(row.created_at, sent[row.job_id]))
    now = connection.execute(select(now_s())).scalar_one() if since else 0.0
    return [Queue(name, len(times), max(0.0, now - min(times))) for name, times in since.items()]


def running_steps(connection: Connection) -> Rows:
    """Return step, number, and number of those whose lease has run out, of the step runs that workers hold."""
    late = case((step_runs.c.lease_until < now_s(), 1), else_=0)
    return connection.execute(
        select(step_runs.c.step, func.count().label("steps"), func.sum(late).label("late"))
        .where(_RUNNING)
        .group_by(step_runs.c.step)
    ).all()


def ended(connection: Connection) -> Rows:
    """Return state, code of the error, number and seconds of audio of all jobs that have ended: reads the table."""
    return connection.execute(
        select(
            jobs.c.state,
            jobs.c.error_code,
            func.count().label("jobs"),
            func.coalesce(func.sum(jobs.c.audio_s), 0.0).label("audio_s"),
        )
        .where(jobs.c.finished_at.is_not(None))
        .group_by(jobs.c.state, jobs.c.error_code)
    ).all()


def open_batches(connection: Connection) -> Rows:
    """Return lane and number of the batches that have not ended."""
    return connection.execute(
        select(batches.c.lane, func.count().label("batches"))
        .where(batches.c.finished_at.is_(None))
        .group_by(batches.c.lane)
    ).all()


def owed_deliveries(connection: Connection) -> Any:
    """Return number and age of the oldest in seconds of the messages that webhooks are still owed."""
    return connection.execute(
        select(func.count().label("owed"), (now_s() - func.min(deliveries.c.created_at)).label("age_s")).where(
            text(qualified("deliveries", UNDELIVERED))
        )
    ).one()
