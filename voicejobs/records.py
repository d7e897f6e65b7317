"""What a tenant sees of its jobs, batches and artifacts: rows as records of the native surface, times in unix seconds.

Every function works on the caller's connection, so that an answer can be made inside the transaction that it is about,
and finds nothing of another tenant.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, func, select, text

from voicejobs import formats
from voicejobs.audio import encode
from voicejobs.errors import NoSuchRecord, Permanent, error_from_json
from voicejobs.outbound.sources import is_elsewhere
from voicejobs.pipelines.pipeline import pipeline
from voicejobs.store.schema import TOGETHER, artifacts, attempts, batches, jobs, results, step_runs
from voicejobs.store.states import LIVE_JOB, JobState, StepState

SINGLE: Final = "single"
TRANSCRIPTS: Final = ("transcript", "captions")
"""Kinds of artifacts that hold a transcript, in the form of `Transcript.from_json`."""
SHOWN_KINDS: Final = (*TRANSCRIPTS, "sound", "subtitles", "text")
_STAGES: Final[Mapping[str, str]] = {
    "prepare": "decoding",
    "recognise": "transcribing",
    "synthesise": "synthesizing",
    "deliver": "writing",
    "join": "writing",
    "plan_text": "planning",
    "plan_captions": "planning",
    "retell": "planning",
}
FETCHING: Final = "fetching"
_ENGINE_STEPS: Final = ("recognise", "synthesise")
_HIDDEN_OPTIONS: Final = frozenset({"target", "replace", "known", "prompt_audio"})
_WHOLE: Final = 100.0
_IDS_AT_ONCE: Final = 500

JOB_COLUMNS: Final = (
    jobs.c.id, jobs.c.batch_id, jobs.c.pipeline, jobs.c.options, jobs.c.source, jobs.c.source_name, jobs.c.input_sha256,
    jobs.c.state, jobs.c.priority, jobs.c.audio_s, jobs.c.error, jobs.c.trace_id, jobs.c.created_at, jobs.c.started_at,
    jobs.c.finished_at, jobs.c.expires_at, jobs.c.request, jobs.c.seq, batches.c.kind, batches.c.lane,
)  # fmt: skip
ARTIFACT_COLUMNS: Final = (
    artifacts.c.id, artifacts.c.job_id, artifacts.c.kind, artifacts.c.sha256, artifacts.c.size_bytes, artifacts.c.meta,
    artifacts.c.created_at, jobs.c.source_name,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Progress:
    """Tell how far a job is.

    Args:
        stage: what is being done; empty while nothing is.
        attempt: how many times its present or last step was begun.
        done_s: seconds of audio that are behind it.
        total_s: seconds of audio in all, None while they are not known.
    """

    stage: str = ""
    attempt: int = 0
    done_s: float = 0.0
    total_s: float | None = None


def select_jobs(tenant: str) -> Select[Any]:
    """Return the query of the jobs of a tenant."""
    joined = jobs.join(batches, batches.c.id == jobs.c.batch_id)
    return select(*JOB_COLUMNS).select_from(joined).where(jobs.c.tenant == tenant)


def filtered(query: Select[Any], *, status: str = "", batch_id: str = "", name: str = "") -> Select[Any]:
    """Return a query of jobs in a state, of a batch, whose name holds a text."""
    if status:
        query = query.where(jobs.c.state == status)
    if batch_id:
        query = query.where(jobs.c.batch_id == batch_id)
    if name:
        query = query.where(jobs.c.source_name.contains(name, autoescape=True))
    return query


def job_of(connection: Connection, tenant: str, job_id: str) -> dict[str, Any]:
    """Return the record of a job.

    Raises:
        NoSuchRecord: the tenant has none of this id.
    """
    row = connection.execute(select_jobs(tenant).where(jobs.c.id == job_id)).first()
    if row is None:
        raise no_such("job", job_id)
    return job_records(connection, [row])[0]


def movement_of(connection: Connection, tenant: str, job_id: str) -> dict[str, Any]:
    """Return the part of the record of a job that moves while it runs: two small queries.

    Raises:
        NoSuchRecord: the tenant has none of this id.
    """
    columns = (jobs.c.id, jobs.c.state, jobs.c.source, jobs.c.audio_s, jobs.c.started_at, jobs.c.finished_at)
    row = connection.execute(select(*columns).where(jobs.c.id == job_id, jobs.c.tenant == tenant)).first()
    if row is None:
        raise no_such("job", job_id)
    return _movement(row, progress_of(connection, [job_id]).get(job_id, Progress()), time.time())


def no_such(what: str, wanted: str) -> NoSuchRecord:
    """Return the error for a record that a tenant does not have."""
    return NoSuchRecord(f"There is no {what} {wanted!r}", hint=f"The list of its kind shows each {what} there is.")


def job_records(connection: Connection, rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the records of jobs, with how far they are and what they have left behind."""
    ids = [row.id for row in rows]
    progress = progress_of(connection, ids)
    kept = artifacts_of(connection, ids)
    told = _results_of(connection, ids)
    now = time.time()
    return [
        _job_record(row, progress.get(row.id, Progress()), kept.get(row.id, []), told.get(row.id), now) for row in rows
    ]


def _stage(progress: Progress, source: Mapping[str, Any]) -> str | None:
    """Return what is being done; the first step of a job begins with fetching what lies elsewhere."""
    if progress.stage and is_elsewhere(source):
        return FETCHING
    return progress.stage or None


def _job_record(row: Any, progress: Progress, kept: Sequence[Any], result: Any, now: float) -> dict[str, Any]:
    """Return one record."""
    options, source = _loads(row.options), json.loads(row.source)
    request = _loads(row.request) if row.request else {}
    engine: dict[str, Any] = next(
        (options[node.name] for node in pipeline(row.pipeline).nodes if node.step in _ENGINE_STEPS), {}
    )
    return {
        "id": row.id,
        "object": "job",
        "batch_id": None if row.kind == SINGLE else row.batch_id,
        "custom_id": request.get("custom_id"),
        "pipeline": row.pipeline,
        "engine": engine.get("engine", ""),
        "model": engine.get("model", ""),
        **_movement(row, progress, now),
        "source": {"name": row.source_name, "sha256": row.input_sha256, "size_bytes": source.get("size")},
        "options": {
            node: {name: value for name, value in values.items() if name not in _HIDDEN_OPTIONS}
            for node, values in options.items()
        },
        "output_formats": request.get("output_formats", []),
        "metadata": request.get("metadata", {}),
        "lane": row.lane,
        "priority": row.priority,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "expires_at": row.expires_at,
        "error": error_record(row.error),
        "usage": _usage(row, result),
        "result": None if result is None else {"language": result.language, "words": result.words},
        "artifacts": [artifact_record(one) for one in kept],
        "trace_id": row.trace_id,
    }


def _loads(text: str) -> Any:
    """Return JSON of a row without halves of characters: a command line may have bytes that are no text."""
    value = json.loads(text)
    if "\\ud" in text:  # so are written both halves of a rare character, and a half alone
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value


def _movement(row: Any, progress: Progress, now: float) -> dict[str, Any]:
    """Return what moves of a job."""
    return {
        "id": row.id,
        "object": "job",
        "status": row.state,
        "stage": _stage(progress, json.loads(row.source)) if row.state in LIVE_JOB else None,
        "progress": _progress_record(row, progress, now),
        "attempt": progress.attempt,
    }


def _progress_record(row: Any, progress: Progress, now: float) -> dict[str, Any]:
    """Return how far a job is in numbers; what is not known is null."""
    total_s = row.audio_s
    done_s = total_s or 0.0 if row.state == JobState.SUCCEEDED else progress.done_s
    percent = _WHOLE if row.state == JobState.SUCCEEDED else min(_WHOLE, done_s / total_s * _WHOLE) if total_s else 0.0
    elapsed_s = (row.finished_at or now) - row.started_at if row.started_at else 0.0
    rtf = done_s / elapsed_s if elapsed_s > 0 and done_s else None
    left_s = max(0.0, total_s - done_s) if total_s else None
    is_live = row.state in LIVE_JOB
    return {
        "percent": round(percent, 1),
        "done_s": round(done_s, 3),
        "total_s": None if total_s is None else round(total_s, 3),
        "rtf": None if rtf is None else round(rtf, 2),
        "eta_s": round(left_s / rtf, 1) if is_live and rtf and left_s is not None else None,
    }


def error_record(text: str | None) -> dict[str, Any] | None:
    """Return what a job died of, as problems are written."""
    if not text:
        return None
    error = error_from_json(json.loads(text))
    title = (type(error).__doc__ or "").strip().split("\n", maxsplit=1)[0]
    return {
        "type": f"/problems/{error.code}",
        "title": title,
        "detail": error.message,
        "hint": error.hint,
        "code": error.code,
        "retryable": not isinstance(error, Permanent),
    }


def _usage(row: Any, result: Any) -> dict[str, Any] | None:
    """Return what a job is counted by: seconds of audio, and words."""
    if row.audio_s is None:
        return None
    return {"type": "duration", "seconds": round(row.audio_s, 3), **({} if result is None else {"words": result.words})}


def _results_of(connection: Connection, job_ids: Sequence[str]) -> dict[str, Any]:
    """Return language and words of the results of jobs."""
    query = select(results.c.job_id, results.c.language, results.c.words).where(results.c.job_id.in_(job_ids))
    return {row.job_id: row for row in connection.execute(query)}


def progress_of(connection: Connection, job_ids: Sequence[str]) -> dict[str, Progress]:
    """Return how far jobs are."""
    found: dict[str, list[Any]] = {}
    query = (
        select(
            step_runs.c.job_id,
            step_runs.c.step,
            step_runs.c.depth,
            func.sum(step_runs.c.progress_s).label("done_s"),
            func.max(step_runs.c.fence).label("fence"),
            func.max(step_runs.c.state == StepState.RUNNING) if _is_sqlite(connection)
            else func.bool_or(step_runs.c.state == StepState.RUNNING),
        )
        .where(step_runs.c.job_id.in_(job_ids))
        .group_by(step_runs.c.job_id, step_runs.c.step, step_runs.c.depth)
        .order_by(step_runs.c.depth)
    )  # fmt: skip
    for row in connection.execute(query):
        found.setdefault(row.job_id, []).append(row)
    return {job_id: _progress(rows) for job_id, rows in found.items()}


def _progress(rows: Sequence[Any]) -> Progress:
    """Return how far a job is by the sums over its steps: what its first engine has done counts."""
    running = [row for row in rows if row[5]]
    begun = [row for row in rows if row.fence]
    engine = next((row for row in rows if row.step in _ENGINE_STEPS), None)
    return Progress(
        stage=_STAGES.get(running[-1].step, "") if running else "",
        attempt=int((running or begun)[-1].fence) if begun else 0,
        done_s=float(engine.done_s or 0.0) if engine is not None else 0.0,
    )


def _is_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite"


def attempts_of(connection: Connection, tenant: str, job_id: str) -> list[dict[str, Any]]:
    """Return the attempts at the steps of a job, oldest first; who worked on it is the operator's business.

    Raises:
        NoSuchRecord: the tenant has none of this id.
    """
    demand_job(connection, tenant, job_id)
    query = (
        select(
            step_runs.c.node,
            step_runs.c.shard,
            attempts.c.fence,
            attempts.c.outcome,
            attempts.c.device,
            attempts.c.started_at,
            attempts.c.finished_at,
            attempts.c.error_code,
            attempts.c.message,
        )
        .join(step_runs, step_runs.c.id == attempts.c.step_run_id)
        .where(step_runs.c.job_id == job_id)
        .order_by(attempts.c.finished_at, step_runs.c.node, step_runs.c.shard)
    )
    return [
        {
            "node": row.node,
            "shard": row.shard,
            "attempt": row.fence,
            "outcome": row.outcome,
            "device": row.device,
            "started_at": row.started_at,
            "finished_at": row.finished_at,
            "error": None if row.error_code is None else {"code": row.error_code, "detail": row.message or ""},
        }
        for row in connection.execute(query)
    ]


def demand_job(connection: Connection, tenant: str, job_id: str) -> str:
    """Return the state of a job.

    Raises:
        NoSuchRecord: the tenant has none of this id.
    """
    query = select(jobs.c.state).where(jobs.c.id == job_id, jobs.c.tenant == tenant)
    state = connection.execute(query).scalar()
    if state is None:
        raise no_such("job", job_id)
    return str(state)


def artifacts_of(connection: Connection, job_ids: Sequence[str]) -> dict[str, list[Any]]:
    """Return the rows of the artifacts that people may see, by job; the newest of each kind and format."""
    found: dict[str, dict[tuple[str, str], Any]] = {}
    for first in range(0, len(job_ids), _IDS_AT_ONCE):
        query = (
            select(*ARTIFACT_COLUMNS)
            .join(jobs, jobs.c.id == artifacts.c.job_id)
            .where(
                artifacts.c.job_id.in_(job_ids[first : first + _IDS_AT_ONCE]),
                artifacts.c.kind.in_(SHOWN_KINDS),
                jobs.c.state == JobState.SUCCEEDED,
            )
            .order_by(artifacts.c.id)
        )
        for row in connection.execute(query):
            form = str(json.loads(row.meta).get("format", ""))
            found.setdefault(row.job_id, {})[row.kind, form] = row
    return {job_id: list(kinds.values()) for job_id, kinds in found.items()}


def artifact_record(row: Any) -> dict[str, Any]:
    """Return the record of an artifact; `size_bytes` is null where it is kept packed."""
    meta = json.loads(row.meta)
    packed = is_packed(meta)
    return {
        "id": row.id,
        "object": "artifact",
        "job_id": row.job_id,
        "kind": row.kind,
        "format": meta.get("format"),
        "media_type": media_type(meta),
        "filename": filename(row.source_name, row.kind, meta),
        "size_bytes": None if packed else row.size_bytes,
        "sha256": None if packed else row.sha256,
        "created_at": row.created_at,
    }


def is_packed(meta: Mapping[str, Any]) -> bool:
    """Tell whether the content of an artifact is kept compressed."""
    return meta.get("encoding") == "deflate"


def media_type(meta: Mapping[str, Any]) -> str:
    """Return the media type of an artifact, which is one of ours, whatever its input claimed to be."""
    return str(meta.get("type") or "application/octet-stream")


def filename(source_name: str, kind: str, meta: Mapping[str, Any]) -> str:
    """Return the name under which an artifact is saved: that of the input, with the ending of the content."""
    stem = source_name.replace("\\", "/").rpartition("/")[2]
    stem = stem.rpartition(".")[0] or stem or "output"
    form = str(meta.get("format") or "")
    if form:
        return stem + (encode.extension(form) if kind == "sound" else formats.extension(form))
    return stem + {"transcript": ".transcript.json", "captions": ".captions.json", "text": ".txt"}.get(kind, ".bin")


def artifact_of(connection: Connection, tenant: str, artifact_id: str) -> Any:
    """Return the row of an artifact that people may see.

    Raises:
        NoSuchRecord: the tenant has none of this id.
    """
    query = (
        select(*ARTIFACT_COLUMNS, artifacts.c.data)
        .join(jobs, jobs.c.id == artifacts.c.job_id)
        .where(artifacts.c.id == artifact_id, jobs.c.tenant == tenant, artifacts.c.kind.in_(SHOWN_KINDS))
    )
    row = connection.execute(query).first()
    if row is None:
        raise no_such("artifact", artifact_id)
    return row


def select_batches(tenant: str) -> Select[Any]:
    """Return the query of the batches of a tenant, those left out that hold one job which was submitted alone."""
    return select(batches).where(batches.c.tenant == tenant, text(TOGETHER))


def batch_of(connection: Connection, tenant: str, batch_id: str) -> dict[str, Any]:
    """Return the record of a batch.

    Raises:
        NoSuchRecord: the tenant has none of this id.
    """
    row = connection.execute(select_batches(tenant).where(batches.c.id == batch_id)).first()
    if row is None:
        raise no_such("batch", batch_id)
    return batch_records(connection, [row])[0]


def batch_records(connection: Connection, rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the records of batches."""
    ids = [row.id for row in rows]
    query = (
        select(
            jobs.c.batch_id,
            jobs.c.state,
            func.count().label("jobs"),
            func.coalesce(func.sum(jobs.c.audio_s), 0.0).label("audio_s"),
        )
        .where(jobs.c.batch_id.in_(ids))
        .group_by(jobs.c.batch_id, jobs.c.state)
    )
    counts: dict[str, dict[str, tuple[int, float]]] = {}
    for row in connection.execute(query):
        counts.setdefault(row.batch_id, {})[row.state] = (int(row.jobs), float(row.audio_s))
    return [_batch_record(row, counts.get(row.id, {})) for row in rows]


def _batch_record(row: Any, counts: Mapping[str, tuple[int, float]]) -> dict[str, Any]:
    """Return one record."""
    request = json.loads(row.request) if row.request else {}
    by_state = {state: count for state, (count, _) in counts.items()}
    return {
        "id": row.id,
        "object": "batch",
        "status": row.state,
        "label": row.label,
        "lane": row.lane,
        "request_counts": {
            "total": sum(by_state.values()),
            "completed": by_state.get(JobState.SUCCEEDED, 0),
            **{
                state.value: by_state.get(state, 0)
                for state in (
                    JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED, JobState.QUEUED, JobState.RUNNING,
                    JobState.CANCELLING,
                )
            },
        },
        "audio_s": round(counts.get(JobState.SUCCEEDED, (0, 0.0))[1], 3),
        "metadata": request.get("metadata", {}),
        "created_at": row.created_at,
        "finished_at": row.finished_at,
    }  # fmt: skip


def demand_batch(connection: Connection, tenant: str, batch_id: str) -> str:
    """Return the state of a batch.

    Raises:
        NoSuchRecord: the tenant has none of this id.
    """
    query = select_batches(tenant).where(batches.c.id == batch_id)
    row = connection.execute(query).first()
    if row is None:
        raise no_such("batch", batch_id)
    return str(row.state)


def transcript_artifact(connection: Connection, tenant: str, job_id: str) -> Any:
    """Return the artifact with the transcript of a job, or with the captions of what it has spoken.

    Raises:
        NoSuchRecord: there is no such job, or it has no transcript.
    """
    demand_job(connection, tenant, job_id)
    query = (
        select(*ARTIFACT_COLUMNS, artifacts.c.data, jobs.c.state)
        .join(jobs, jobs.c.id == artifacts.c.job_id)
        .join(results, and_(results.c.job_id == jobs.c.id, results.c.artifact_id == artifacts.c.id))
        .where(artifacts.c.job_id == job_id, _has_ended())
    )
    row = connection.execute(query).first()
    if row is None:
        raise NoSuchRecord(f"The job {job_id} has no transcript", hint="It has one once its status is succeeded.")
    return row


def _has_ended() -> ColumnElement[bool]:
    """Tell which jobs have succeeded."""
    return jobs.c.state == JobState.SUCCEEDED
