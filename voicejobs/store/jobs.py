"""Rows of batches, jobs and step runs: insert, release, end. Every function works in the caller's transaction."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Double, String, bindparam, case, func, insert, literal, or_, select, text, update
from sqlalchemy.dialects import postgresql, sqlite

from voicejobs.errors import VoicejobsError
from voicejobs.store import wakes
from voicejobs.store.copying import copy_lines, copy_rows, text_of
from voicejobs.store.database import now_s
from voicejobs.store.ids import new_id
from voicejobs.store.leases import dump
from voicejobs.store.locks import lock_in_order
from voicejobs.store.schema import CANCELLING, UNSENT, artifacts, batches, jobs, results, step_runs
from voicejobs.store.states import LIVE_JOB, OPEN_STEP, STARTABLE_JOB, BatchState, JobState, OnError, StepState

DEFAULT_TENANT = "default"
DEFAULT_PRIORITY = 100
DRAFT = "draft"
"""Kind of a batch that gets its jobs in several transactions: nobody is shown it, and none of its jobs is sent."""
UNSEALED_S = 86_400.0
COPY_FROM_JOBS = 50
"""From so many jobs on, COPY is quicker than insertion."""


@dataclass(frozen=True, slots=True)
class NewStepRun:
    """Describe a step run to insert; see `schema.step_runs`."""

    node: str
    step: str
    step_version: int
    queue: str
    depth: int
    state: StepState
    shard: int = 0
    inputs: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class NewJob:
    """Describe a job to insert; see `schema.jobs`.

    `options` may be JSON text already, as `dump` writes it. `cost_order` sorts inside a batch, least first. A job with
    an `error` has failed before it began. One that is not done `expires_after_s` seconds after its insertion expires.
    What happens to a `watched` one is written to `events`; `request` is what else the request for it said.
    """

    id: str
    seq: int
    pipeline: str
    pipeline_version: int
    options: Mapping[str, Any] | str
    source: Mapping[str, Any]
    source_name: str
    step_runs: Sequence[NewStepRun]
    input_sha256: str | None = None
    result_key: str | None = None
    done_key: str | None = None
    target: str = ""
    cost_order: int = 0
    priority: int = DEFAULT_PRIORITY
    trace_id: str = ""
    error: VoicejobsError | None = None
    expires_after_s: float | None = None
    watched: bool = False
    request: Mapping[str, Any] | None = None


_INSERT_JOB = insert(jobs).values(
    id=bindparam("id"),
    batch_id=bindparam("batch_id"),
    seq=bindparam("seq"),
    tenant=bindparam("tenant"),
    priority=bindparam("priority"),
    pipeline=bindparam("pipeline"),
    pipeline_version=bindparam("pipeline_version"),
    options=bindparam("options"),
    source=bindparam("source"),
    source_name=bindparam("source_name"),
    input_sha256=bindparam("input_sha256"),
    result_key=bindparam("result_key"),
    done_key=bindparam("done_key"),
    target=bindparam("target"),
    cost_order=bindparam("cost_order"),
    state=bindparam("state"),
    error_code=bindparam("error_code"),
    error=bindparam("error"),
    trace_id=bindparam("trace_id"),
    watched=bindparam("watched"),
    request=bindparam("request"),
    created_at=now_s(),
    expires_at=now_s() + bindparam("expires_after_s", type_=Double()),
    finished_at=case((literal(JobState.FAILED.value) == bindparam("state"), now_s()), else_=None),
)

_STEP_VALUES: dict[str, Any] = {
    **{
        name: bindparam(name)
        for name in ("id", "job_id", "node", "step", "step_version", "shard", "depth", "queue", "state", "inputs")
    },
    "created_at": now_s(),
}
_INSERT_STEP = insert(step_runs).values(_STEP_VALUES)
# A job may have ended while the commit that creates its step runs was under way: then nothing waits any more.
# Not in_(): it cannot be used with many rows of values.
_is_live = or_(*(jobs.c.state == literal(state.value) for state in LIVE_JOB))
_job_is_live = select(literal(1)).where(jobs.c.id == bindparam("job_id"), _is_live).exists()
_LATER_STEP_VALUES = {
    **_STEP_VALUES,
    "state": case((_job_is_live, bindparam("state", type_=String())), else_=literal(StepState.SKIPPED.value)),
}


def _or_return(dialect: Any) -> Any:
    """Return the insertion of a step run that brings back one that was skipped, in the words of a database."""
    new = dialect.insert(step_runs).values(_LATER_STEP_VALUES)
    return new.on_conflict_do_update(
        index_elements=["id"],
        set_={name: new.excluded[name] for name in ("step_version", "depth", "queue", "state", "inputs")},
        where=step_runs.c.state == literal(StepState.SKIPPED.value),
    )


# Whoever ends the job meanwhile waits for our commit, and finds the step runs that it has made.
_KEEP_JOB = select(jobs.c.id).where(jobs.c.id == bindparam("b_id")).with_for_update(read=True)
_INSERT_OR_RETURN = {"sqlite": _or_return(sqlite), "postgresql": _or_return(postgresql)}


@dataclass(frozen=True, slots=True)
class NewBatch:
    """Describe a batch to insert; see `schema.batches`. `kind` is `batch`, or `single` for that of one job alone.

    No more than `concurrency` of its jobs are out at once; None for as many as there is room for.
    """

    lane: str
    label: str
    options: Mapping[str, Any]
    tenant: str = DEFAULT_TENANT
    kind: str = "batch"
    watched: bool = False
    request: Mapping[str, Any] | None = None
    concurrency: int | None = None
    on_error: OnError = OnError.CONTINUE


def insert_batch(connection: Connection, new: NewBatch) -> str:
    """Insert an open batch and return its id."""
    batch_id = new_id("batch")
    connection.execute(
        insert(batches).values(
            id=batch_id,
            tenant=new.tenant,
            lane=new.lane,
            state=BatchState.VALIDATING if new.kind == DRAFT else BatchState.IN_PROGRESS,
            label=new.label,
            options=dump(new.options),
            kind=new.kind,
            watched=int(new.watched),
            request=None if new.request is None else dump(new.request),
            concurrency=new.concurrency,
            on_error=new.on_error,
            created_at=now_s(),
        )
    )
    return batch_id


def seal_batch(connection: Connection, batch_id: str) -> None:
    """Note that no further job will join the batch, so that it can complete."""
    connection.execute(update(batches).where(batches.c.id == batch_id).values(sealed_at=now_s()))


def keep_open(connection: Connection, batch_id: str) -> bool:
    """Let a batch wait for further jobs until the transaction ends; False where somebody has sealed it.

    Its row is locked: nobody completes it meanwhile, and one that was completed because its producer took a day is in
    progress again.
    """
    changed: int = connection.execute(
        update(batches)
        .where(batches.c.id == batch_id, batches.c.sealed_at.is_(None))
        .values(state=BatchState.IN_PROGRESS, finished_at=None)
    ).rowcount
    return changed == 1


def reopen_batch(connection: Connection, batch_id: str) -> None:
    """Let a batch be in progress: further jobs join it, whatever has become of it meanwhile."""
    connection.execute(
        update(batches).where(batches.c.id == batch_id).values(state=BatchState.IN_PROGRESS, finished_at=None)
    )


def insert_jobs(
    connection: Connection, batch_id: str, new_jobs: Iterable[NewJob], *, tenant: str = DEFAULT_TENANT
) -> None:
    """Insert jobs and their first step runs in two statements, however many they are, and call the dispatchers.

    On Postgres many are copied.
    """
    jobs_ = list(new_jobs)
    if any(not job.error for job in jobs_):
        wakes.tell(connection, wakes.JOBS)
    job_rows = (_job_row(batch_id, tenant, job) for job in jobs_)
    if connection.dialect.name == "postgresql" and len(jobs_) >= COPY_FROM_JOBS:
        _copy(connection, job_rows, jobs_)
        return
    step_rows = [_step_row(job.id, row) for job in jobs_ for row in job.step_runs]
    if jobs_:
        connection.execute(_INSERT_JOB, list(job_rows))
    if step_rows:
        connection.execute(_INSERT_STEP, step_rows)


def _job_row(batch_id: str, tenant: str, job: NewJob) -> dict[str, Any]:
    """Return the column values of a new job."""
    return {
        "id": job.id,
        "batch_id": batch_id,
        "seq": job.seq,
        "tenant": tenant,
        "priority": job.priority,
        "pipeline": job.pipeline,
        "pipeline_version": job.pipeline_version,
        "options": job.options if isinstance(job.options, str) else dump(job.options),
        "source": dump(job.source),
        "source_name": job.source_name,
        "input_sha256": job.input_sha256,
        "result_key": job.result_key,
        "done_key": job.done_key,
        "target": job.target,
        "cost_order": job.cost_order,
        "trace_id": job.trace_id or job.id,
        "watched": int(job.watched),
        "request": None if job.request is None else dump(job.request),
        "state": JobState.FAILED.value if job.error else JobState.QUEUED.value,
        "error_code": job.error.code if job.error else None,
        "error": dump(job.error.to_json()) if job.error else None,
        "expires_after_s": job.expires_after_s,
    }


def _copy(connection: Connection, job_rows: Iterable[dict[str, Any]], new_jobs: Sequence[NewJob]) -> None:
    """Copy rows into their tables; COPY takes no expressions, so that the clock is asked once for all of them."""
    now: float = connection.execute(select(now_s())).scalar_one()
    copy_rows(connection, jobs, (_at(now, row) for row in job_rows))
    columns = next((list(_copied_step(job.id, step, now)) for job in new_jobs for step in job.step_runs), None)
    if columns is not None:
        copy_lines(connection, step_runs, ["id", "job_id", *columns], _step_lines(new_jobs, now))


def _at(now: float, row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a new job with its times."""
    expires_after_s = row.pop("expires_after_s")
    row["created_at"] = now
    row["expires_at"] = None if expires_after_s is None else now + expires_after_s
    row["finished_at"] = now if row["error"] else None
    return row


def _step_lines(new_jobs: Sequence[NewJob], now: float) -> Iterator[str]:
    """Yield the step runs of new jobs; nearly all begin with the same, whose common part is written once."""
    alike: dict[int, str] = {}
    for job in new_jobs:
        for step in job.step_runs:
            if id(step) not in alike:
                alike[id(step)] = text_of(_copied_step(job.id, step, now).values())
            yield f"{step_run_id(job.id, step.node, step.shard)}\t{job.id}\t{alike[id(step)]}"


def _copied_step(job_id: str, step: NewStepRun, now: float) -> dict[str, Any]:
    """Return the column values of a step run, but for its id and that of its job."""
    values = {**_step_row(job_id, step), "created_at": now}
    del values["id"], values["job_id"]
    return values


def count_waiting(connection: Connection, most: int) -> int:
    """Return how many jobs wait to be sent to the broker, `most` at most."""
    some = select(jobs.c.id).where(text(UNSENT)).limit(most).subquery()
    return int(connection.execute(select(func.count()).select_from(some)).scalar_one())


def insert_step_runs(connection: Connection, job_id: str, rows: Iterable[NewStepRun]) -> list[str]:
    """Insert further step runs of a job and return their ids; those of a job that has ended are skipped.

    A job that was taken up again has some of them already, with the story of the attempts before: these come back.
    """
    values = [_step_row(job_id, row) for row in rows]
    connection.execute(_KEEP_JOB, {"b_id": job_id})
    connection.execute(_INSERT_OR_RETURN[connection.dialect.name], values)
    return [value["id"] for value in values]


def step_run_id(job_id: str, node: str, shard: int = 0) -> str:
    """Return the id of a step run: it follows from its place, so that nobody has to look it up."""
    return f"{job_id}.{node}.{shard}"


def _step_row(job_id: str, row: NewStepRun) -> dict[str, Any]:
    """Return the column values of a new step run."""
    return {
        "id": step_run_id(job_id, row.node, row.shard),
        "job_id": job_id,
        "node": row.node,
        "step": row.step,
        "step_version": row.step_version,
        "shard": row.shard,
        "depth": row.depth,
        "queue": row.queue,
        "state": row.state,
        "inputs": dump(row.inputs) if row.inputs else "{}",
    }


_LOCK_JOIN = (
    select(step_runs.c.id, step_runs.c.state)
    .where(step_runs.c.job_id == bindparam("b_job_id"), step_runs.c.node == bindparam("b_node"))
    .with_for_update()
)
_MISSING_INPUTS = select(func.count()).where(
    step_runs.c.job_id == bindparam("b_job_id"),
    step_runs.c.node.in_(bindparam("b_inputs", expanding=True)),
    # What is skipped in a live job is left from before it was taken up again, and no input.
    step_runs.c.state.not_in((StepState.SUCCEEDED, StepState.SKIPPED)),
)
_RELEASE = (
    update(step_runs)
    .where(step_runs.c.id == bindparam("b_id"), step_runs.c.state == StepState.BLOCKED)
    .values(state=StepState.QUEUED)
)


def release_join(connection: Connection, job_id: str, node: str, inputs: Sequence[str]) -> str | None:
    """Queue a blocked step run if none of its inputs is missing, and return its id; None if it must wait.

    The lock on its row makes the last of several commits, and only the last, see all inputs.
    """
    row = connection.execute(_LOCK_JOIN, {"b_job_id": job_id, "b_node": node}).first()
    if row is None or row.state != StepState.BLOCKED:
        return None
    if connection.execute(_MISSING_INPUTS, {"b_job_id": job_id, "b_inputs": list(inputs)}).scalar_one():
        return None
    return release_single(connection, job_id, node)


def release_single(connection: Connection, job_id: str, node: str) -> str | None:
    """Queue a blocked step run that is known to miss nothing, and return its id; None if it was not blocked."""
    released_id = step_run_id(job_id, node)
    changed: int = connection.execute(_RELEASE, {"b_id": released_id}).rowcount
    return released_id if changed else None


_FINISH_JOB = (
    update(jobs)
    .where(jobs.c.id == bindparam("b_id"), jobs.c.state.in_(LIVE_JOB))
    .values(
        state=bindparam("b_state"),
        error_code=bindparam("b_error_code"),
        error=bindparam("b_error"),
        outputs=bindparam("b_outputs"),
        audio_s=func.coalesce(bindparam("b_audio_s", type_=Double()), jobs.c.audio_s),
        finished_at=now_s(),
    )
)
_SKIP_REST = (
    update(step_runs)
    .where(step_runs.c.job_id == bindparam("b_id"), step_runs.c.state.in_((StepState.BLOCKED, StepState.QUEUED)))
    .values(state=bindparam("b_state"), finished_at=now_s(), checkpoint=None)
)
_SKIP_REST_OF_LIVE = _SKIP_REST.where(
    select(literal(1)).where(jobs.c.id == step_runs.c.job_id, jobs.c.state.in_(LIVE_JOB)).exists()
)


_others = jobs.alias("others")
_STOP_BATCH = (
    update(batches)
    .where(
        batches.c.id == select(jobs.c.batch_id).where(jobs.c.id == bindparam("b_id")).scalar_subquery(),
        batches.c.on_error == OnError.STOP,
        batches.c.state == BatchState.IN_PROGRESS,
        select(literal(1)).where(_others.c.batch_id == batches.c.id, _others.c.finished_at.is_(None)).exists(),
    )
    .values(state=BatchState.CANCELLING)
)


def finish_job(
    connection: Connection,
    job_id: str,
    state: JobState,
    *,
    error: VoicejobsError | None = None,
    outputs: Sequence[Mapping[str, Any]] | None = None,
    audio_s: float | None = None,
) -> bool:
    """Bring a live job to a final state; what it has not run is skipped. Return False where it had ended before.

    One that fails stops its batch where that was asked for: none of its jobs is sent any more, and the upkeep cancels
    them.
    """
    rest = StepState.CANCELLED if state is JobState.CANCELLED else StepState.SKIPPED
    if state is not JobState.SUCCEEDED:
        # Step runs first, then the job, as in `cancel_jobs`: whoever cancels it at this moment waits, and we do not.
        connection.execute(_SKIP_REST_OF_LIVE, {"b_id": job_id, "b_state": rest})
    changed = connection.execute(
        _FINISH_JOB,
        {
            "b_id": job_id,
            "b_state": state,
            "b_error_code": error.code if error else None,
            "b_error": dump(error.to_json()) if error else None,
            "b_outputs": dump(list(outputs)) if outputs is not None else None,
            "b_audio_s": audio_s,
        },
    ).rowcount
    if changed and state is not JobState.SUCCEEDED:
        # A commit that was under way has let the row of the job go only now, and may have queued further step runs.
        connection.execute(_SKIP_REST, {"b_id": job_id, "b_state": rest})
    if changed and state is JobState.FAILED:
        connection.execute(_STOP_BATCH, {"b_id": job_id})
    return bool(changed)


_RESEND = (
    update(jobs)
    .where(jobs.c.id == bindparam("b_id"), jobs.c.state.in_(LIVE_JOB))
    .values(sent_at=None, run_after=now_s() + bindparam("b_delay_s"))
)


def send_again(connection: Connection, job_id: str, *, delay_s: float = 0.0) -> None:
    """Put a job back into the outbox: the dispatcher sends what it misses once `delay_s` seconds have passed."""
    connection.execute(_RESEND, {"b_id": job_id, "b_delay_s": delay_s})


_AUDIO = update(jobs).where(jobs.c.id == bindparam("b_id")).values(audio_s=bindparam("b_audio_s"))


def note_audio(connection: Connection, job_id: str, audio_s: float) -> None:
    """Note the decoded length of a job's recording in seconds."""
    connection.execute(_AUDIO, {"b_id": job_id, "b_audio_s": audio_s})


_ARTIFACT = insert(artifacts).values(
    id=bindparam("id"),
    job_id=bindparam("job_id"),
    step_run_id=bindparam("step_run_id"),
    kind=bindparam("kind"),
    sha256=bindparam("sha256"),
    size_bytes=bindparam("size_bytes"),
    data=bindparam("data"),
    meta=bindparam("meta"),
    created_at=now_s(),
)


@dataclass(frozen=True, slots=True)
class NewArtifact:
    """Describe an artifact; `data` is None where the bytes lie in the blob store.

    Its id is a new one unless it was given, so that outputs can name it before it is inserted.
    """

    kind: str
    sha256: str
    size_bytes: int
    data: bytes | None
    meta: Mapping[str, Any]
    id: str = ""


def insert_artifact(connection: Connection, job_id: str, step_run_id: str, artifact: NewArtifact) -> str:
    """Insert an artifact and return its id."""
    artifact_id = artifact.id or new_id("art")
    connection.execute(
        _ARTIFACT,
        {
            "id": artifact_id,
            "job_id": job_id,
            "step_run_id": step_run_id,
            "kind": artifact.kind,
            "sha256": artifact.sha256,
            "size_bytes": artifact.size_bytes,
            "data": artifact.data,
            "meta": dump(artifact.meta),
        },
    )
    return artifact_id


_RESULT = insert(results).values(
    job_id=bindparam("job_id"),
    result_key=bindparam("result_key"),
    artifact_id=bindparam("artifact_id"),
    language=bindparam("language"),
    duration_s=bindparam("duration_s"),
    words=bindparam("words"),
    text=bindparam("text"),
    created_at=now_s(),
)


@dataclass(frozen=True, slots=True)
class NewResult:
    """Hold what people query of a transcript."""

    result_key: str
    artifact_id: str
    language: str | None
    duration_s: float
    words: int
    text: str


def insert_result(connection: Connection, job_id: str, result: NewResult) -> None:
    """Insert the result of a job."""
    connection.execute(
        _RESULT,
        {
            "job_id": job_id,
            "result_key": result.result_key,
            "artifact_id": result.artifact_id,
            "language": result.language,
            "duration_s": result.duration_s,
            "words": result.words,
            "text": result.text,
        },
    )


def lock_jobs(connection: Connection, which: Any) -> None:
    """Lock the live jobs for which a condition holds, behind those of their step runs that wait."""
    scope = (which, jobs.c.state.in_(LIVE_JOB))
    waits = step_runs.c.state.in_((StepState.BLOCKED, StepState.QUEUED))
    lock_in_order(connection, step_runs, waits, step_runs.c.job_id.in_(select(jobs.c.id).where(*scope)))
    lock_in_order(connection, jobs, *scope)


def cancel_jobs(connection: Connection, *, batch_id: str | None = None, job_id: str | None = None) -> int:
    """Cancel queued jobs at once and mark running ones as `cancelling`; return how many were touched."""
    scope = jobs.c.batch_id == batch_id if batch_id is not None else jobs.c.id == job_id
    # Step runs first, then jobs, as a claim does: so that neither misses the other, and they never lock each other out.
    lock_jobs(connection, scope)
    connection.execute(
        update(step_runs)
        .where(
            step_runs.c.state.in_((StepState.BLOCKED, StepState.QUEUED)),
            step_runs.c.job_id.in_(select(jobs.c.id).where(scope, jobs.c.state.in_(LIVE_JOB))),
        )
        .values(state=StepState.CANCELLED, finished_at=now_s())
    )
    waits = jobs.c.state == JobState.QUEUED
    changed = connection.execute(
        update(jobs)
        .where(scope, jobs.c.state.in_(STARTABLE_JOB))
        .values(
            state=case((waits, JobState.CANCELLED), else_=JobState.CANCELLING),
            finished_at=case((waits, now_s()), else_=None),
        )
    ).rowcount
    return int(changed)


def cancel_rest(connection: Connection, job_id: str = "") -> int:
    """Cancel the jobs of batches that a failed job has stopped, or of that of one job; return how many."""
    live = select(literal(1)).where(jobs.c.batch_id == batches.c.id, jobs.c.state.in_(STARTABLE_JOB)).exists()
    stopping = select(batches.c.id).where(
        batches.c.finished_at.is_(None), batches.c.state == BatchState.CANCELLING, live
    )
    if job_id:
        mine = select(_others.c.batch_id).where(_others.c.id == job_id).scalar_subquery()
        stopping = stopping.where(batches.c.id == mine)
    found = list(connection.execute(stopping.order_by(batches.c.id)).scalars())
    return sum(cancel_jobs(connection, batch_id=batch_id) for batch_id in found)


def mark_cancelling(connection: Connection, batch_id: str) -> None:
    """Note that a batch is being cancelled, and takes no more jobs: it is `cancelled` when its last job has ended."""
    connection.execute(
        update(batches)
        .where(batches.c.id == batch_id, batches.c.finished_at.is_(None))
        .values(state=BatchState.CANCELLING, sealed_at=func.coalesce(batches.c.sealed_at, now_s()))
    )


def end_cancelled(connection: Connection) -> int:
    """End the cancelling jobs that no worker runs any more; return how many."""
    busy = select(literal(1)).where(step_runs.c.job_id == jobs.c.id, step_runs.c.state == StepState.RUNNING).exists()
    ended = connection.execute(
        update(jobs)
        .where(text(CANCELLING), ~busy)
        .values(state=JobState.CANCELLED, finished_at=now_s())
        .returning(jobs.c.id)
    ).all()
    for (job_id,) in ended:
        connection.execute(_SKIP_REST, {"b_id": job_id, "b_state": StepState.CANCELLED})
    return len(ended)


def complete_batches(connection: Connection) -> int:
    """Complete the sealed batches that have no live job; return how many.

    A batch whose producer was killed is never sealed: it counts as complete a day after it began.
    """
    whole = or_(batches.c.sealed_at.is_not(None), batches.c.created_at < now_s() - UNSEALED_S)
    live = select(literal(1)).where(jobs.c.batch_id == batches.c.id, jobs.c.finished_at.is_(None)).exists()
    is_complete = (batches.c.finished_at.is_(None), whole, ~live)
    # Whoever takes up one of its jobs, or adds one, has the row of the batch. Once we have it, another look tells
    # whether he did: to wait in the statement that completes would go by what its first look had seen.
    found = select(batches.c.id).where(*is_complete).order_by(batches.c.id).with_for_update()
    ids = list(connection.execute(found).scalars())
    if not ids:
        return 0
    is_cancelling = batches.c.state == BatchState.CANCELLING
    return int(
        connection.execute(
            update(batches)
            .where(batches.c.id.in_(ids), *is_complete)
            .values(state=case((is_cancelling, BatchState.CANCELLED), else_=BatchState.COMPLETED), finished_at=now_s())
        ).rowcount
    )


def open_step_runs(connection: Connection, job_ids: Sequence[str]) -> list[Any]:
    """Return id, job, node, step, shard, state and queue of the step runs that these jobs still miss.

    `of` counts the step runs of the same node; trace id and options are those of the job.
    """
    beside = step_runs.alias("beside")
    return list(
        connection.execute(
            select(
                step_runs.c.id,
                step_runs.c.job_id,
                step_runs.c.node,
                step_runs.c.step,
                step_runs.c.shard,
                step_runs.c.state,
                step_runs.c.queue,
                jobs.c.pipeline,
                jobs.c.trace_id,
                jobs.c.options,
                select(func.count())
                .where(beside.c.job_id == step_runs.c.job_id, beside.c.node == step_runs.c.node)
                .scalar_subquery()
                .label("of"),
            )
            .join(jobs, jobs.c.id == step_runs.c.job_id)
            .where(step_runs.c.job_id.in_(job_ids), step_runs.c.state.in_(OPEN_STEP))
            .order_by(step_runs.c.job_id, step_runs.c.depth, step_runs.c.shard)
        )
    )


def live_among(connection: Connection, job_ids: Sequence[str]) -> set[str]:
    """Return those of the jobs that have not ended."""
    return set(
        connection.execute(select(jobs.c.id).where(jobs.c.id.in_(job_ids), jobs.c.state.in_(LIVE_JOB))).scalars()
    )
