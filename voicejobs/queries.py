"""The read side: what commands and servers show. Nothing here writes."""

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select

from voicejobs.errors import NoSuchRecord
from voicejobs.store.database import Database
from voicejobs.store.paths import decode_path, display_name
from voicejobs.store.schema import artifacts, attempts, batches, jobs, results, step_runs
from voicejobs.store.states import JobState, StepState

FINISHED_OVERLAP_S = 2.0
"""A commit can come this much later than the time that its row says."""


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


@dataclass(frozen=True, slots=True)
class Active:
    """Describe a step run at work."""

    job_id: str
    name: str
    step: str
    audio_s: float | None
    progress_s: float


def finished_jobs(
    database: Database, batch_ids: Sequence[str], since: float = 0.0, *, but: Container[str] = ()
) -> list[Finished]:
    """Return the ended jobs of batches from `since` (less the overlap) on, in the order of their end, `but` some."""
    query = (
        select(
            jobs.c.id,
            jobs.c.source_name,
            jobs.c.state,
            jobs.c.audio_s,
            jobs.c.finished_at,
            jobs.c.error,
            jobs.c.outputs,
        )
        .where(jobs.c.batch_id.in_(batch_ids), jobs.c.finished_at >= since - FINISHED_OVERLAP_S)
        .order_by(jobs.c.finished_at, jobs.c.id)
    )
    with database.read() as connection:
        return [
            Finished(
                row.id,
                row.source_name,
                row.state,
                row.audio_s,
                row.finished_at,
                json.loads(row.error) if row.error else None,
                json.loads(row.outputs) if row.outputs else (),
            )
            for row in connection.execute(query)
            if row.id not in but
        ]


def active_steps(database: Database, batch_ids: Sequence[str], limit: int = 20) -> list[Active]:
    """Return what workers do for batches at this moment, oldest first."""
    query = (
        select(jobs.c.id, jobs.c.source_name, step_runs.c.step, jobs.c.audio_s, step_runs.c.progress_s)
        .join(jobs, jobs.c.id == step_runs.c.job_id)
        .where(step_runs.c.state == StepState.RUNNING, jobs.c.batch_id.in_(batch_ids))
        .order_by(step_runs.c.started_at)
        .limit(limit)
    )
    with database.read() as connection:
        return [Active(*row) for row in connection.execute(query)]


def list_jobs(
    database: Database, *, state: str | None = None, batch_id: str | None = None, limit: int = 50
) -> list[dict[str, Any]]:
    """Return the newest jobs, newest first."""
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
        query = query.where(jobs.c.state == state)
    if batch_id is not None:
        query = query.where(jobs.c.batch_id == batch_id)
    return _rows(database, query.limit(limit))


def list_batches(database: Database, limit: int = 50) -> list[dict[str, Any]]:
    """Return the newest batches with the number of their jobs by state, newest first."""
    query = select(
        batches.c.id,
        batches.c.label,
        batches.c.state,
        batches.c.lane,
        batches.c.created_at,
        batches.c.sealed_at,
        batches.c.finished_at,
    ).order_by(batches.c.id.desc())
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
    found = _rows(database, select(batches).where(batches.c.id == batch_id))
    if not found:
        raise NoSuchRecord(f"There is no batch {batch_id!r}", hint="`voicejobs batch list` shows them.")
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
        **found[0],
        "options": json.loads(found[0]["options"]),
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
    "trace_id", "deaths", "sent_count", "error_code", "created_at", "started_at", "finished_at",
)  # fmt: skip
_STEP_FIELDS = (
    "id", "node", "step", "step_version", "shard", "state", "queue", "progress_s", "fence", "failures", "worker",
    "device", "owner", "lease_until", "error_code", "created_at", "started_at", "finished_at",
)  # fmt: skip
_ATTEMPT_FIELDS = (
    "fence", "outcome", "worker", "device", "owner", "started_at", "finished_at", "error_code", "message", "traceback",
)  # fmt: skip


def live_count(database: Database, batch_id: str) -> int:
    """Return how many jobs of a batch have not ended."""
    query = select(func.count()).where(jobs.c.batch_id == batch_id, jobs.c.finished_at.is_(None))
    with database.read() as connection:
        return int(connection.execute(query).scalar_one())


def _rows(database: Database, query: Select[Any]) -> list[dict[str, Any]]:
    """Run a query and return its rows as dictionaries."""
    with database.read() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]
