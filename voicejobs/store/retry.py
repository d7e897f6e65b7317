"""Take ended jobs up again: the rows of a job go back to a state from which workers can run it.

Every function works in the caller's transaction. Attempts stay as they are: the fencing numbers go on where they were.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, case, delete, func, insert, literal, select, update

from voicejobs.errors import AudioGone
from voicejobs.store.database import now_s
from voicejobs.store.jobs import NewStepRun, insert_step_runs, send_again
from voicejobs.store.leases import dump
from voicejobs.store.schema import attempts, batches, jobs, results, step_runs
from voicejobs.store.states import LIVE_JOB, BatchState, JobState, StepState

RETRIABLE_JOB = (JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED)

_JOB = (
    jobs.c.id, jobs.c.batch_id, jobs.c.pipeline, jobs.c.pipeline_version, jobs.c.options, jobs.c.source,
    jobs.c.source_name, jobs.c.input_sha256, jobs.c.target, jobs.c.state,
)  # fmt: skip
_AFRESH = {
    "failures": 0,
    "progress_s": 0.0,
    "output": None,
    "checkpoint": None,
    "owner": None,
    "lease_until": None,
    "error_code": None,
    "error": None,
    "started_at": None,
    "finished_at": None,
}


def find(
    connection: Connection, *, job_ids: Sequence[str] | None = None, batch_id: str = "", states: Iterable[str] = ()
) -> list[Any]:
    """Return the jobs that are named, or those of a batch, in some states, in the order of their submission."""
    query = select(*_JOB).order_by(jobs.c.seq, jobs.c.id)
    query = query.where(jobs.c.id.in_(job_ids)) if job_ids is not None else query.where(jobs.c.batch_id == batch_id)
    chosen = tuple(states)
    return list(connection.execute(query.where(jobs.c.state.in_(chosen)) if chosen else query))


def lock(connection: Connection, job_ids: Sequence[str]) -> dict[str, list[Any]]:
    """Lock the step runs of jobs, and return them by job; step runs are locked before jobs, as everywhere."""
    found: dict[str, list[Any]] = {job_id: [] for job_id in job_ids}
    query = (
        select(step_runs.c.id, step_runs.c.job_id, step_runs.c.node, step_runs.c.state, step_runs.c.step_version)
        .where(step_runs.c.job_id.in_(job_ids))
        .order_by(step_runs.c.id)
        .with_for_update()
    )
    for row in connection.execute(query):
        found[row.job_id].append(row)
    return found


def reopen_job(connection: Connection, job_id: str, values: Mapping[str, Any]) -> bool:
    """Queue an ended job with new values of some columns; False where somebody else has taken it up already."""
    changed: int = connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id, jobs.c.state.in_(RETRIABLE_JOB))
        .values(
            state=JobState.QUEUED,
            sent_at=None,
            run_after=None,
            deaths=0,
            error_code=None,
            error=None,
            outputs=None,
            started_at=None,
            finished_at=None,
            # Whoever takes it up again wants it late rather than never; its old moment may have passed.
            expires_at=None,
            **values,
        )
    ).rowcount
    if changed:
        # Its last commit may have come after it had expired; the artifact stays for those who deliver it.
        connection.execute(delete(results).where(results.c.job_id == job_id))
    return changed == 1


def reset_steps(connection: Connection, job_id: str, present: Sequence[Any], wanted: Sequence[NewStepRun]) -> None:
    """Give a job the step runs `wanted` to begin with; of those it has, the others are skipped until they return.

    A step run at work loses its lease: whoever runs it finds the fencing number raised, and changes nothing.
    """
    _note_lost(connection, job_id)
    connection.execute(
        update(step_runs)
        .where(step_runs.c.job_id == job_id)
        .values(state=StepState.SKIPPED, **_AFRESH, fence=_raised())
    )
    places = {row.node for row in present}
    for row in wanted:
        if row.node in places:
            connection.execute(
                update(step_runs)
                .where(step_runs.c.job_id == job_id, step_runs.c.node == row.node)
                .values(
                    state=row.state, step_version=row.step_version, queue=row.queue, depth=row.depth,
                    inputs=dump(row.inputs or {}),
                )
            )  # fmt: skip
    missing = [row for row in wanted if row.node not in places]
    if missing:
        insert_step_runs(connection, job_id, missing)


def begin_anew(connection: Connection, job_id: str, wanted: Sequence[NewStepRun]) -> int:
    """Take a live job back to its first steps, because what they made is gone; return how often that was so.

    What had succeeded counts as lost in the story. A job that has ended meanwhile stays as it is.
    """
    present = lock(connection, [job_id])[job_id]
    state = connection.execute(select(jobs.c.state).where(jobs.c.id == job_id).with_for_update()).scalar_one()
    if state not in LIVE_JOB:
        return 0
    connection.execute(
        update(attempts)
        .where(attempts.c.step_run_id.in_([row.id for row in present]), attempts.c.outcome == "succeeded")
        .values(outcome="lost")
    )
    reset_steps(connection, job_id, present, wanted)
    return int(
        connection.execute(
            select(func.count())
            .select_from(attempts)
            .where(attempts.c.step_run_id.in_([row.id for row in present]), attempts.c.error_code == AudioGone.code)
        ).scalar_one()
    )


def deliver_known(connection: Connection, job_id: str, wanted: Sequence[NewStepRun]) -> None:
    """Let a live job go on with its last step alone, and put it into the outbox: what comes before has been found."""
    present = lock(connection, [job_id])[job_id]
    state = connection.execute(select(jobs.c.state).where(jobs.c.id == job_id).with_for_update()).scalar_one()
    if state in LIVE_JOB:
        reset_steps(connection, job_id, present, wanted)
        send_again(connection, job_id)


def reset_last(connection: Connection, job_id: str, node: str) -> None:
    """Queue the last node of a job alone: all before it has run. A worker that is still at it loses its lease."""
    _note_lost(connection, job_id)
    connection.execute(
        update(step_runs)
        .where(step_runs.c.job_id == job_id, step_runs.c.node == node)
        .values(state=StepState.QUEUED, **_AFRESH, fence=_raised())
    )


def reopen_batches(connection: Connection, batch_ids: Iterable[str]) -> None:
    """Let batches be in progress again; they complete when the jobs that were taken up have ended."""
    connection.execute(
        update(batches)
        .where(batches.c.id.in_(sorted(set(batch_ids))))
        .values(state=BatchState.IN_PROGRESS, finished_at=None, sealed_at=func.coalesce(batches.c.sealed_at, now_s()))
    )


def _raised() -> Any:
    """Return the fencing number that ends a lease: that of a step run at work is raised."""
    return case((step_runs.c.state == StepState.RUNNING, step_runs.c.fence + 1), else_=step_runs.c.fence)


def _note_lost(connection: Connection, job_id: str) -> None:
    """Add a line to the story of each step run that is at work."""
    connection.execute(
        insert(attempts).from_select(
            ["step_run_id", "fence", "outcome", "owner", "worker", "device", "started_at", "finished_at"],
            select(
                step_runs.c.id,
                step_runs.c.fence,
                literal("cancelled"),
                step_runs.c.owner,
                step_runs.c.worker,
                step_runs.c.device,
                step_runs.c.started_at,
                now_s(),
            ).where(step_runs.c.job_id == job_id, step_runs.c.state == StepState.RUNNING),
        )
    )
