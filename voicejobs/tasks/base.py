"""The frame around every task: take the lease, run the step, commit, send what follows; or say why not."""

import logging
import time
import traceback as tracebacks
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from celery import Task
from celery.exceptions import Ignore
from sqlalchemy import Connection

from voicejobs import canvas, dispatch, logs, spans
from voicejobs.errors import (
    AudioGone,
    BlobsRefused,
    BlobsUnavailable,
    Cancelled,
    DatabaseUnavailable,
    DiskFull,
    Internal,
    Interruption,
    LeaseLost,
    MemoryLow,
    Permanent,
    ShuttingDown,
    VoicejobsError,
)
from voicejobs.pipelines.pipeline import pipeline
from voicejobs.steps.registry import step
from voicejobs.store import commits, leases
from voicejobs.store.jobs import NewStepRun, cancel_rest, finish_job, note_audio, send_again
from voicejobs.store.leases import Claimer, Ending, Lease
from voicejobs.store.retry import begin_anew
from voicejobs.store.states import JobState, StepState
from voicejobs.tasks.identify import identified
from voicejobs.tasks.keeper import Hold
from voicejobs.tasks.runtime import Runtime

logger = logging.getLogger(__name__)

NO_ATTEMPT_BURNT = (DiskFull, DatabaseUnavailable, MemoryLow, BlobsUnavailable, BlobsRefused)
"""Errors that are no fault of the job: it waits and comes again, however often."""

MAX_ERROR_TRACE_CHARS = 8000

UNBURNT_DELAY_S = 10.0
"""Time between two looks whether the disk has space again, the worker memory, or the blob store answers."""

NOTED_AUDIO_S = 30.0
"""Recordings from this length on have it noted before their job ends, for those who watch."""

UNKNOWN_VERSION_DELAY_S = 5.0
"""A step run of another version waits this long for a worker that knows it, then is offered again."""


Product = commits.Outcome
"""What a step body makes."""

Body = Callable[[Runtime, Lease, Hold], Product]


def run_step(runtime: Runtime, task: Task[Any, Any], step_run_id: str, bodies: Mapping[str, Body]) -> None:
    """Run one delivery of a message, and go on with what follows in line as long as this worker serves its queue.

    A step that follows at once in the same worker costs no message and no transaction of its own; it is claimed in the
    commit of the one before, and is a step run like any other: lease, fencing number, story.

    Raises:
        Ignore: the delivery means nothing any more, or a step did not succeed.
    """
    runtime.taken += 1
    if runtime.keeper.is_closing:
        raise Ignore  # the row stays queued; the next worker finds its message lost and sends another
    try:
        lease = leases.claim(runtime.database, step_run_id, _claimer(runtime))
    except DatabaseUnavailable as error:
        logger.warning("cannot claim", extra={"error": error.message})
        raise Ignore from None
    if lease is None:
        raise Ignore
    done = _run_claimed(runtime, lease, bodies)
    while done is not None and done.following is not None:
        lease = done.following
        task.request.chain = None  # its next link is what runs here
        with runtime.watch.step(task, lease) as watched:
            done = _run_claimed(runtime, lease, bodies)
            watched.succeeded = done is not None
    if done is None:
        runtime.ring()
        raise Ignore
    with logs.bind(job_id=lease.job_id, step=lease.step, step_run_id=lease.step_run_id, trace_id=lease.trace_id):
        _go_on(runtime, task, lease, done.ready)


def _claimer(runtime: Runtime) -> Claimer:
    """Return who claims, and for how long."""
    return Claimer(runtime.owner, runtime.settings.lease_s, runtime.place.worker, runtime.place.device)


def _run_claimed(runtime: Runtime, lease: Lease, bodies: Mapping[str, Body]) -> "_Committed | None":
    """Keep the lease alive while the step runs; return what its commit has made ready, or None where it has none."""
    with (
        logs.bind(job_id=lease.job_id, step=lease.step, step_run_id=lease.step_run_id, trace_id=lease.trace_id),
        # The body knows the audio, and allows the step the time for that.
        runtime.keeper.hold(lease, base_s=runtime.settings.step_base_s, factor=runtime.settings.step_factor) as hold,
        spans.span(lease.step, lease.trace_id, job=lease.job_id, shard=lease.shard, fence=lease.fence) as span,
    ):
        done = _run_held(runtime, lease, hold, bodies)
        if done is None:
            span.fail("the step did not succeed")
        return done


@dataclass(frozen=True, slots=True)
class _Committed:
    """Hold what a commit has made ready, and the lease on the step run that the same worker goes on with."""

    ready: Sequence[canvas.Missing] = ()
    following: Lease | None = None


def _run_held(runtime: Runtime, lease: Lease, hold: Hold, bodies: Mapping[str, Body]) -> _Committed | None:
    """Run the body under its lease; return what became ready, or None where the chain ends."""
    began = time.monotonic()
    try:
        _demand_known_version(lease)
        _demand_memory(runtime)
        lease = identified(runtime, lease, hold)
        product = bodies[lease.step](runtime, lease, hold)
        hold.check()
        done = _commit(runtime, lease, product, bodies)
        _note_done(runtime, lease, product, time.monotonic() - began)
        return done
    except Interruption as reason:
        # Whatever the step was stopped by on its way, the hold knows why: a worker that goes down cancels no job.
        cause = hold.reason or reason
        if isinstance(cause, Interruption):
            _interrupted(runtime, lease, cause)
        else:
            _failed(runtime, lease, cause)
    except VoicejobsError as error:
        _failed(runtime, lease, error)
    except Exception as error:
        logger.exception("unforeseen error")
        wrapped = Internal(f"{type(error).__name__}: {error}")
        wrapped.__cause__ = error
        _failed(runtime, lease, wrapped)
    return None


def _note_done(runtime: Runtime, lease: Lease, product: Product, seconds: float) -> None:
    """Count and log a step that has succeeded."""
    runtime.tally.add("steps", step=lease.step, outcome="succeeded")
    runtime.tally.add("step_s", seconds, step=lease.step)
    logger.info("step done", extra={"seconds": round(seconds, 4), "audio_s": product.audio_s})


def _knows(lease: Lease) -> bool:
    """Tell whether this worker has the step in the version that the step run names."""
    return step(lease.step).version == lease.step_version


def _demand_known_version(lease: Lease) -> None:
    """Leave a step run of a version that this worker does not know to others.

    Raises:
        ShuttingDown: the lease must be given back, and no attempt is burnt.
    """
    if not _knows(lease):
        raise ShuttingDown(f"This worker does not know version {lease.step_version} of the step {lease.step!r}")


def _demand_memory(runtime: Runtime) -> None:
    """Begin no step while this worker holds as much memory as it may: it is for another worker, or for later.

    Raises:
        MemoryLow: it does; no attempt is burnt.
    """
    if runtime.memory.reason:
        raise MemoryLow(f"The worker {runtime.place.worker} begins no step: {runtime.memory.reason}")


def _commit(runtime: Runtime, lease: Lease, product: Product, bodies: Mapping[str, Body]) -> _Committed:
    """Store the product, and release or claim what waited for it, in one transaction."""
    graph = pipeline(lease.pipeline)
    if not graph.after(lease.node):
        commits.finish(runtime.database, lease, product, owner=runtime.owner)
        runtime.blobs.remove_scratch(lease.job_id)
        runtime.ring()
        runtime.tally.add("jobs_ended", state=JobState.SUCCEEDED)
        runtime.tally.add("audio_s", product.audio_s or 0.0, pipeline=lease.pipeline)
        logger.info("job succeeded", extra={"audio_s": product.audio_s})
        return _Committed()
    if product.audio_s is not None and product.audio_s < NOTED_AUDIO_S:
        product = replace(product, audio_s=None)
    # Output that can be had again at little cost need not survive a power cut; the next durable commit takes it along.
    durable = not step(lease.step).is_cheap
    done = canvas.Done(lease.job_id, lease.node, is_only=lease.inputs.get("of", 1) == 1)
    following = canvas.in_line(graph, done, product.output)
    if following is not None and _may_run(runtime, following.row, bodies) and not product.artifacts:
        who = _claimer(runtime)
        return _Committed((), commits.go_on(runtime.database, lease, product, following, who, durable=durable))
    with runtime.database.begin(durable=durable) as connection:
        commits.store(connection, lease, product, owner=runtime.owner)
        if product.audio_s is not None:
            note_audio(connection, lease.job_id, product.audio_s)
        return _Committed(canvas.release(connection, graph, done, product.output))


def _may_run(runtime: Runtime, row: NewStepRun, bodies: Mapping[str, Body]) -> bool:
    """Tell whether this worker may go on with a step run at once."""
    return row.step in bodies and runtime.serves(row.queue) and not runtime.keeper.is_closing


def _go_on(runtime: Runtime, task: Task[Any, Any], lease: Lease, missing: Sequence[canvas.Missing]) -> None:
    """Let Celery send the next link of the chain if it is what became ready, and send the rest ourselves."""
    ready = [item for item in missing if item.is_ready]
    chain: Any = task.request.chain
    next_id = chain[-1]["args"][1] if chain else None
    ours = [item for item in ready if item.id != next_id]
    if ours:
        # What Celery sends is known to the canvas, so that no chain of ours runs ahead of it, and begins none.
        rest = [replace(item, is_ready=False) if item.id == next_id else item for item in missing]
        dispatch.send_missing(runtime.database, runtime.app, lease, rest)
    if next_id is not None and len(ours) == len(ready):
        raise Ignore  # what comes next in this chain still waits for other inputs


def _interrupted(runtime: Runtime, lease: Lease, reason: Interruption) -> None:
    """Give the lease back, or drop a result that nobody wants."""
    runtime.tally.add("steps", step=lease.step, outcome=reason.code)
    logger.info("interrupted", extra={"reason": reason.code})
    if isinstance(reason, LeaseLost):
        return

    def give_back(connection: Connection) -> None:
        if isinstance(reason, AudioGone):
            _begin_anew(runtime, connection, lease, reason)
        elif isinstance(reason, Cancelled):
            leases.end(connection, lease, Ending(StepState.CANCELLED, "cancelled"), owner=runtime.owner)
        else:
            leases.end(connection, lease, Ending(StepState.QUEUED, "released"), owner=runtime.owner)
            send_again(connection, lease.job_id, delay_s=0.0 if _knows(lease) else UNKNOWN_VERSION_DELAY_S)

    try:
        runtime.database.run(give_back)
        if isinstance(reason, Cancelled):
            runtime.upkeep.tick()
    except VoicejobsError as error:
        logger.info("could not give the lease back", extra={"code": error.code, "error": error.message})
        _owe(runtime, lease, error)
        return
    if isinstance(reason, Cancelled):
        runtime.blobs.remove_scratch(lease.job_id)


def _owe(runtime: Runtime, lease: Lease, error: VoicejobsError) -> None:
    """Let the keeper give a lease back once the database answers again, if that is why we could not."""
    if isinstance(error, DatabaseUnavailable):
        runtime.keeper.owe(lease)


def _begin_anew(runtime: Runtime, connection: Connection, lease: Lease, reason: AudioGone) -> None:
    """Take the job back to its start; one whose audio goes time and again fails."""
    leases.end(connection, lease, Ending(StepState.QUEUED, "released", error=reason), owner=runtime.owner)
    times = begin_anew(connection, lease.job_id, canvas.first_rows(pipeline(lease.pipeline)))
    if times > runtime.settings.max_attempts:
        error = Internal(f"{reason.message}, {times} times in a row", hint=reason.hint)
        finish_job(connection, lease.job_id, JobState.FAILED, error=error)
    else:
        send_again(connection, lease.job_id)


def _asked_delay_s(error: VoicejobsError) -> float:
    """Return for how long a busy server of an engine asks to be left alone, within reason."""
    return min(dispatch.RETRY_CAP_S, float(error.details.get("retry_after_s") or 0.0))


def _failed(runtime: Runtime, lease: Lease, error: VoicejobsError) -> None:
    """Decide by the kind of error: try again later, or end the job with its whole story."""
    burns = not isinstance(error, NO_ATTEMPT_BURNT)
    final = isinstance(error, Permanent) or (burns and lease.failures + 1 >= runtime.settings.max_attempts)
    trace = None
    if not isinstance(error, Permanent) or error.__cause__ is not None:
        trace = "".join(tracebacks.format_exception(error))[-MAX_ERROR_TRACE_CHARS:]
    runtime.tally.add("steps", step=lease.step, outcome="failed" if final else "retried")
    logger.warning("step failed", extra={"code": error.code, "error": error.message, "final": final})

    def end(connection: Connection) -> None:
        ending = Ending(
            state=StepState.FAILED if final else StepState.QUEUED,
            outcome="failed" if final else "retried",
            is_failure=burns,
            error=error,
            traceback=trace,
        )
        leases.end(connection, lease, ending, owner=runtime.owner)
        if final:
            finish_job(connection, lease.job_id, JobState.FAILED, error=error)
        else:
            delay_s = dispatch.retry_delay_s(lease.failures + 1) if burns else UNBURNT_DELAY_S
            send_again(connection, lease.job_id, delay_s=max(delay_s, _asked_delay_s(error)))

    try:
        runtime.database.run(end)
        if final:  # the rest of its batch, where that was to stop: not together with the job itself, whose row is held
            runtime.database.run(lambda connection: cancel_rest(connection, lease.job_id))
    except VoicejobsError as lost:
        logger.warning("could not record the failure", extra={"error": lost.message})
        _owe(runtime, lease, lost)
        return
    if final:
        runtime.blobs.remove_scratch(lease.job_id)
        runtime.tally.add("jobs_ended", state=JobState.FAILED)
        if not isinstance(error, Permanent):
            runtime.tally.add("dead_letters")
        logger.warning("job failed", extra={"code": error.code})
