"""Take work in: validate, find what is done already, insert the rest; cancel; try again."""

import json
import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, select, update

from voicejobs import canvas, spans
from voicejobs.errors import (
    EmptyFile,
    InputError,
    NoSuchRecord,
    NotFound,
    QueueFull,
)
from voicejobs.pipelines.pipeline import Pipeline
from voicejobs.steps import prompt
from voicejobs.store import jobs as rows
from voicejobs.store.blobs import INLINE_LIMIT_BYTES, BlobStore
from voicejobs.store.database import Database, now_s
from voicejobs.store.ids import new_id
from voicejobs.store.jobs import NewArtifact, NewBatch, NewJob
from voicejobs.store.paths import HASH8, UNREAD, decode_path, display_name, encode_path
from voicejobs.store.schema import batches, jobs, results
from voicejobs.store.states import STARTABLE_JOB, JobState
from voicejobs.tasks.content import Content, read_content, still_written

logger = logging.getLogger(__name__)

HASH8_DIGITS = 8
TEXT = "text"
"""Kind of the artifact that holds a text which lies in no file."""
REUSABLE_SOUND = "wav"
"""Format of the files from which others are made without speaking again: all samples, and nothing to decode."""
SETTLE_S = 0.5
"""A file that was written to within this time is looked at again once the time is over."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """Name a file to submit.

    Args:
        path: absolute path, as the operating system has it.
        name: how people know it, for example its path below the folder they named.
        target: absolute path of the output files without their endings; empty for none.
        error: what is known to be wrong with it; it is not read then.
        text: the input itself, where it is a text that lies in no file; `path` only tells it from others then.
        blob: the input, where it is a blob; `path` only tells it from others then.
        elsewhere: where the input lies (`outbound.sources`), if its worker is to take it from there; likewise.
        options: what it wants otherwise than the rest of the batch, by node and option.
        request: what else the request for it said; it goes into the row of its job.
    """

    path: str
    name: str
    target: str = ""
    error: InputError | None = None
    text: str | None = None
    blob: "Blob | None" = None
    elsewhere: Mapping[str, str] | None = None
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    request: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Blob:
    """Name a blob: SHA-256 of its bytes in hexadecimal, and how many they are."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """Tell what became of a file.

    `submitted`: a new job. `joined`: a live job, of another batch, does the same. `done`: nothing is left to do, and
    `outputs` are those of the earlier job. `left_out`: its hash is one of those to leave out. `refused`: see `error`.
    """

    file: InputFile
    outcome: Literal["submitted", "joined", "done", "left_out", "refused"]
    job_id: str = ""
    batch_id: str = ""
    outputs: Sequence[Mapping[str, Any]] = ()
    error: InputError | None = None
    sha256: str = ""
    size: int = 0


@dataclass(slots=True)
class Submission:
    """Insert the jobs of one batch, chunk by chunk, so that work begins while later files are still being read.

    The batch itself is inserted with its first job: a run that finds everything done leaves no trace.

    Args:
        database: the store.
        pipeline: what each file goes through.
        options: full options of every node (`Pipeline.options`).
        label: how people know the batch.
        lane: `bulk` or `interactive`.
        force: do again what is done, and replace files that are in the way.
        max_queued_jobs: ceiling of jobs that wait in the whole store; 0 for none.
        expires_after_s: time after their insertion within which the jobs must be done; None for any.
        leave_out: SHA-256 of contents that are not to be submitted.
        blobs: where texts are kept that lie in no file.
        tenant: whose batch it is; nothing that another one has done is used for it.
        alone: make a job for each input, also where another does the same; what is known by then is used.
        kind: `batch`, or `single` for a job that belongs to none.
        watched: write down what happens to its jobs and to it, for those who follow or are told.
        once_below: absolute path of a folder; an input for which a job lives or has succeeded whose outputs went
            somewhere below it is known, wherever else its own would go, and whatever became of them there.
        request: what else the request for the batch said.
        trace_id: what all logs of its jobs name; empty for the id of each job.
        priority: order among the jobs of its lane; less is sooner.
    """

    database: Database
    pipeline: Pipeline
    options: Mapping[str, Mapping[str, Any]]
    label: str = ""
    lane: str = "bulk"
    force: bool = False
    max_queued_jobs: int = 0
    expires_after_s: float | None = None
    leave_out: Container[str] = ()
    blobs: BlobStore | None = None
    tenant: str = rows.DEFAULT_TENANT
    alone: bool = False
    kind: Literal["batch", "single"] = "batch"
    watched: bool = False
    once_below: str = ""
    request: Mapping[str, Any] | None = None
    trace_id: str = ""
    priority: int = rows.DEFAULT_PRIORITY
    batch_id: str = ""
    _seq: int = 0
    _inputs_of_last: str = field(init=False)

    def __post_init__(self) -> None:
        # The key of everything before the last node tells whether a transcript can serve again.
        self._inputs_of_last = self.pipeline.nodes[-2].name if len(self.pipeline.nodes) > 1 else ""

    def seal(self) -> None:
        """Say that no further file will come."""
        if self.batch_id:
            with self.database.begin() as connection:
                rows.seal_batch(connection, self.batch_id)

    def begin_anew(self) -> None:
        """Put the files that follow into a batch of their own: a sealed one takes no more."""
        self.batch_id = ""
        self._seq = 0

    def settle(self) -> None:
        """Complete the batch if all its jobs have ended, without waiting for the upkeep of a worker."""
        self.database.run(rows.complete_batches)

    def add(
        self, files: Sequence[InputFile], *, within: Callable[[Connection, Sequence[Accepted]], None] | None = None
    ) -> list[Accepted]:
        """Submit some files; each is read once, for its hash. A file that cannot be read is refused, and only it.

        Args:
            files: the inputs.
            within: called with the transaction, before it commits, and with what became of each file.
        """
        if not self.trace_id:
            return self._add(files, within)
        with spans.span("submission", self.trace_id, begins=not self.batch_id, files=len(files)):
            return self._add(files, within)

    def _add(
        self, files: Sequence[InputFile], within: Callable[[Connection, Sequence[Accepted]], None] | None
    ) -> list[Accepted]:
        """Do what `add` says."""
        far = [file for file in files if file.elsewhere is not None]
        accepted, keyed = self._read_all([file for file in files if file.elsewhere is None])
        refused = [(one.file, one.error) for one in accepted.values() if one.error is not None]
        with self.database.begin() as connection:
            known = {} if self.force or self.alone else self._known(connection, keyed)
            fresh = _sort_out(keyed, known, accepted, once_below=self.once_below)
            self._demand_room(connection, len(fresh) + len(far))
            if (fresh or refused or far) and not self.batch_id:
                self.batch_id = rows.insert_batch(connection, self._new_batch())
            elif self.batch_id:
                rows.reopen_batch(connection, self.batch_id)
            reusable = self._reusable(connection, fresh)
            new = [self._new_job(connection, item, known) for item, known in zip(fresh, reusable, strict=True)]
            failed = [self._refused_job(file, error) for file, error in refused]
            unread = [self._unread_job(file) for file in far]
            rows.insert_jobs(connection, self.batch_id, [*new, *failed, *unread], tenant=self.tenant)
            self._keep_texts(connection, fresh, new)
            self._keep_prompts(connection, [*new, *unread])
            for (file, error), job in zip(refused, failed, strict=True):
                accepted[file.path] = Accepted(file, "refused", job.id, self.batch_id, error=error)
            for item, job in zip(fresh, new, strict=True):
                accepted[item.file.path] = item.accepted("submitted", job.id, self.batch_id)
            for file, job in zip(far, unread, strict=True):
                accepted[file.path] = Accepted(file, "submitted", job.id, self.batch_id)
            told = [accepted[file.path] for file in files]
            if within is not None:
                within(connection, told)
        self._log(told)
        return told

    def _log(self, told: Sequence[Accepted]) -> None:
        """Note what was taken: the first line of the story of each job."""
        new = [one.job_id for one in told if one.outcome == "submitted"]
        if new and logger.isEnabledFor(logging.INFO):
            traced = {"trace_id": self.trace_id} if self.trace_id else {"trace_ids": new}  # else it is the job's id
            logger.info("submitted", extra={"jobs": len(new), "batch_id": self.batch_id, **traced})

    def _new_batch(self) -> NewBatch:
        """Return the row of the batch."""
        return NewBatch(
            lane=self.lane,
            label=self.label,
            options=self.options,
            tenant=self.tenant,
            kind=self.kind,
            watched=self.watched,
            request=self.request,
        )

    def preview(self, files: Sequence[InputFile]) -> list[Accepted]:
        """Tell what `add` would make of some files, without writing anything; a new job has no id then."""
        accepted, keyed = self._read_all(files)
        with self.database.read() as connection:
            known = {} if self.force else self._known(connection, keyed)
        for item in _sort_out(keyed, known, accepted, once_below=self.once_below):
            accepted[item.file.path] = item.accepted("submitted")
        return [accepted[file.path] for file in files]

    def _read_all(self, files: Sequence[InputFile]) -> "tuple[dict[str, Accepted], list[_Keyed]]":
        """Read files; return what is settled by that alone, by path, and the others with their keys."""
        settled: dict[str, Accepted] = {}
        keyed = []
        for file, found in _settled([(file, _read(file)) for file in files]):
            if isinstance(found, InputError):
                settled[file.path] = Accepted(file, "refused", error=found)
                continue
            placed = replace(file, target=file.target.replace(HASH8, found.sha256[:HASH8_DIGITS]))
            item = _Keyed(self, placed, found)
            if found.sha256 in self.leave_out:
                settled[file.path] = item.accepted("left_out")
            else:
                keyed.append(item)
        return settled, keyed

    def _known(self, connection: Connection, keyed: "Sequence[_Keyed]") -> "dict[tuple[str, str], list[_Known]]":
        """Return the earlier jobs that did, or do, the same, by key and target."""
        return _jobs_by_key(connection, self.tenant, [item.done_key for item in keyed], self.pipeline.nodes[-1].name)

    def _reusable(self, connection: Connection, fresh: "Sequence[_Keyed]") -> "list[Mapping[str, Any] | None]":
        """Return for each input where its last node finds all it needs: a known transcript, or sound that is there."""
        if self.force:
            return [None] * len(fresh)
        if "sounds" in self.pipeline.nodes[-1].definition.inputs:
            found = _sounds(connection, self.tenant, [item.result_key for item in fresh])
            return [self._sound_for(item, found.get(item.result_key, ())) for item in fresh]
        known = _transcripts(connection, self.tenant, [item.result_key for item in fresh])
        return [{"transcript": known[item.result_key]} if item.result_key in known else None for item in fresh]

    def _sound_for(self, item: "_Keyed", found: "Sequence[_Spoken]") -> Mapping[str, Any] | None:
        """Return the whole sound of an earlier job that was joined in the same way, if its file is as it left it."""
        last = self.pipeline.nodes[-1]
        wanted = _joined_how(self._options_of(item.file)[last.name])
        for spoken in found:
            if _joined_how(last.definition.options(spoken.options[last.name])) != wanted:
                continue
            for output in spoken.outputs:
                if output["format"] == REUSABLE_SOUND and (_is_kept(output) or _is_intact(output)):
                    return {"sound": output, "transcript": spoken.artifact_id}
        return None

    def _keep_texts(self, connection: Connection, fresh: "Sequence[_Keyed]", new: Sequence[NewJob]) -> None:
        """Keep the texts that lie in no file: rows and messages only name them."""
        for item, job in zip(fresh, new, strict=True):
            if item.file.text is not None and self.blobs is not None:
                artifact = self.blobs.store(item.file.text.encode(), TEXT, {"type": "text/plain"})
                first = rows.step_run_id(job.id, self.pipeline.nodes[0].name)
                rows.insert_artifact(connection, job.id, first, artifact)

    def _keep_prompts(self, connection: Connection, new: Sequence[NewJob]) -> None:
        """Keep the recordings of voices for as long as the jobs that are to speak with them."""
        for job in new:
            options = job.options if isinstance(job.options, Mapping) else {}  # text only where a row was written out
            digest = prompt.digest_of(options)
            if digest and self.blobs is not None:
                artifact = NewArtifact(prompt.KIND, digest, self.blobs.size_bytes(digest), None, {})
                rows.insert_artifact(
                    connection, job.id, rows.step_run_id(job.id, self.pipeline.nodes[0].name), artifact
                )

    def _demand_room(self, connection: Connection, more: int) -> None:
        """Refuse a submission beyond the ceiling.

        Raises:
            QueueFull: so many jobs wait already; nothing of this call is inserted.
        """
        if not self.max_queued_jobs or not more:
            return
        waiting = rows.count_waiting(connection, self.max_queued_jobs)
        if waiting + more > self.max_queued_jobs:
            raise QueueFull(f"{waiting} jobs wait already, and no more than {self.max_queued_jobs} may")

    def _refused_job(self, file: InputFile, error: InputError) -> NewJob:
        """Return the row of a job that has failed before it began, so that the batch tells of every file."""
        self._seq += 1
        return NewJob(
            id=new_id("job"),
            seq=self._seq,
            pipeline=self.pipeline.name,
            pipeline_version=self.pipeline.version,
            options=self.options,
            source={**encode_path(file.path), "name": display_name(file.name), "size": 0, "mtime_ns": 0},
            source_name=display_name(file.name),
            step_runs=(),
            target=display_name(file.target.replace(HASH8, "")),
            error=error,
            priority=self.priority,
            trace_id=self.trace_id,
            watched=self.watched,
            request=file.request,
        )

    def _new_job(self, connection: Connection, item: "_Keyed", known: Mapping[str, Any] | None) -> NewJob:
        """Return the rows of a new job; one whose transcript or sound is known only has to deliver it."""
        options = self._options_of(item.file)
        last = self.pipeline.nodes[-1].name
        if item.file.target:
            options[last] = {
                **options[last],
                "target": encode_path(item.file.target),
                "replace": self.force,
                "known": _our_hashes(connection, item.file.target, self.pipeline.endings(options)),
            }
        done = frozenset(node.name for node in self.pipeline.nodes[:-1]) if known else frozenset()
        self._seq += 1
        return NewJob(
            id=new_id("job"),
            seq=self._seq,
            pipeline=self.pipeline.name,
            pipeline_version=self.pipeline.version,
            options=options,
            source={
                **encode_path(item.file.path),
                "name": display_name(item.file.name),
                "size": item.size,
                "mtime_ns": item.mtime_ns,
                **({} if item.file.text is None else {"artifact": TEXT}),
                **({} if item.file.blob is None else {"blob": item.file.blob.sha256}),
            },
            source_name=display_name(item.file.name),
            step_runs=canvas.first_rows(self.pipeline, done=done, inputs=known),
            input_sha256=item.sha256,
            result_key=item.result_key,
            done_key=item.done_key,
            target=display_name(item.file.target),
            cost_order=-item.size,
            priority=self.priority,
            trace_id=self.trace_id,
            expires_after_s=self.expires_after_s,
            watched=self.watched,
            request=item.file.request,
        )

    def _unread_job(self, file: InputFile) -> NewJob:
        """Return the rows of a job whose input a worker will take from where it lies; it writes no files."""
        self._seq += 1
        return NewJob(
            id=new_id("job"),
            seq=self._seq,
            pipeline=self.pipeline.name,
            pipeline_version=self.pipeline.version,
            options=self._options_of(file),
            source={
                **encode_path(file.path),
                "name": display_name(file.name),
                "size": None,
                "mtime_ns": None,
                UNREAD: True,
                **(file.elsewhere or {}),
            },
            source_name=display_name(file.name),
            step_runs=canvas.first_rows(self.pipeline),
            priority=self.priority,
            trace_id=self.trace_id,
            expires_after_s=self.expires_after_s,
            watched=self.watched,
            request=file.request,
        )

    def keys(self, digest: str, file: InputFile | None = None) -> tuple[str, str]:
        """Return the done-key and the key of the transcript for an input with this SHA-256."""
        options = self.options if file is None else self._options_of(file)
        return self.pipeline.key(digest, options), self.pipeline.key(digest, options, up_to=self._inputs_of_last)

    def _options_of(self, file: InputFile) -> dict[str, Mapping[str, Any]]:
        """Return the options of the batch, with what one input wants otherwise."""
        return {name: {**values, **file.options.get(name, {})} for name, values in self.options.items()}


class _Keyed:
    """Hold a readable file with its hash and keys."""

    __slots__ = ("done_key", "file", "mtime_ns", "result_key", "sha256", "size")

    def __init__(self, submission: Submission, file: InputFile, content: Content) -> None:
        self.file = file
        self.sha256 = content.sha256
        self.size = content.size
        self.mtime_ns = content.mtime_ns
        self.done_key, self.result_key = submission.keys(content.sha256, file)

    def accepted(
        self,
        outcome: Literal["submitted", "joined", "done", "left_out"],
        job_id: str = "",
        batch_id: str = "",
        outputs: Sequence[Mapping[str, Any]] = (),
    ) -> Accepted:
        """Tell what became of the file."""
        return Accepted(self.file, outcome, job_id, batch_id, outputs, sha256=self.sha256, size=self.size)


@dataclass(frozen=True, slots=True)
class _Known:
    """Hold an earlier job that did, or does, the same."""

    id: str
    batch_id: str
    state: str
    outputs: Sequence[Mapping[str, Any]]


def _sort_out(
    keyed: Sequence[_Keyed],
    known: Mapping[tuple[str, str], Sequence[_Known]],
    accepted: dict[str, Accepted],
    *,
    once_below: str,
) -> list[_Keyed]:
    """Note the files whose work is done or under way, and return the others."""
    once: dict[str, _Known] = {}
    for (key, place), jobs_there in known.items() if once_below else ():
        if place.startswith(once_below.rstrip("/") + "/"):
            once.setdefault(key, jobs_there[0])
    fresh = []
    for item in keyed:
        match = once.get(item.done_key) or _match(known.get((item.done_key, item.file.target), ()))
        if match is None:
            fresh.append(item)
        elif match.state == JobState.SUCCEEDED:
            accepted[item.file.path] = item.accepted("done", match.id, match.batch_id, match.outputs)
        else:
            accepted[item.file.path] = item.accepted("joined", match.id, match.batch_id)
    return fresh


def _read(file: InputFile) -> Content | InputError:
    """Return hash, size and time of a file, or why it cannot be read."""
    if file.error is not None:
        return file.error
    if file.blob is not None:
        return Content(file.blob.sha256, file.blob.size_bytes, 0)
    if file.text is not None:
        data = file.text.encode()
        return Content(sha256(data).hexdigest(), len(data), 0) if data else EmptyFile(f"{file.name} is empty")
    try:
        return read_content(file.path, display_name(file.name))
    except InputError as error:
        return error


def _settled(
    read: Sequence[tuple[InputFile, Content | InputError]],
) -> list[tuple[InputFile, Content | InputError]]:
    """Refuse files that are still being written: those changed a moment ago are looked at again a moment later."""
    now = time.time()
    ages = {
        file.path: now - found.mtime_ns / 1e9 for file, found in read if isinstance(found, Content)
    }  # by the clock of the file system, which may go otherwise: a small age either way is recent
    recent = {path: age for path, age in ages.items() if abs(age) < SETTLE_S}
    if not recent:
        return list(read)
    time.sleep(SETTLE_S - max(0.0, min(recent.values())))
    return [(file, _look_again(file, found) if file.path in recent else found) for file, found in read]


def _look_again(file: InputFile, found: Content | InputError) -> Content | InputError:
    """Return what was found, unless the file has changed since."""
    if file.text is not None or file.blob is not None:
        return found
    try:
        status = Path(file.path).stat()
    except OSError as error:
        return NotFound(f"{display_name(file.name)} is no longer there: {error.strerror}")
    if isinstance(found, InputError) or found.is_that_of(status):
        return found
    return still_written(display_name(file.name))


def _jobs_by_key(
    connection: Connection, tenant: str, keys: Sequence[str], last: str
) -> dict[tuple[str, str], list[_Known]]:
    """Return the earlier jobs with these done-keys that are live or succeeded, by key and target, newest first."""
    found: dict[tuple[str, str], list[_Known]] = {}
    query = (
        select(jobs.c.id, jobs.c.batch_id, jobs.c.done_key, jobs.c.state, jobs.c.outputs, jobs.c.options)
        .where(
            jobs.c.done_key.in_(keys),
            jobs.c.tenant == tenant,
            jobs.c.state.in_((*STARTABLE_JOB, JobState.SUCCEEDED)),
        )
        .order_by(jobs.c.id.desc())
    )
    for row in connection.execute(query):
        target = json.loads(row.options)[last]["target"]
        place = decode_path(target) if target else ""
        known = _Known(row.id, row.batch_id, row.state, json.loads(row.outputs) if row.outputs else ())
        found.setdefault((row.done_key, place), []).append(known)
    return found


def _match(candidates: Sequence[_Known]) -> _Known | None:
    """Return the live job among the candidates, else a succeeded one whose files are all as it left them."""
    for known in candidates:
        if known.state != JobState.SUCCEEDED or (known.outputs and all(map(_is_intact, known.outputs))):
            return known
    return None


def _is_kept(output: Mapping[str, Any]) -> bool:
    """Tell whether an output is an artifact whose bytes are a blob; a tiny one, in its row, is quickly made again."""
    return "artifact" in output and int(output["size"]) > INLINE_LIMIT_BYTES


def _is_intact(output: Mapping[str, Any]) -> bool:
    """Tell whether an output is a file that is there with the hash that was recorded."""
    if "artifact" in output:
        return False
    path = Path(decode_path(output))
    try:
        if path.stat().st_size != output["size"]:
            return False
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest() == str(output["sha256"])
    except OSError:
        return False


def _our_hashes(connection: Connection, target: str, endings: Sequence[str]) -> dict[str, str]:
    """Return the SHA-256 of the files that earlier jobs have written to this target, by format."""
    if not any(Path(target + ending).exists() for ending in endings):
        return {}
    hashes: dict[str, str] = {}
    query = select(jobs.c.outputs).where(
        jobs.c.target == display_name(target), jobs.c.state == JobState.SUCCEEDED, jobs.c.outputs.is_not(None)
    )
    for (outputs,) in connection.execute(query.order_by(jobs.c.id)):
        hashes.update({output["format"]: output["sha256"] for output in json.loads(outputs)})
    return hashes


def _transcripts(connection: Connection, tenant: str, keys: Sequence[str]) -> dict[str, str]:
    """Return the artifact id of the newest transcript for each of these keys."""
    query = (
        select(results.c.result_key, results.c.artifact_id)
        .join(jobs, jobs.c.id == results.c.job_id)
        .where(results.c.result_key.in_(keys), jobs.c.tenant == tenant)
        .order_by(results.c.created_at)
    )
    return {row.result_key: row.artifact_id for row in connection.execute(query)}


@dataclass(frozen=True, slots=True)
class _Spoken:
    """Hold what an earlier job has spoken: its files, how it was joined, and the captions."""

    outputs: Sequence[Mapping[str, Any]]
    options: Mapping[str, Mapping[str, Any]]
    artifact_id: str


def _sounds(connection: Connection, tenant: str, keys: Sequence[str]) -> dict[str, list[_Spoken]]:
    """Return what earlier jobs have spoken for each of these keys, newest first."""
    query = (
        select(results.c.result_key, results.c.artifact_id, jobs.c.outputs, jobs.c.options)
        .join(jobs, jobs.c.id == results.c.job_id)
        .where(
            results.c.result_key.in_(keys),
            jobs.c.tenant == tenant,
            jobs.c.state == JobState.SUCCEEDED,
            jobs.c.outputs.is_not(None),
        )
        .order_by(results.c.created_at.desc())
    )
    found: dict[str, list[_Spoken]] = {}
    for row in connection.execute(query):
        spoken = _Spoken(json.loads(row.outputs), json.loads(row.options), row.artifact_id)
        found.setdefault(row.result_key, []).append(spoken)
    return found


def _joined_how(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a join that change its sound, and not only the files that hold it."""
    return {name: value for name, value in options.items() if name in {"sample_rate_hz", "crossfade_ms"}}


def cancel_batch(database: Database, batch_id: str) -> int:
    """Cancel what a batch has not finished; finished jobs stay. Return the number of jobs touched.

    Raises:
        NoSuchRecord: there is no such batch.
    """

    def cancel(connection: Connection) -> int:
        if connection.execute(select(batches.c.id).where(batches.c.id == batch_id)).first() is None:
            raise NoSuchRecord(f"There is no batch {batch_id!r}", hint="`voicejobs batch list` shows them.")
        rows.lock_jobs(connection, jobs.c.batch_id == batch_id)
        # Whoever adds jobs at this moment has the batch; its jobs are there once we have it.
        connection.execute(
            update(batches).where(batches.c.id == batch_id, batches.c.sealed_at.is_(None)).values(sealed_at=now_s())
        )
        return rows.cancel_jobs(connection, batch_id=batch_id)

    return database.run(cancel)
