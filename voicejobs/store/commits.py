"""Commit a step run that succeeded, with what its commit sets going; the whole of it is one transaction.

On Postgres each of these commits is one statement: a round trip costs more there than the work. SQLite changes one
table in a statement, and pays nothing for another.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Double,
    Integer,
    LargeBinary,
    String,
    Text,
    bindparam,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.expression import ColumnElement

from voicejobs.store import leases
from voicejobs.store.database import Database, now_s
from voicejobs.store.ids import new_id
from voicejobs.store.jobs import (
    NewArtifact,
    NewResult,
    NewStepRun,
    finish_job,
    insert_artifact,
    insert_result,
    note_audio,
    step_run_id,
)
from voicejobs.store.leases import Claimer, Lease, dump
from voicejobs.store.schema import artifacts, jobs, results, step_runs
from voicejobs.store.states import LIVE_JOB, STARTABLE_JOB, JobState, StepState


@dataclass(frozen=True, slots=True)
class Following:
    """Name the one step run that follows in line: `is_new` tells that this commit creates its row."""

    row: NewStepRun
    is_new: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold what a step run leaves behind.

    Args:
        output: JSON values for the steps that follow; `shards` in it are the inputs of those of a node that fans out.
        progress_s: seconds of audio that it has dealt with.
        audio_s: decoded length of the recording to note, where it is known.
        artifacts: what to keep.
        result: the transcript for queries; its artifact is the first of `artifacts`.
        files: the output files, where the job ends here.
    """

    output: Mapping[str, Any]
    progress_s: float = 0.0
    audio_s: float | None = None
    artifacts: Sequence[NewArtifact] = ()
    result: NewResult | None = None
    files: Sequence[Mapping[str, Any]] | None = None


def store(connection: Connection, lease: Lease, outcome: Outcome, *, owner: str) -> None:
    """Store the output, the artifacts and the result of a step run inside the caller's transaction.

    Raises:
        LeaseLost: another claim has raised the fencing number; the transaction must not be committed.
    """
    leases.succeed(connection, lease, outcome.output, owner=owner, progress_s=outcome.progress_s)
    ids = [insert_artifact(connection, lease.job_id, lease.step_run_id, artifact) for artifact in outcome.artifacts]
    if outcome.result is not None:
        insert_result(connection, lease.job_id, replace(outcome.result, artifact_id=ids[0]))


def finish(database: Database, lease: Lease, outcome: Outcome, *, owner: str) -> None:
    """Commit the last step run of a job, and the job with it.

    Raises:
        LeaseLost: as `store`; nothing is changed.
    """
    if not database.is_sqlite and len(outcome.artifacts) == 1 and outcome.result is not None:
        _finish_at_once(database, lease, outcome, outcome.result, owner=owner)
        return
    with database.begin() as connection:
        store(connection, lease, outcome, owner=owner)
        finish_job(connection, lease.job_id, JobState.SUCCEEDED, outputs=outcome.files, audio_s=outcome.audio_s)


def go_on(
    database: Database, lease: Lease, outcome: Outcome, following: Following, who: Claimer, *, durable: bool
) -> Lease | None:
    """Commit a step run and claim the one that follows in line.

    It has run all that the following one takes, so that nothing needs to be counted, released or read again.

    Returns:
        The lease on the following step run; None where its job is no longer to go on.

    Raises:
        LeaseLost: as `store`; nothing is changed.
    """
    values = {**_success_values(lease, outcome, who.owner), **_following_values(lease.job_id, following, who)}
    statements = _GO_ON_NEW if following.is_new else _GO_ON
    if not database.is_sqlite:
        with _transaction(database, lone=outcome.audio_s is None) as connection:
            if outcome.audio_s is not None:
                note_audio(connection, lease.job_id, outcome.audio_s)
            found = connection.execute(statements.at_once, values).one()
            leases.demand_one(found.succeeded, lease)
        return None if found.fence is None else _next_lease(lease, outcome, following, found)
    with database.begin(durable=durable) as connection:
        leases.succeed(connection, lease, outcome.output, owner=who.owner, progress_s=outcome.progress_s)
        if outcome.audio_s is not None:
            note_audio(connection, lease.job_id, outcome.audio_s)
        claimed = connection.execute(statements.alone, values).first()
    return None if claimed is None else _next_lease(lease, outcome, following, claimed)


def _transaction(database: Database, *, lone: bool) -> AbstractContextManager[Connection]:
    """Return a transaction; one statement alone needs no frame."""
    return database.at_once() if lone else database.begin()


def _success_values(lease: Lease, outcome: Outcome, owner: str) -> dict[str, Any]:
    """Return the parameters of a success."""
    return {
        "b_id": lease.step_run_id,
        "b_fence": lease.fence,
        "b_output": dump(leases.kept(outcome.output)),
        "b_progress_s": outcome.progress_s,
        "b_owner": owner,
    }


def _following_values(job_id: str, following: Following, who: Claimer) -> dict[str, Any]:
    """Return the parameters of the claim of the step run that follows."""
    row = following.row
    return {
        "n_id": step_run_id(job_id, row.node, row.shard),
        "n_job_id": job_id,
        "n_node": row.node,
        "n_step": row.step,
        "n_step_version": row.step_version,
        "n_shard": row.shard,
        "n_depth": row.depth,
        "n_queue": row.queue,
        "n_inputs": dump(row.inputs or {}),
        "n_owner": who.owner,
        "n_worker": who.worker,
        "n_device": who.device,
        "n_lease_s": who.lease_s,
    }


def _next_lease(lease: Lease, outcome: Outcome, following: Following, claimed: Any) -> Lease:
    """Return the lease on the step run that follows: what it needs of its job, the one before it knew."""
    row = following.row
    return replace(
        lease,
        step_run_id=step_run_id(lease.job_id, row.node, row.shard),
        node=row.node,
        step=row.step,
        step_version=claimed.step_version,
        shard=row.shard,
        fence=claimed.fence,
        failures=claimed.failures,
        inputs=json.loads(claimed.inputs),
        checkpoint=json.loads(claimed.checkpoint) if claimed.checkpoint else None,
        started_at=claimed.started_at,
        upstream={**lease.upstream, lease.node: [dump(leases.kept(outcome.output))]},
    )


_job_goes_on = select(literal(1)).where(jobs.c.id == bindparam("n_job_id"), jobs.c.state.in_(STARTABLE_JOB)).exists()
_CLAIMED_COLUMNS = (
    step_runs.c.fence,
    step_runs.c.step_version,
    step_runs.c.failures,
    step_runs.c.inputs,
    step_runs.c.checkpoint,
    step_runs.c.started_at,
)
_NEW_COLUMNS: dict[str, ColumnElement[Any]] = {
    "id": bindparam("n_id", type_=String),
    "job_id": bindparam("n_job_id", type_=String),
    "node": bindparam("n_node", type_=String),
    "step": bindparam("n_step", type_=String),
    "step_version": bindparam("n_step_version", type_=Integer),
    "shard": bindparam("n_shard", type_=Integer),
    "depth": bindparam("n_depth", type_=Integer),
    "queue": bindparam("n_queue", type_=String),
    "state": literal(StepState.RUNNING.value),
    "inputs": bindparam("n_inputs", type_=Text),
    "fence": literal(1),
    "owner": bindparam("n_owner", type_=String),
    "worker": bindparam("n_worker", type_=String),
    "device": bindparam("n_device", type_=String),
    "lease_until": now_s() + bindparam("n_lease_s", type_=Double),
    "created_at": now_s(),
    "started_at": now_s(),
}


def _claim_blocked(*conditions: ColumnElement[bool]) -> Any:
    """Return the statement that claims a blocked step run."""
    return (
        update(step_runs)
        .where(step_runs.c.id == bindparam("n_id"), step_runs.c.state == StepState.BLOCKED, _job_goes_on, *conditions)
        .values(
            state=StepState.RUNNING,
            fence=step_runs.c.fence + 1,
            owner=bindparam("n_owner"),
            worker=bindparam("n_worker"),
            device=bindparam("n_device"),
            lease_until=now_s() + bindparam("n_lease_s"),
            started_at=now_s(),
        )
        .returning(*_CLAIMED_COLUMNS)
    )


def _claim_new(dialect: Any, *conditions: ColumnElement[bool]) -> Any:
    """Return the statement that creates a step run as claimed, in the words of a database.

    A job that was taken up again may have it already, skipped and with its story: then it comes back.
    """
    new = dialect.insert(step_runs).from_select(
        list(_NEW_COLUMNS), select(*_NEW_COLUMNS.values()).where(_job_goes_on, *conditions)
    )
    changed = set(_NEW_COLUMNS) - {"id", "job_id", "node", "step", "shard", "fence", "created_at"}
    return new.on_conflict_do_update(
        index_elements=["id"],
        set_={**{name: new.excluded[name] for name in sorted(changed)}, "fence": step_runs.c.fence + 1},
        where=step_runs.c.state == literal(StepState.SKIPPED.value),
    ).returning(*_CLAIMED_COLUMNS)


@dataclass(frozen=True, slots=True)
class _Onward:
    """Hold a claim as a statement of its own, and within the one statement that commits what was before it."""

    alone: Any
    at_once: Any


def _at_once(claim: Any) -> Any:
    """Return the statement that commits a step run and claims the next: one row, its claim empty where it failed."""
    done, told = leases.success()
    claimed = claim(select(literal(1)).select_from(done).exists()).cte("claimed")
    return (
        select(leases.count(done).label("succeeded"), *claimed.c)
        .select_from(select(literal(1).label("one")).subquery().outerjoin(claimed, literal(True)))
        .add_cte(told)
    )


_GO_ON = _Onward(_claim_blocked(), _at_once(_claim_blocked))
_GO_ON_NEW = _Onward(_claim_new(sqlite), _at_once(partial(_claim_new, postgresql)))


def _finish_parts() -> Any:
    """Return the statement that commits the last step run of a job, its artifact, its result and the job."""
    done, told = leases.success()
    artifact: dict[str, ColumnElement[Any]] = {
        "id": bindparam("a_id", type_=String),
        "job_id": bindparam("j_id", type_=String),
        "step_run_id": done.c.id,
        "kind": bindparam("a_kind", type_=String),
        "sha256": bindparam("a_sha256", type_=String),
        "size_bytes": bindparam("a_size_bytes", type_=BigInteger),
        "data": bindparam("a_data", type_=LargeBinary),
        "meta": bindparam("a_meta", type_=Text),
        "created_at": now_s(),
    }
    kept = (
        insert(artifacts)
        .from_select(list(artifact), select(*artifact.values()).select_from(done))
        .returning(artifacts.c.id)
        .cte("kept")
    )
    result: dict[str, ColumnElement[Any]] = {
        "job_id": bindparam("j_id", type_=String),
        "result_key": bindparam("r_result_key", type_=String),
        "artifact_id": bindparam("a_id", type_=String),
        "language": bindparam("r_language", type_=String),
        "duration_s": bindparam("r_duration_s", type_=Double),
        "words": bindparam("r_words", type_=Integer),
        "text": bindparam("r_text", type_=Text),
        "created_at": now_s(),
    }
    found = (
        insert(results)
        .from_select(list(result), select(*result.values()).select_from(done))
        .returning(results.c.job_id)
        .cte("found")
    )
    ended = (
        update(jobs)
        .where(
            jobs.c.id == bindparam("j_id"), jobs.c.state.in_(LIVE_JOB), select(literal(1)).select_from(done).exists()
        )
        .values(
            state=JobState.SUCCEEDED.value,
            outputs=bindparam("j_outputs", type_=Text),
            audio_s=func.coalesce(bindparam("j_audio_s", type_=Double), jobs.c.audio_s),
            finished_at=now_s(),
        )
        .returning(jobs.c.id)
        .cte("ended")
    )
    return select(leases.count(done).label("succeeded")).add_cte(told, kept, found, ended)


_FINISH = _finish_parts()


def _finish_at_once(database: Database, lease: Lease, outcome: Outcome, result: NewResult, *, owner: str) -> None:
    """Finish a job with one statement."""
    artifact = outcome.artifacts[0]
    values = {
        **_success_values(lease, outcome, owner),
        "j_id": lease.job_id,
        "j_outputs": dump(list(outcome.files)) if outcome.files is not None else None,
        "j_audio_s": outcome.audio_s,
        "a_id": new_id("art"),
        "a_kind": artifact.kind,
        "a_sha256": artifact.sha256,
        "a_size_bytes": artifact.size_bytes,
        "a_data": artifact.data,
        "a_meta": dump(artifact.meta),
        "r_result_key": result.result_key,
        "r_language": result.language,
        "r_duration_s": result.duration_s,
        "r_words": result.words,
        "r_text": result.text,
    }
    with database.at_once() as connection:
        leases.demand_one(connection.execute(_FINISH, values).scalar_one(), lease)
