"""The read side: what commands and servers show. Nothing here writes."""

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, and_, exists, func, literal, select

from voicejobs.errors import NoSuchRecord, Poison, Transient, VoicejobsError
from voicejobs.messages import CPU
from voicejobs.store.database import Database
from voicejobs.store.paths import decode_path, display_name
from voicejobs.store.schema import artifacts, attempts, batches, jobs, results, step_runs
from voicejobs.store.states import STARTABLE_JOB, JobState, StepState

DEAD = "dead"
"""Stands for a state in `list_jobs`."""
FINISHED_OVERLAP_S = 2.0
"""A commit can come this much later than the time that its row says."""

_IDS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Finished:
    """Describe a job that has ended."""

    id: str
    name: str
    state: str
    audio_s: float | None
    finished_at: float
    error: Mapping[str, Any] | None
    outputs: Sequence[Mapping[str, Any]]
    words: int | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Active:
    """Describe a job at work: the step that runs, and the seconds of audio that it, in all its parts, has behind it."""

    job_id: str
    name: str
    step: str
    audio_s: float | None
    progress_s: float


def finished_jobs(
    database: Database,
    batch_ids: Sequence[str],
    since: float = 0.0,
    *,
    but: Container[str] = (),
    only: Container[str] | None = None,
) -> list[Finished]:
    """Return jobs of batches that ended from `since` (less the overlap) on, in that order: `only` some, `but` some."""
    query = (
        select(
            jobs.c.id,
            jobs.c.source_name,
            jobs.c.state,
            jobs.c.audio_s,
            jobs.c.finished_at,
            jobs.c.error,
            jobs.c.outputs,
            results.c.words,
        )
        .outerjoin(results, results.c.job_id == jobs.c.id)
        .where(jobs.c.batch_id.in_(batch_ids), jobs.c.finished_at >= since - FINISHED_OVERLAP_S)
        .order_by(jobs.c.finished_at, jobs.c.id)
    )
    with database.read() as connection:
        found = [row for row in connection.execute(query) if row.id not in but and (only is None or row.id in only)]
        warnings = _warnings(connection, [row.id for row in found])
        return [
            Finished(
                row.id,
                row.source_name,
                row.state,
                row.audio_s,
                row.finished_at,
                json.loads(row.error) if row.error else None,
                json.loads(row.outputs) if row.outputs else (),
                row.words,
                warnings.get(row.id, ()),
            )
            for row in found
        ]


def _warnings(connection: Connection, job_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the warnings of those jobs that have any: the output of a step names them."""
    told: dict[str, tuple[str, ...]] = {}
    for first in range(0, len(job_ids), _IDS_AT_ONCE):
        some = job_ids[first : first + _IDS_AT_ONCE]
        query = select(step_runs.c.job_id, step_runs.c.output).where(
            step_runs.c.job_id.in_(some), step_runs.c.queue == CPU, step_runs.c.output.contains('"warnings"')
        )
        for row in connection.execute(query):
            found = json.loads(row.output).get("warnings", ())
            codes = (one["code"] if isinstance(one, dict) else one for one in found)  # some tell more than their code
            told[row.job_id] = tuple(dict.fromkeys(codes))
    return told


def active_steps(database: Database, batch_ids: Sequence[str], limit: int = 20) -> list[Active]:
    """Return the jobs that workers run for batches at this moment, oldest first."""
    running = (
        select(jobs.c.id, jobs.c.source_name, step_runs.c.node, jobs.c.audio_s)
        .join(jobs, jobs.c.id == step_runs.c.job_id)
        .where(step_runs.c.state == StepState.RUNNING, jobs.c.batch_id.in_(batch_ids))
        .order_by(step_runs.c.started_at)
        .limit(limit)
    )
    with database.read() as connection:
        found = {row.id: row for row in connection.execute(running)}  # the newest of the steps of a job
        if not found:
            return []
        summed = (
            select(step_runs.c.job_id, step_runs.c.node, func.sum(step_runs.c.progress_s).label("seconds"))
            .where(step_runs.c.job_id.in_(found))
            .group_by(step_runs.c.job_id, step_runs.c.node)
        )
        seconds = {(row.job_id, row.node): row.seconds for row in connection.execute(summed)}
    return [
        Active(row.id, row.source_name, row.node, row.audio_s, seconds.get((row.id, row.node), 0.0))
        for row in found.values()
    ]


def waiting_errors(database: Database, batch_ids: Sequence[str]) -> dict[str, str]:
    """Return why jobs wait to be tried again: for each code of a transient error the message of the last attempt."""
    query = (
        select(attempts.c.error_code, attempts.c.message)
        .join(step_runs, step_runs.c.id == attempts.c.step_run_id)
        .join(jobs, jobs.c.id == step_runs.c.job_id)
        .where(
            jobs.c.batch_id.in_(batch_ids),
            jobs.c.finished_at.is_(None),
            jobs.c.run_after.is_not(None),
            step_runs.c.state == StepState.QUEUED,
            attempts.c.error_code.is_not(None),
        )
        .order_by(attempts.c.finished_at)
        .limit(100)
    )
    with database.read() as connection:
        return {row.error_code: row.message or "" for row in connection.execute(query)}


def failed_targets(database: Database, targets: Sequence[str]) -> set[str]:
    """Return those of the targets (as `jobs.target` has them) whose newest job failed, or ended without an outcome."""
    query = select(jobs.c.target, jobs.c.state).where(jobs.c.target.in_(targets)).order_by(jobs.c.id)
    with database.read() as connection:
        newest = {row.target: row.state for row in connection.execute(query)}
    unfinished = (JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED)
    return {target for target, state in newest.items() if state in unfinished}


def succeeded_targets(database: Database, targets: Sequence[str]) -> set[str]:
    """Return those of the targets (as `jobs.target` has them) to which a job has delivered."""
    query = select(jobs.c.target).where(jobs.c.target.in_(targets), jobs.c.state == JobState.SUCCEEDED)
    with database.read() as connection:
        return set(connection.execute(query).scalars())


def sources_of(database: Database, target: str) -> set[str]:
    """Return the paths of the inputs whose jobs deliver, or have delivered, to a target (as `jobs.target` has it)."""
    states = (*STARTABLE_JOB, JobState.SUCCEEDED)
    query = select(jobs.c.source).where(jobs.c.target == target, jobs.c.state.in_(states))
    with database.read() as connection:
        return {decode_path(json.loads(source)) for source in connection.execute(query).scalars()}


@dataclass(frozen=True, slots=True)
class PastSpeed:
    """Tell how fast earlier batches went, as seconds of audio for each second of time."""

    speed: float
    batches: int


def past_speed(database: Database, pace: Mapping[str, Any], limit: int = 20) -> PastSpeed | None:
    """Return the speed of the newest batches of the same kind; None where there is none.

    Jobs whose text was known, and that only wrote their files, took no time worth counting.

    Args:
        database: the store.
        pace: `node` whose options count, `first` node that a job with work to do has, and the options that must be
            the same: engine, model and what else sets the speed.
        limit: how many batches are looked at.
    """
    same = {name: value for name, value in pace.items() if name not in {"node", "first"}}
    worked = exists(select(literal(1)).where(step_runs.c.job_id == jobs.c.id, step_runs.c.node == pace["first"]))
    query = (
        select(batches.c.options, func.min(jobs.c.started_at), func.max(jobs.c.finished_at), func.sum(jobs.c.audio_s))
        .join(batches, batches.c.id == jobs.c.batch_id)
        .where(
            jobs.c.batch_id.in_(select(batches.c.id).order_by(batches.c.id.desc()).limit(limit)),
            jobs.c.state == JobState.SUCCEEDED,
            jobs.c.audio_s.is_not(None),
            jobs.c.started_at.is_not(None),
            worked,
        )
        .group_by(batches.c.id, batches.c.options)
    )
    spent_s = audio_s = 0.0
    count = 0
    with database.read() as connection:
        for options, began, ended, seconds in connection.execute(query):
            used = json.loads(options).get(pace["node"], {})
            if any(used.get(name) != value for name, value in same.items()) or ended <= began:
                continue
            spent_s += ended - began
            audio_s += seconds
            count += 1
    return PastSpeed(audio_s / spent_s, count) if audio_s else None


def list_jobs(
    database: Database,
    *,
    state: str | None = None,
    batch_id: str | None = None,
    matches: Mapping[str, str] | None = None,
    after: str = "",
    limit: int = 50,
) -> list[dict[str, Any]]:
    """Return the newest jobs, newest first.

    Args:
        database: the store.
        state: only jobs in this state, or with `DEAD` only dead letters: those that were given up after all their
            attempts, or as poison.
        batch_id: only jobs of this batch.
        matches: only jobs whose `name` holds a text, and whose `error_code` is one.
        after: id of the last job of the page before; jobs that came since do not shift the pages.
        limit: at most so many.
    """
    query = select(
        jobs.c.id,
        jobs.c.batch_id,
        jobs.c.source_name.label("name"),
        jobs.c.state,
        jobs.c.audio_s,
        jobs.c.error_code,
        jobs.c.created_at,
        jobs.c.started_at,
        jobs.c.finished_at,
    ).order_by(jobs.c.id.desc())
    if state is not None:
        query = query.where(_is_dead_letter() if state == DEAD else jobs.c.state == state)
    if batch_id is not None:
        query = query.where(jobs.c.batch_id == batch_id)
    wanted = matches or {}
    if wanted.get("name"):
        query = query.where(jobs.c.source_name.contains(wanted["name"], autoescape=True))
    if wanted.get("error_code"):
        query = query.where(jobs.c.error_code == wanted["error_code"])
    if after:
        query = query.where(jobs.c.id < after)
    return _rows(database, query.limit(limit))


def _is_dead_letter() -> Any:
    """Tell which jobs have failed although trying again might have helped: the last of several attempts, or poison.

    What is wrong with an input, an option or a place for outputs is told by the first attempt, and stays wrong.
    """
    return and_(jobs.c.state == JobState.FAILED, jobs.c.error_code.in_(dead_letter_codes()))


def dead_letter_codes() -> list[str]:
    """Return the codes of the errors that a job was given up for, although trying again might have helped."""
    return [error.code for root in (Transient, Poison) for error in _family(root)]


def _family(root: type[VoicejobsError]) -> Iterator[type[VoicejobsError]]:
    """Yield a class of errors, and all below it."""
    yield root
    for child in root.__subclasses__():
        yield from _family(child)


def list_batches(
    database: Database, limit: int = 50, *, state: str | None = None, after: str = ""
) -> list[dict[str, Any]]:
    """Return the newest batches with the number of their jobs by state, newest first; `after` as in `list_jobs`."""
    query = select(
        batches.c.id,
        batches.c.label,
        batches.c.state,
        batches.c.lane,
        batches.c.created_at,
        batches.c.sealed_at,
        batches.c.finished_at,
    ).order_by(batches.c.id.desc())
    if state is not None:
        query = query.where(batches.c.state == state)
    if after:
        query = query.where(batches.c.id < after)
    listed = _rows(database, query.limit(limit))
    counts = batch_counts(database, [batch["id"] for batch in listed])
    return [{**batch, "jobs": counts.get(batch["id"], {})} for batch in listed]


def batch_counts(database: Database, batch_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the number of jobs by state for each of these batches."""
    query = (
        select(jobs.c.batch_id, jobs.c.state, func.count().label("count"))
        .where(jobs.c.batch_id.in_(batch_ids))
        .group_by(jobs.c.batch_id, jobs.c.state)
    )
    counts: dict[str, dict[str, int]] = {}
    with database.read() as connection:
        for row in connection.execute(query):
            counts.setdefault(row.batch_id, {})[row.state] = row[2]
    return counts


def show_batch(database: Database, batch_id: str) -> dict[str, Any]:
    """Return a batch with its counts, its audio seconds and its failures.

    Raises:
        NoSuchRecord: there is no such batch.
    """
    found = show_batch_row(database, batch_id)
    audio = _rows(
        database,
        select(func.coalesce(func.sum(jobs.c.audio_s), 0.0).label("audio_s")).where(
            jobs.c.batch_id == batch_id, jobs.c.state == JobState.SUCCEEDED
        ),
    )
    failures = _rows(
        database,
        select(jobs.c.id, jobs.c.source_name.label("name"), jobs.c.error_code, jobs.c.error)
        .where(jobs.c.batch_id == batch_id, jobs.c.state == JobState.FAILED)
        .order_by(jobs.c.seq)
        .limit(1000),
    )
    return {
        **found,
        "options": json.loads(found["options"]),
        "jobs": batch_counts(database, [batch_id]).get(batch_id, {}),
        "audio_s": audio[0]["audio_s"],
        "failures": [{**failure, "error": json.loads(failure["error"])} for failure in failures],
    }


def show_job(database: Database, job_id: str) -> dict[str, Any]:
    """Return the whole story of a job: its steps with worker, device, times, errors, attempts and artifacts.

    Raises:
        NoSuchRecord: there is no such job.
    """
    found = _rows(database, select(jobs).where(jobs.c.id == job_id))
    if not found:
        raise NoSuchRecord(f"There is no job {job_id!r}", hint="`voicejobs job list` shows them.")
    job = found[0]
    tried = _rows(
        database,
        select(attempts)
        .join(step_runs, step_runs.c.id == attempts.c.step_run_id)
        .where(step_runs.c.job_id == job_id)
        .order_by(attempts.c.fence),
    )
    kept = _rows(
        database,
        select(
            artifacts.c.id,
            artifacts.c.step_run_id,
            artifacts.c.kind,
            artifacts.c.sha256,
            artifacts.c.size_bytes,
            artifacts.c.created_at,
        ).where(artifacts.c.job_id == job_id),
    )
    steps = _rows(
        database,
        select(step_runs)
        .where(step_runs.c.job_id == job_id)
        .order_by(step_runs.c.depth, step_runs.c.node, step_runs.c.shard),
    )
    result = _rows(database, select(results).where(results.c.job_id == job_id))
    return {
        **{name: job[name] for name in _JOB_FIELDS},
        "source": display_name(decode_path(json.loads(job["source"]))),
        "options": json.loads(job["options"]),
        "error": json.loads(job["error"]) if job["error"] else None,
        "outputs": json.loads(job["outputs"]) if job["outputs"] else [],
        "result": result[0] if result else None,
        "steps": [
            {
                **{name: one[name] for name in _STEP_FIELDS},
                "error": json.loads(one["error"]) if one["error"] else None,
                "attempts": [
                    {name: attempt[name] for name in _ATTEMPT_FIELDS}
                    for attempt in tried
                    if attempt["step_run_id"] == one["id"]
                ],
                "artifacts": [artifact for artifact in kept if artifact["step_run_id"] == one["id"]],
            }
            for one in steps
        ],
    }


_JOB_FIELDS = (
    "id", "batch_id", "pipeline", "pipeline_version", "state", "source_name", "audio_s", "input_sha256", "done_key",
    "trace_id", "deaths", "sent_count", "error_code", "created_at", "started_at", "finished_at", "expires_at",
)  # fmt: skip
_STEP_FIELDS = (
    "id", "node", "step", "step_version", "shard", "state", "queue", "progress_s", "fence", "failures", "worker",
    "device", "owner", "lease_until", "error_code", "created_at", "started_at", "finished_at",
)  # fmt: skip
_ATTEMPT_FIELDS = (
    "fence", "outcome", "worker", "device", "owner", "started_at", "finished_at", "error_code", "message", "traceback",
)  # fmt: skip


def newest_ids(database: Database, table: str, prefix: str, limit: int) -> list[str]:
    """Return the newest ids of `jobs` or `batches` that begin with `prefix`."""
    column = {"jobs": jobs.c.id, "batches": batches.c.id}[table]
    query = select(column).where(column.startswith(prefix, autoescape=True)).order_by(column.desc()).limit(limit)
    with database.read() as connection:
        return list(connection.execute(query).scalars())


@dataclass(frozen=True, slots=True)
class Stored:
    """Point to the transcript of a job that has succeeded."""

    job_id: str
    name: str
    artifact_id: str


def stored_transcripts(database: Database, batch_id: str) -> list[Stored]:
    """Return the transcripts that are kept of a batch, in the order of its files.

    Raises:
        NoSuchRecord: there is no such batch.
    """
    show_batch_row(database, batch_id)
    query = (
        select(jobs.c.id, jobs.c.source_name, results.c.artifact_id)
        .join(results, results.c.job_id == jobs.c.id)
        .where(jobs.c.batch_id == batch_id, jobs.c.state == JobState.SUCCEEDED)
        .order_by(jobs.c.seq)
    )
    with database.read() as connection:
        return [Stored(*row) for row in connection.execute(query)]


def show_batch_row(database: Database, batch_id: str) -> dict[str, Any]:
    """Return the row of a batch.

    Raises:
        NoSuchRecord: there is no such batch.
    """
    found = _rows(database, select(batches).where(batches.c.id == batch_id))
    if not found:
        raise NoSuchRecord(f"There is no batch {batch_id!r}", hint="`voicejobs batch list` shows them.")
    return found[0]


def batches_of(database: Database, job_ids: Sequence[str]) -> dict[str, str]:
    """Return the batch of each of these jobs.

    Raises:
        NoSuchRecord: one of them does not exist.
    """
    with database.read() as connection:
        query = select(jobs.c.id, jobs.c.batch_id).where(jobs.c.id.in_(job_ids))
        found = {row.id: str(row.batch_id) for row in connection.execute(query)}
    for job_id in job_ids:
        if job_id not in found:
            raise NoSuchRecord(f"There is no job {job_id!r}", hint="`voicejobs job list` shows them.")
    return found


def live_count(database: Database, batch_id: str) -> int:
    """Return how many jobs of a batch have not ended."""
    query = select(func.count()).where(jobs.c.batch_id == batch_id, jobs.c.finished_at.is_(None))
    with database.read() as connection:
        return int(connection.execute(query).scalar_one())


def live_jobs(database: Database, batch_ids: Sequence[str], job_ids: Container[str] | None = None) -> int:
    """Return how many jobs of batches, or how many of some of them, have not ended."""
    query = select(jobs.c.id).where(jobs.c.batch_id.in_(batch_ids), jobs.c.finished_at.is_(None))
    with database.read() as connection:
        return sum(job_ids is None or job_id in job_ids for job_id in connection.execute(query).scalars())


def _rows(database: Database, query: Select[Any]) -> list[dict[str, Any]]:
    """Run a query and return its rows as dictionaries."""
    with database.read() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]
