"""The outbox and its upkeep: which jobs go to the broker next, and which come back from the dead."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, func, insert, literal, or_, select, text, update

from voicejobs.store.database import Database, now_s
from voicejobs.store.jobs import DRAFT
from voicejobs.store.locks import lock_in_order
from voicejobs.store.owners import Owner
from voicejobs.store.schema import RUNNING, SENT, UNSENT, attempts, batches, jobs, qualified, step_runs
from voicejobs.store.states import FINAL_JOB, LIVE_JOB, STARTABLE_JOB, BatchState, StepState

DEATHS_BEFORE_ISOLATION = 3
"""Workers that may die under a job before it runs alone."""

_DISPATCH_LOCK = 0x766A0001
_SUBMIT_LOCK = 0x766A0002

# Word for word the predicates of the partial indexes in `schema`; the columns carry their table, since queries join.
_SENT = text(qualified("jobs", SENT))
_UNSENT = text(qualified("jobs", UNSENT))
_RUNNING = text(qualified("step_runs", RUNNING))


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """Name an unfinished batch and its tenant, how many of its jobs are out, and whether one must run alone.

    `priority` is the least of its jobs that wait; None where none does, or none may go: the batch is being cancelled,
    or has `concurrency` jobs out.
    """

    id: str
    tenant: str
    lane: str
    in_flight: int
    has_isolated: bool
    priority: int | None = None
    concurrency: int | None = None


def lock_dispatch(connection: Connection, database: Database) -> bool:
    """Take the right to dispatch until the transaction ends; False where another process has it."""
    if database.is_sqlite:
        return True  # the write transaction is the lock
    return bool(
        connection.execute(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _DISPATCH_LOCK}).scalar_one()
    )


def lock_submissions(connection: Connection, database: Database) -> None:
    """Let no other submission of a manifest look for jobs and insert them until the transaction ends."""
    if not database.is_sqlite:  # there the write transaction is the lock
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SUBMIT_LOCK})


_waiting = jobs.alias("waiting")
_OPEN_BATCHES = (
    select(
        batches.c.id,
        batches.c.tenant,
        batches.c.lane,
        batches.c.state,
        batches.c.concurrency,
        func.count(jobs.c.id).label("in_flight"),
        func.coalesce(func.max(jobs.c.deaths), 0).label("deaths"),
        select(func.min(_waiting.c.priority))
        .where(_waiting.c.batch_id == batches.c.id, text(qualified("waiting", UNSENT)))
        .scalar_subquery()
        .label("priority"),
    )
    .outerjoin(jobs, and_(jobs.c.batch_id == batches.c.id, _SENT))
    .where(batches.c.finished_at.is_(None), batches.c.kind != DRAFT)
    .group_by(batches.c.id, batches.c.tenant, batches.c.lane, batches.c.state, batches.c.concurrency)
    .order_by(func.count(jobs.c.id), batches.c.id)
)


def open_batches(connection: Connection) -> list[OpenBatch]:
    """Return the unfinished batches of all lanes, those with the fewest jobs in flight first."""
    return [
        OpenBatch(
            row.id,
            row.tenant,
            row.lane,
            row.in_flight,
            row.deaths >= DEATHS_BEFORE_ISOLATION,
            row.priority if _may_go_on(row) else None,
            row.concurrency,
        )
        for row in connection.execute(_OPEN_BATCHES)
    ]


def _may_go_on(row: Any) -> bool:
    """Tell whether a further job of a batch may go."""
    has_room = row.concurrency is None or row.in_flight < row.concurrency
    return bool(has_room and row.state != BatchState.CANCELLING)


def unsent(connection: Connection, batch_id: str, limit: int) -> list[Any]:
    """Return id and deaths of the next unsent jobs of a batch that are due: by priority, longest first."""
    return list(
        connection.execute(
            select(jobs.c.id, jobs.c.deaths)
            .where(
                jobs.c.batch_id == batch_id,
                _UNSENT,
                or_(jobs.c.run_after.is_(None), jobs.c.run_after <= now_s()),
                or_(jobs.c.expires_at.is_(None), jobs.c.expires_at > now_s()),  # upkeep ends the others
            )
            .order_by(jobs.c.priority, jobs.c.cost_order, jobs.c.seq)
            .limit(limit)
        )
    )


def mark_sent(connection: Connection, job_ids: Sequence[str]) -> None:
    """Note that the canvases of these jobs go to the broker now."""
    lock_in_order(connection, jobs, jobs.c.id.in_(job_ids))
    connection.execute(
        update(jobs).where(jobs.c.id.in_(job_ids)).values(sent_at=now_s(), sent_count=jobs.c.sent_count + 1)
    )


def mark_unsent(connection: Connection, job_ids: Sequence[str]) -> None:
    """Put jobs back into the outbox, since the broker did not take them."""
    lock_in_order(connection, jobs, jobs.c.id.in_(job_ids))
    connection.execute(update(jobs).where(jobs.c.id.in_(job_ids), jobs.c.state.in_(LIVE_JOB)).values(sent_at=None))


def heartbeat(connection: Connection, owner: str, lease_s: float, step_run_ids: Sequence[str]) -> set[tuple[str, int]]:
    """Extend these leases of `owner` and return (step run id, fencing number) of those it still holds.

    What its rows say it holds and it knows nothing of runs out: the answer to a claim, or a commit, was lost.
    """
    rows = connection.execute(
        update(step_runs)
        .where(step_runs.c.owner == owner, step_runs.c.id.in_(step_run_ids), _RUNNING)
        .values(lease_until=now_s() + lease_s)
        .returning(step_runs.c.id, step_runs.c.fence)
    )
    return {(row.id, row.fence) for row in rows}


def stopped_jobs(connection: Connection, owner: str) -> list[tuple[str, str]]:
    """Return (step run id, job state) of what `owner` runs for jobs that are no longer to run."""
    rows = connection.execute(
        select(step_runs.c.id, jobs.c.state)
        .join(jobs, jobs.c.id == step_runs.c.job_id)
        .where(
            step_runs.c.owner == owner,
            _RUNNING,
            jobs.c.state.not_in(STARTABLE_JOB),
        )
    )
    return [(row.id, row.state) for row in rows]


def running_owners(connection: Connection) -> list[str]:
    """Return every owner that holds a lease."""
    return list(connection.execute(select(step_runs.c.owner).where(_RUNNING).distinct()).scalars())


def free_dead_owners(connection: Connection, *, count_deaths: bool) -> list[str]:
    """Free the leases of processes of this machine that are proven dead; return the ids of their jobs.

    `count_deaths` is False where a whole stack has just started: what ended it was no fault of the jobs.
    """
    freed: list[str] = []
    for owner in running_owners(connection):
        parsed = Owner.parse(owner or "")
        if parsed is not None and parsed.is_proven_dead:
            freed += _free(connection, step_runs.c.owner == owner, count_deaths=count_deaths)
    return freed


def free_expired(connection: Connection, *, grace_s: float) -> list[str]:
    """Free the leases that ran out `grace_s` seconds ago; return the ids of their jobs."""
    return _free(connection, step_runs.c.lease_until < now_s() - grace_s, count_deaths=True)


def _free(connection: Connection, which: Any, *, count_deaths: bool) -> list[str]:
    """Take running step runs from their owners: a line in their story, back to the queue, job to the outbox."""
    rows = connection.execute(select(step_runs).where(which, _RUNNING).with_for_update(skip_locked=True)).all()
    if not rows:
        return []
    ids = [row.id for row in rows]
    connection.execute(
        update(step_runs)
        .where(step_runs.c.id.in_(ids), step_runs.c.state == StepState.RUNNING)
        .values(state=StepState.QUEUED, fence=step_runs.c.fence + 1, owner=None, lease_until=None)
    )
    for row in rows:
        connection.execute(
            insert(attempts).values(
                step_run_id=row.id,
                fence=row.fence,
                outcome="lost",
                owner=row.owner,
                worker=row.worker,
                device=row.device,
                started_at=row.started_at,
                finished_at=now_s(),
                error_code="worker_lost",
                message="The worker died or fell silent while it held the lease",
            )
        )
    job_ids = sorted({row.job_id for row in rows})
    lock_in_order(connection, jobs, jobs.c.id.in_(job_ids))
    ended = select(jobs.c.id).where(jobs.c.id.in_(job_ids), jobs.c.state.in_(FINAL_JOB))
    connection.execute(
        update(step_runs)
        .where(step_runs.c.id.in_(ids), step_runs.c.job_id.in_(ended))
        .values(state=StepState.SKIPPED, finished_at=now_s())
    )
    connection.execute(
        update(jobs)
        .where(jobs.c.id.in_(job_ids), jobs.c.state.in_(LIVE_JOB))
        .values(sent_at=None, deaths=jobs.c.deaths + (1 if count_deaths else 0))
    )
    return job_ids


def waiting(connection: Connection) -> list[tuple[str, str]]:
    """Return (step run id, job id) of the queued step runs of sent jobs: each should have a message."""
    sent = list(connection.execute(select(jobs.c.id).where(_SENT)).scalars())  # no more than the windows hold
    rows = connection.execute(
        select(step_runs.c.id, step_runs.c.job_id).where(
            step_runs.c.job_id.in_(sent), step_runs.c.state == StepState.QUEUED
        )
    )
    return [(row.id, row.job_id) for row in rows]


def forget_sent(connection: Connection) -> int:
    """Return every live sent job without a running step to the outbox: a private broker starts empty."""
    busy = select(literal(1)).where(step_runs.c.job_id == jobs.c.id, step_runs.c.state == StepState.RUNNING).exists()
    return int(
        connection.execute(
            update(jobs).where(jobs.c.sent_at.is_not(None), jobs.c.state.in_(STARTABLE_JOB), ~busy).values(sent_at=None)
        ).rowcount
    )
