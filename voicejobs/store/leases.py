"""The lease on a step run: claim, keep, commit, fail, give back.

Delivery is at least once; the fencing number makes the effect exactly once. Each claim raises it, and every later
statement names it: whoever comes with an old number changes nothing.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import (
    CTE,
    Connection,
    String,
    and_,
    bindparam,
    case,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.sql.expression import ColumnElement

from voicejobs.errors import LeaseLost, VoicejobsError
from voicejobs.store.database import Database, now_s
from voicejobs.store.schema import attempts, batches, jobs, step_runs
from voicejobs.store.states import LIVE_JOB, STARTABLE_JOB, JobState, StepState


@dataclass(frozen=True, slots=True)
class Lease:
    """Hold the right to run a step run, and what its task needs to know.

    `inputs` are those of the shard; `upstream` holds the outputs of earlier nodes, as JSON text, by node name and in
    the order of their shards: those of a ten-hour recording are too many to be parsed all at once.
    """

    step_run_id: str
    job_id: str
    batch_id: str
    node: str
    step: str
    step_version: int
    shard: int
    fence: int
    failures: int
    inputs: Mapping[str, Any]
    checkpoint: Mapping[str, Any] | None
    pipeline: str
    options: Mapping[str, Mapping[str, Any]]
    source: Mapping[str, Any]
    trace_id: str
    input_sha256: str | None
    result_key: str | None
    started_at: float
    lane: Literal["interactive", "bulk"] = "bulk"
    upstream: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def outputs(self, node: str) -> Iterator[Mapping[str, Any]]:
        """Yield the outputs of an earlier node, one at a time, in the order of their shards."""
        return map(json.loads, self.upstream.get(node, ()))


@dataclass(frozen=True, slots=True)
class Claimer:
    """Say who claims: owner as `Owner` writes it, the length of a lease, and worker and device for the story."""

    owner: str
    lease_s: float
    worker: str = ""
    device: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """Say how a step run ends when it does not succeed.

    Args:
        state: `failed`, `cancelled`, or `queued` to be taken up again.
        outcome: word for the story: `failed`, `retried`, `released`, `cancelled`.
        is_failure: whether it counts against the attempts.
        error: the reason.
        traceback: where it came from.
    """

    state: StepState
    outcome: str
    is_failure: bool = False
    error: VoicejobsError | None = None
    traceback: str | None = None


_job_is_startable = (
    select(literal(1))
    .where(
        jobs.c.id == step_runs.c.job_id,
        jobs.c.state.in_(STARTABLE_JOB),
        or_(jobs.c.run_after.is_(None), jobs.c.run_after <= now_s()),
    )
    .exists()
)

_CLAIM = (
    update(step_runs)
    .where(step_runs.c.id == bindparam("b_id"), step_runs.c.state == StepState.QUEUED, _job_is_startable)
    .values(
        state=StepState.RUNNING,
        fence=step_runs.c.fence + 1,
        owner=bindparam("b_owner"),
        worker=bindparam("b_worker"),
        device=bindparam("b_device"),
        lease_until=now_s() + bindparam("b_lease_s"),
        started_at=now_s(),
        finished_at=None,
        error_code=None,
        error=None,
    )
    .returning(
        step_runs.c.job_id,
        step_runs.c.node,
        step_runs.c.step,
        step_runs.c.step_version,
        step_runs.c.shard,
        step_runs.c.depth,
        step_runs.c.fence,
        step_runs.c.failures,
        step_runs.c.inputs,
        step_runs.c.checkpoint,
        step_runs.c.started_at,
    )
)

_JOB_COLUMNS = (
    jobs.c.batch_id,
    jobs.c.pipeline,
    jobs.c.options,
    jobs.c.source,
    jobs.c.trace_id,
    jobs.c.input_sha256,
    jobs.c.result_key,
    select(batches.c.lane).where(batches.c.id == jobs.c.batch_id).scalar_subquery().label("lane"),
)

_JOB_BEGINS = (
    update(jobs)
    .where(jobs.c.id == bindparam("b_id"))
    .values(
        state=case((jobs.c.state == JobState.QUEUED, JobState.RUNNING), else_=jobs.c.state),
        started_at=func.coalesce(jobs.c.started_at, now_s()),
    )
    .returning(*_JOB_COLUMNS)
)

_JOB_AND_UPSTREAM = (
    select(*_JOB_COLUMNS, jobs.c.state, step_runs.c.node, step_runs.c.output)
    .outerjoin(
        step_runs,
        and_(
            step_runs.c.job_id == jobs.c.id,
            step_runs.c.node != bindparam("b_node"),
            step_runs.c.state == StepState.SUCCEEDED,
        ),
    )
    .where(jobs.c.id == bindparam("b_id"))
    .order_by(step_runs.c.node, step_runs.c.shard)
)

_claimed = _CLAIM.cte("claimed")
_begun = (
    update(jobs)
    .where(jobs.c.id.in_(select(_claimed.c.job_id)), jobs.c.state == JobState.QUEUED)
    .values(state=JobState.RUNNING, started_at=func.coalesce(jobs.c.started_at, now_s()))
    .returning(jobs.c.id)
    .cte("begun")
)
_earlier = step_runs.alias("earlier")

_CLAIM_AT_ONCE = (
    select(
        *_claimed.c,
        *_JOB_COLUMNS,
        _earlier.c.node.label("earlier_node"),
        _earlier.c.output.label("earlier_output"),
    )
    .select_from(_claimed)
    .join(jobs, jobs.c.id == _claimed.c.job_id)
    .outerjoin(
        _earlier,
        and_(
            _claimed.c.depth > 0,
            _earlier.c.job_id == _claimed.c.job_id,
            _earlier.c.node != _claimed.c.node,
            _earlier.c.state == StepState.SUCCEEDED,
        ),
    )
    .order_by(_earlier.c.node, _earlier.c.shard)
    .add_cte(_begun)
)
"""The whole claim as one statement, for Postgres: each round trip costs more there than the work."""

HELD = and_(
    step_runs.c.id == bindparam("b_id"),
    step_runs.c.fence == bindparam("b_fence"),
    step_runs.c.state == StepState.RUNNING,
)

SUCCEED = (
    update(step_runs)
    .where(HELD)
    .values(
        state=StepState.SUCCEEDED,
        output=bindparam("b_output"),
        progress_s=bindparam("b_progress_s"),
        checkpoint=None,
        owner=None,
        lease_until=None,
        finished_at=now_s(),
    )
)

_job_is_live = select(literal(1)).where(jobs.c.id == step_runs.c.job_id, jobs.c.state.in_(LIVE_JOB)).exists()
_new_state = bindparam("b_state", type_=String)


def success() -> tuple[CTE, CTE]:
    """Return the success of a step run and its line in the story, as parts of a statement for Postgres."""
    done = SUCCEED.returning(
        step_runs.c.id, step_runs.c.fence, step_runs.c.worker, step_runs.c.device, step_runs.c.started_at
    ).cte("done")
    told = (
        insert(attempts)
        .from_select(
            ["step_run_id", "fence", "outcome", "owner", "worker", "device", "started_at", "finished_at"],
            select(
                done.c.id,
                done.c.fence,
                literal("succeeded"),
                bindparam("b_owner", type_=String),
                done.c.worker,
                done.c.device,
                done.c.started_at,
                now_s(),
            ),
        )
        .returning(attempts.c.fence)
        .cte("told")
    )
    return done, told


def count(part: CTE) -> ColumnElement[Any]:
    """Return how many rows a part of a statement has changed."""
    return select(func.count()).select_from(part).scalar_subquery()


def _succeed_at_once() -> Any:
    """Return success and its line in the story as one statement, for Postgres."""
    done, told = success()
    return select(count(done).label("succeeded")).add_cte(told)


_SUCCEED_AT_ONCE = _succeed_at_once()

_END = (
    update(step_runs)
    .where(HELD)
    .values(
        # The job may have ended meanwhile, by another of its step runs: then nothing waits any more.
        state=case((and_(_new_state == StepState.QUEUED, ~_job_is_live), StepState.SKIPPED), else_=_new_state),
        failures=step_runs.c.failures + bindparam("b_failures"),
        owner=None,
        lease_until=None,
        error_code=bindparam("b_error_code"),
        error=bindparam("b_error"),
        finished_at=case((literal(True) == bindparam("b_final"), now_s()), else_=None),
    )
)

_CHECKPOINT = (
    update(step_runs).where(HELD).values(checkpoint=bindparam("b_checkpoint"), progress_s=bindparam("b_progress_s"))
)

_PROGRESS = update(step_runs).where(HELD).values(progress_s=bindparam("b_progress_s"))

_ATTEMPT = insert(attempts).from_select(
    ["step_run_id", "fence", "outcome", "owner", "worker", "device", "started_at", "finished_at",
     "error_code", "message", "traceback"],
    select(
        step_runs.c.id,
        bindparam("b_fence"),
        bindparam("b_outcome"),
        bindparam("b_owner"),
        step_runs.c.worker,
        step_runs.c.device,
        step_runs.c.started_at,
        now_s(),
        bindparam("b_error_code"),
        bindparam("b_message"),
        bindparam("b_traceback"),
    ).where(step_runs.c.id == bindparam("b_id")),
)  # fmt: skip


def claim(database: Database, step_run_id: str, who: Claimer) -> Lease | None:
    """Take the lease of a queued step run, or return None: it is taken, done, or its job is no longer live."""
    values = {
        "b_id": step_run_id,
        "b_owner": who.owner,
        "b_worker": who.worker,
        "b_device": who.device,
        "b_lease_s": who.lease_s,
    }
    taken = _claim_in_steps(database, values) if database.is_sqlite else _claim_at_once(database, values)
    return None if taken is None else _lease(step_run_id, *taken)


_Taken = tuple[Any, Any, list[tuple[str, str]]]
"""The row of the step run, that of its job, and (node, output) of what ran before."""


def _claim_at_once(database: Database, values: Mapping[str, Any]) -> _Taken | None:
    """Claim with one statement."""
    with database.at_once() as connection:
        rows = connection.execute(_CLAIM_AT_ONCE, values).all()
    if not rows:
        return None
    return rows[0], rows[0], [(row.earlier_node, row.earlier_output) for row in rows if row.earlier_node is not None]


def _claim_in_steps(database: Database, values: Mapping[str, Any]) -> _Taken | None:
    """Claim in a transaction of two statements: SQLite changes only one table in one."""
    with database.begin(durable=False) as connection:
        row = connection.execute(_CLAIM, values).first()
        if row is None:
            return None
        if not row.depth:
            return row, connection.execute(_JOB_BEGINS, {"b_id": row.job_id}).one(), []
        found = connection.execute(_JOB_AND_UPSTREAM, {"b_id": row.job_id, "b_node": row.node}).all()
        # Only a job that was taken up again at its last node is still queued here; others need no writing of its row.
        if found[0].state == JobState.QUEUED:
            connection.execute(_JOB_BEGINS, {"b_id": row.job_id})
    return row, found[0], [(one.node, one.output) for one in found if one.node is not None]


def _lease(step_run_id: str, row: Any, job: Any, earlier: list[tuple[str, str]]) -> Lease:
    """Build the lease from what the claim has read."""
    upstream: dict[str, list[str]] = {}
    for node, output in earlier:
        upstream.setdefault(node, []).append(output)
    return Lease(
        step_run_id=step_run_id,
        job_id=row.job_id,
        batch_id=job.batch_id,
        node=row.node,
        step=row.step,
        step_version=row.step_version,
        shard=row.shard,
        fence=row.fence,
        failures=row.failures,
        inputs=json.loads(row.inputs),
        checkpoint=json.loads(row.checkpoint) if row.checkpoint else None,
        pipeline=job.pipeline,
        options=json.loads(job.options),
        source=json.loads(job.source),
        trace_id=job.trace_id,
        input_sha256=job.input_sha256,
        result_key=job.result_key,
        started_at=row.started_at,
        lane=job.lane,
        upstream=upstream,
    )


def succeed(
    connection: Connection, lease: Lease, output: Mapping[str, Any], *, owner: str, progress_s: float = 0.0
) -> None:
    """Commit a step run's output, inside the caller's transaction.

    Raises:
        LeaseLost: another claim has raised the fencing number; nothing is changed.
    """
    values = {
        "b_id": lease.step_run_id,
        "b_fence": lease.fence,
        "b_output": dump(kept(output)),
        "b_progress_s": progress_s,
    }
    if connection.dialect.name == "postgresql":
        demand_one(connection.execute(_SUCCEED_AT_ONCE, {**values, "b_owner": owner}).scalar_one(), lease)
    else:
        demand_one(connection.execute(SUCCEED, values).rowcount, lease)
        record_attempt(connection, lease, "succeeded", owner=owner)


def kept(output: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of an output: `shards` are the inputs of step runs, and stand in their rows alone.

    Those of a ten-hour recording are a megabyte, which every later step of the job would read.
    """
    return {name: value for name, value in output.items() if name != "shards"}


def end(connection: Connection, lease: Lease, ending: Ending, *, owner: str) -> None:
    """End a step run otherwise than by success.

    Raises:
        LeaseLost: another claim has raised the fencing number; nothing is changed.
    """
    error = ending.error
    changed = connection.execute(
        _END,
        {
            "b_id": lease.step_run_id,
            "b_fence": lease.fence,
            "b_state": ending.state,
            "b_failures": int(ending.is_failure),
            "b_error_code": error.code if error else None,
            "b_error": dump(error.to_json()) if error else None,
            "b_final": ending.state is not StepState.QUEUED,
        },
    ).rowcount
    demand_one(changed, lease)
    record_attempt(connection, lease, ending.outcome, owner=owner, ending=ending)


def checkpoint(database: Database, lease: Lease, state: Mapping[str, Any], progress_s: float) -> None:
    """Save what a step run has done so far, so that the next claim goes on from there.

    Raises:
        LeaseLost: another claim has raised the fencing number.
    """
    with database.begin(durable=False) as connection:
        changed = connection.execute(
            _CHECKPOINT,
            {
                "b_id": lease.step_run_id,
                "b_fence": lease.fence,
                "b_checkpoint": dump(state),
                "b_progress_s": progress_s,
            },
        ).rowcount
        demand_one(changed, lease)


def report_progress(database: Database, lease: Lease, progress_s: float) -> None:
    """Note how many seconds of audio a running step run has behind it."""
    with database.begin(durable=False) as connection:
        connection.execute(_PROGRESS, {"b_id": lease.step_run_id, "b_fence": lease.fence, "b_progress_s": progress_s})


def record_attempt(
    connection: Connection,
    lease: Lease,
    outcome: str,
    *,
    owner: str,
    ending: Ending | None = None,
) -> None:
    """Add one line to the story of a step run."""
    error = ending.error if ending else None
    connection.execute(
        _ATTEMPT,
        {
            "b_id": lease.step_run_id,
            "b_fence": lease.fence,
            "b_outcome": outcome,
            "b_owner": owner,
            "b_error_code": error.code if error else None,
            "b_message": storable(error.message) if error else None,
            "b_traceback": storable(ending.traceback) if ending and ending.traceback else None,
        },
    )


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def dump(value: Any) -> str:
    """Write compact JSON, as all JSON columns hold it."""
    text = _ENCODER.encode(value)
    if text.isascii():
        return text
    # A lone surrogate (a byte of a file name that is no UTF-8) fits no database; its escape is the same JSON.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def storable(text: str) -> str:
    """Return `text` as both databases take it: lone surrogates and NULs are escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def demand_one(changed: int, lease: Lease) -> None:
    """Insist that the statement hit the row it named."""
    if changed != 1:
        raise LeaseLost(f"The step run {lease.step_run_id} is no longer ours (fencing number {lease.fence})")
