"""Change what has been submitted: cancel jobs, and take ended ones up again."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from voicejobs import canvas
from voicejobs.errors import BadOption, InputError, NoSuchRecord, VoicejobsError, WrongState
from voicejobs.pipelines.pipeline import Pipeline, pipeline
from voicejobs.store import jobs as rows
from voicejobs.store import retry as again
from voicejobs.store.database import Database
from voicejobs.store.leases import dump
from voicejobs.store.paths import BLOB, UNREAD, decode_path, encode_path
from voicejobs.store.retry import RETRIABLE_JOB
from voicejobs.store.schema import batches, jobs
from voicejobs.store.states import LIVE_JOB, JobState, StepState
from voicejobs.tasks.content import Content, read_content

CHUNK_JOBS = 200


@dataclass(slots=True)
class Retried:
    """Tell what became of the jobs that were to be taken up again.

    Args:
        queued: ids of those that wait for a worker now.
        refused: ids of the others with the reason.
    """

    queued: list[str] = field(default_factory=list)
    refused: dict[str, VoicejobsError] = field(default_factory=dict)


def cancel_jobs(database: Database, job_ids: Sequence[str]) -> list[str]:
    """Cancel jobs: one that waits ends at once, one that runs as soon as its worker notices. Return those touched.

    A job that is cancelled already is no fault.

    Raises:
        NoSuchRecord: one of them does not exist; none is cancelled then.
        WrongState: one has ended otherwise; none is cancelled then.
    """

    def cancel(connection: Connection) -> list[str]:
        found = _demand(connection, job_ids)
        for job_id in job_ids:
            if found[job_id] not in (*LIVE_JOB, JobState.CANCELLED):
                raise WrongState(
                    f"The job {job_id} has {found[job_id]}, and cannot be cancelled",
                    hint="`voicejobs job list --state running` shows what can.",
                )
        rows.lock_jobs(connection, jobs.c.id.in_(job_ids))
        return [job_id for job_id in job_ids if rows.cancel_jobs(connection, job_id=job_id)]

    return database.run(cancel)


def retry_jobs(database: Database, job_ids: Sequence[str]) -> Retried:
    """Take jobs up again that failed, were cancelled or expired.

    What has run stays where it can serve again: a job whose transcript was finished only writes its files.

    Raises:
        NoSuchRecord: one of them does not exist; none is taken up then.
        WrongState: one is live or has succeeded; none is taken up then.
    """
    unique = list(dict.fromkeys(job_ids))
    with database.read() as connection:
        found = _demand(connection, unique)
    for job_id in unique:
        if found[job_id] not in RETRIABLE_JOB:
            raise WrongState(
                f"The job {job_id} is {found[job_id]}: there is nothing to retry",
                hint="Jobs that failed, were cancelled or expired can be taken up again.",
            )
    return _retry(database, unique)


def retry_batch(database: Database, batch_id: str, states: Sequence[str] = (JobState.FAILED,)) -> Retried:
    """Take up again the jobs of a batch that are in one of these states.

    Raises:
        NoSuchRecord: there is no such batch.
    """
    with database.read() as connection:
        if connection.execute(select(batches.c.id).where(batches.c.id == batch_id)).first() is None:
            raise NoSuchRecord(f"There is no batch {batch_id!r}", hint="`voicejobs batch list` shows them.")
        found = again.find(connection, batch_id=batch_id, states=states)
    return _retry(database, [row.id for row in found])


def settle(database: Database) -> None:
    """Complete the batches all of whose jobs have ended, without waiting for the upkeep of a worker."""
    database.run(rows.complete_batches)


def _demand(connection: Connection, job_ids: Sequence[str]) -> dict[str, str]:
    """Return the states of jobs, all of which must exist."""
    query = select(jobs.c.id, jobs.c.state).where(jobs.c.id.in_(job_ids))
    found = {row.id: str(row.state) for row in connection.execute(query)}
    for job_id in job_ids:
        if job_id not in found:
            raise NoSuchRecord(f"There is no job {job_id!r}", hint="`voicejobs job list` shows them.")
    return found


def _retry(database: Database, job_ids: Sequence[str]) -> Retried:
    """Take jobs up again, some at a time, so that no transaction is long."""
    outcome = Retried()
    for start in range(0, len(job_ids), CHUNK_JOBS):
        chunk = job_ids[start : start + CHUNK_JOBS]
        with database.read() as connection:
            contents = dict(_contents(again.find(connection, job_ids=chunk)))
        done = database.run(partial(_reopen_all, job_ids=chunk, contents=contents))
        outcome.queued += done.queued
        outcome.refused |= done.refused
    return outcome


def _reopen_all(
    connection: Connection, job_ids: Sequence[str], contents: Mapping[str, Content | InputError]
) -> Retried:
    """Take some jobs up again, and let their batches be in progress."""
    outcome = Retried()
    steps = again.lock(connection, job_ids)
    reopened = []
    for row in again.find(connection, job_ids=job_ids, states=RETRIABLE_JOB):
        try:
            if _reopen(connection, row, steps[row.id], contents.get(row.id)):
                reopened.append(row)
        except VoicejobsError as error:
            outcome.refused[row.id] = error
    again.reopen_batches(connection, [row.batch_id for row in reopened])
    outcome.queued += [row.id for row in reopened]
    return outcome


def _contents(found: Sequence[Any]) -> Iterator[tuple[str, Content | InputError]]:
    """Read the inputs of which nothing is known, since they were refused, and those that were mended or changed."""
    for row in found:
        source = json.loads(row.source)
        if source.get("artifact") or source.get(BLOB) or source.get(UNREAD):
            continue  # a text that was given with the job, or a blob, is what it was; what is unread its worker reads
        if row.input_sha256 is None or _has_changed(decode_path(source), source):
            yield row.id, _read(decode_path(source), row.source_name)


def _has_changed(path: str, source: Mapping[str, Any]) -> bool:
    """Tell whether a file is there, and not as it was when it was submitted."""
    try:
        status = Path(path).stat()
    except OSError:
        return False  # where it is needed, the worker says what is wrong with it
    return (status.st_size, status.st_mtime_ns) != (source.get("size"), source.get("mtime_ns"))


def _read(path: str, name: str) -> Content | InputError:
    """Return what is in a file, or why it cannot be read."""
    try:
        return read_content(path, name)
    except InputError as error:
        return error


def _reopen(connection: Connection, row: Any, present: Sequence[Any], content: Content | InputError | None) -> bool:
    """Take one job up again; False where somebody else was faster.

    Raises:
        InputError: it was refused when it was submitted, or has changed since, and cannot be read.
        BadOption: its options are those of another version.
    """
    if isinstance(content, InputError):
        raise content
    graph = pipeline(row.pipeline)
    options = _options(graph, row)
    digest = content.sha256 if content else row.input_sha256
    last = graph.nodes[-1].name
    values: dict[str, Any] = {
        "options": dump(options),
        "pipeline_version": graph.version,
    }
    if digest:
        values |= {
            "input_sha256": digest,
            "done_key": graph.key(digest, options),
            "result_key": graph.key(digest, options, up_to=graph.nodes[-2].name if len(graph.nodes) > 1 else ""),
        }
    if content:
        source = {**json.loads(row.source), "size": content.size, "mtime_ns": content.mtime_ns}
        values |= {"source": dump(source), "cost_order": -content.size}
    if not again.reopen_job(connection, row.id, values):
        return False
    if digest == row.input_sha256 and _only_last_is_missing(graph, present):
        again.reset_last(connection, row.id, last)
    else:
        again.reset_steps(connection, row.id, present, canvas.first_rows(graph))
    return True


def _options(graph: Pipeline, row: Any) -> dict[str, dict[str, Any]]:
    """Return the options of a job, with the defaults of this version for what is new.

    Raises:
        BadOption: they name what this version does not know.
    """
    try:
        options = graph.options(json.loads(row.options))
    except BadOption as error:
        raise BadOption(
            f"The job {row.id} was submitted to another version: {error.message}",
            hint="Run the command again that submitted it.",
        ) from error
    deliver = options[graph.nodes[-1].name]
    if row.target and row.input_sha256 is None and not deliver.get("target"):
        # A file that was refused had no row of its own for the place of its outputs, only the name that people see.
        deliver["target"] = encode_path(row.target)
    return options


def _only_last_is_missing(graph: Pipeline, present: Sequence[Any]) -> bool:
    """Tell whether all but the last node has run, in the versions that we know."""
    last = graph.nodes[-1]
    if "sounds" in last.definition.inputs:
        return False  # what was spoken goes when a job ends, and the last step needs it
    versions = {node.name: node.definition.version for node in graph.nodes}
    before = [row for row in present if row.node != last.name]
    # A job that was cancelled in the middle may lack the rows of a node that fans out; one that only delivers a
    # transcript that was known has never had any but the last.
    is_whole = {row.node for row in before} in (set(), {node.name for node in graph.nodes[:-1]})
    # Decoded audio goes when a job ends: unless all that reads it has run, everything must run again.
    return (
        is_whole
        and len(before) < len(present)
        and all(row.state == StepState.SUCCEEDED and row.step_version == versions.get(row.node) for row in before)
    )
