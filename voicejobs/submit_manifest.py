"""Take in the lines of a manifest without opening any of its files: in chunks, and each line once.

What is in a file is not known here, so that its SHA-256 can be no key. A line is known by what it asks for: the place
of its outputs, the path of its recording, and the options. That finds the job of a line again however often it is
submitted, and needs no column. The worker reads the file before it decodes it, compares it with what the manifest
says of it, and gives the job the keys that it would have had from `transcribe` (`tasks/identify.py`).
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import ARRAY, Connection, Text, any_, literal, select

from voicejobs import canvas
from voicejobs.errors import BadManifest, QueueFull, WrongState
from voicejobs.manifest import Line
from voicejobs.pipelines.pipeline import Pipeline
from voicejobs.store import jobs as rows
from voicejobs.store.database import Database
from voicejobs.store.ids import new_id
from voicejobs.store.jobs import DEFAULT_TENANT, NewJob, NewStepRun
from voicejobs.store.leases import dump
from voicejobs.store.outbox import lock_submissions
from voicejobs.store.paths import UNREAD, decode_path, display_name, encode_path
from voicejobs.store.schema import batches, jobs, results
from voicejobs.store.states import STARTABLE_JOB, JobState

_PLACE = "\0place\0"


@dataclass(frozen=True, slots=True)
class Wish:
    """Say what is to be done with every line.

    Args:
        pipeline: what each file goes through.
        options: full options of every node (`Pipeline.options`).
        place: tells where the outputs of a line go: an absolute path without their endings.
        label: how people know the batch.
        lane: `bulk` or `interactive`.
        tenant: for whom; tenants share a lane evenly.
        force: do again what is done, and replace files that are in the way.
        max_queued_jobs: ceiling of jobs that wait in the whole store; 0 for none.
        expires_after_s: time after their insertion within which the jobs must be done; None for any.
    """

    pipeline: Pipeline
    options: Mapping[str, Mapping[str, Any]]
    place: Callable[[Line], str]
    label: str = ""
    lane: str = "bulk"
    tenant: str = DEFAULT_TENANT
    force: bool = False
    max_queued_jobs: int = 0
    expires_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """Hold a line with its absolute path, the place of its outputs, and the job that it becomes if it has none yet."""

    line: Line
    path: str
    target: str
    job: NewJob


@dataclass(slots=True)
class ManifestSubmission:
    """Insert the jobs of one manifest, chunk by chunk, each in a transaction of its own.

    A submission that was killed is gone on with: its batch is not sealed, and is adopted with all that is in it.

    Args:
        database: the store.
        wish: what is to be done.
        counts: lines so far that were `submitted`, are `known` (a live job, or one of this batch, is theirs), `done`
            before, or `refused`.
        batch_ids: the batches that hold them, and whether there is anything in them to wait for.
    """

    database: Database
    wish: Wish
    batch_id: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    batch_ids: dict[str, bool] = field(default_factory=dict)
    _options: tuple[str, str] = field(init=False)
    _keys: tuple[Callable[[str], str], Callable[[str], str]] = field(init=False)

    def __post_init__(self) -> None:
        pipeline, options = self.wish.pipeline, self.wish.options
        last = pipeline.nodes[-1].name
        placed = {**options[last], "target": _PLACE, "replace": self.wish.force, "known": {}}
        before, _, after = dump({**options, last: placed}).partition(json.dumps(_PLACE))
        self._options = before, after
        up_to = pipeline.nodes[-2].name if len(pipeline.nodes) > 1 else ""
        self._keys = pipeline.keyed(options), pipeline.keyed(options, up_to=up_to)

    def prepare(self, lines: Sequence[Line]) -> list[Item]:
        """Return what `add` takes: all that can be done without the database, so that another thread can do it."""
        step_runs = canvas.first_rows(self.wish.pipeline)
        items = []
        for line in lines:
            path, target = os.path.abspath(line.path), self.wish.place(line)  # noqa: PTH100 - no links resolved
            items.append(Item(line, path, target, self._new_job(line, path, target, step_runs)))
        return items

    def add(self, items: Sequence[Item]) -> None:
        """Submit some lines.

        Raises:
            QueueFull: so many jobs wait already; nothing of this call is inserted.
            WrongState: the batch was cancelled meanwhile.
        """
        batch_id, counts, batch_ids = self.database.run(lambda connection: self._add(connection, items))
        self.batch_id = batch_id
        self.counts.update(counts)
        for found, is_live in batch_ids.items():
            self.batch_ids[found] = self.batch_ids.get(found, False) or is_live

    def seal(self) -> None:
        """Say that no further line will come."""
        if self.batch_id:
            self.database.run(lambda connection: rows.seal_batch(connection, self.batch_id))

    def _add(self, connection: Connection, items: Sequence[Item]) -> tuple[str, Counter[str], dict[str, bool]]:
        """Insert what is not there yet; return the batch, what became of the lines, and where their jobs are."""
        lock_submissions(connection, self.database)
        present = _present(connection, [item.target for item in items])
        is_open = not self.batch_id or rows.keep_open(connection, self.batch_id)
        batch_id = self.batch_id or self._adopted(connection, items, present)
        counts: Counter[str] = Counter()
        batch_ids: dict[str, bool] = {}
        taken: dict[str, str] = {}
        fresh: list[tuple[Item, str]] = []
        for item in items:
            outcome, found = self._outcome(item, present.get(item.target, ()), batch_id, taken)
            taken.setdefault(item.target, item.path)
            counts[outcome] += 1
            if found:
                batch_ids[found] = batch_ids.get(found, False) or outcome == "known"
            elif outcome in {"submitted", "refused"}:
                fresh.append((item, outcome))
        if fresh and not is_open:
            raise WrongState(
                f"The batch {batch_id} was cancelled while it was being submitted",
                hint="Run the command again to submit what is missing, and what was cancelled, as another batch.",
            )
        if fresh:
            self._demand_room(connection, counts["submitted"])
            batch_id = batch_id or self._new_batch(connection)
            new = self._new_jobs(connection, fresh, present)
            rows.insert_jobs(connection, batch_id, new, tenant=self.wish.tenant)
        if batch_id:
            batch_ids[batch_id] = True
        return batch_id, counts, batch_ids

    def _new_batch(self, connection: Connection) -> str:
        """Insert the batch."""
        wish = self.wish
        return rows.insert_batch(connection, rows.NewBatch(wish.lane, wish.label, wish.options, wish.tenant))

    def _adopted(self, connection: Connection, items: Sequence[Item], present: Mapping[str, Sequence[Any]]) -> str:
        """Return the batch of the same wish that a submission of these lines was adding to when it ended, or none."""
        for item in items:
            for row in present.get(item.target, ()):
                mine = (row.lane, row.tenant, row.label) == (self.wish.lane, self.wish.tenant, self.wish.label)
                is_unfinished = row.sealed_at is None and mine and self._is_same(item, row)
                if is_unfinished and rows.keep_open(connection, row.batch_id):
                    return str(row.batch_id)
        return ""

    def _outcome(self, item: Item, present: Sequence[Any], batch_id: str, taken: Mapping[str, str]) -> tuple[str, str]:
        """Return what becomes of a line, and the batch of its job where it has one."""
        same = [row for row in present if self._is_same(item, row)]
        for row in same:
            if row.batch_id == batch_id or (row.state in STARTABLE_JOB and not self.wish.force):
                return "known", row.batch_id
        if item.target in taken:
            return ("known", "") if taken[item.target] == item.path else ("refused", "")
        for row in same if not self.wish.force else ():
            if row.state == JobState.SUCCEEDED and _stands(item.path, row):
                return "done", row.batch_id
        if any(row.batch_id == batch_id for row in present):
            return "refused", ""
        return "submitted", ""

    def _is_same(self, item: Item, row: Any) -> bool:
        """Tell whether a job does what a line asks for."""
        source = json.loads(row.source)
        line = item.line
        if decode_path(source) != item.path or row.pipeline != self.wish.pipeline.name:
            return False
        if line.sha256 and row.input_sha256 not in {None, line.sha256}:
            return False
        if line.size is not None and source.get("size") not in {None, line.size}:
            return False
        if row.options == item.job.options:
            return True
        theirs = json.loads(row.options)
        try:
            return self.wish.pipeline.key("", theirs) == self.wish.pipeline.key("", self.wish.options)
        except KeyError:  # of a version with other nodes
            return False

    def _demand_room(self, connection: Connection, more: int) -> None:
        """Refuse a submission beyond the ceiling.

        Raises:
            QueueFull: so many jobs wait already.
        """
        most = self.wish.max_queued_jobs
        waiting = rows.count_waiting(connection, most) if most and more else 0
        if most and waiting + more > most:
            raise QueueFull(f"{waiting} jobs wait already, and no more than {most} may")

    def _new_jobs(
        self, connection: Connection, fresh: Sequence[tuple[Item, str]], present: Mapping[str, Sequence[Any]]
    ) -> list[NewJob]:
        """Return the rows of new jobs; those whose transcript is known by their hash only have to deliver it."""
        pipeline = self.wish.pipeline
        done = frozenset(node.name for node in pipeline.nodes[:-1])
        keys = {item.job.result_key or "" for item, _ in fresh} - {""} if not self.wish.force else set()
        texts = _transcripts(connection, list(keys))
        new = []
        for item, outcome in fresh:
            job = item.job
            known = _our_hashes(present.get(item.target, ()))
            text = texts.get(job.result_key or "")
            if known:
                job = replace(job, options=self._with_known(job, known))
            if outcome == "refused":
                job = replace(job, step_runs=(), error=_collision(item))
            elif text:
                job = replace(job, step_runs=canvas.first_rows(pipeline, done=done, inputs={"transcript": text}))
            new.append(job)
        return new

    def _with_known(self, job: NewJob, known: Mapping[str, str]) -> dict[str, Any]:
        """Return the options of a job with the hashes of files that are ours to replace."""
        options: dict[str, Any] = json.loads(str(job.options))
        options[self.wish.pipeline.nodes[-1].name]["known"] = dict(known)
        return options

    def _new_job(self, line: Line, path: str, target: str, step_runs: Sequence[NewStepRun]) -> NewJob:
        """Return the row of a new job."""
        wish = self.wish
        name = display_name(line.name or line.path)
        before, after = self._options
        done_key, result_key = (make(line.sha256) if line.sha256 else None for make in self._keys)
        return NewJob(
            id=new_id("job"),
            seq=line.number,
            pipeline=wish.pipeline.name,
            pipeline_version=wish.pipeline.version,
            options=f"{before}{dump(encode_path(target))}{after}",
            source={**encode_path(path), "name": name, "size": line.size, "mtime_ns": None, UNREAD: True},
            source_name=name,
            step_runs=step_runs,
            input_sha256=line.sha256 or None,
            result_key=result_key,
            done_key=done_key,
            target=display_name(target),
            cost_order=-(line.size or 0),
            expires_after_s=wish.expires_after_s,
        )


def _collision(item: Item) -> BadManifest:
    """Return the error of a line whose outputs would be those of another."""
    return BadManifest(
        f"Line {item.line.number} of the manifest, {display_name(item.line.path)}: another line has the same place for"
        f" its outputs, {display_name(item.target)}",
        hint="Give the line a `name` or a `target` of its own, and run the command again.",
    )


def _present(connection: Connection, targets: Sequence[str]) -> dict[str, list[Any]]:
    """Return the jobs that have these places for their outputs, newest first."""
    found: dict[str, list[Any]] = {}
    by_name: dict[str, list[str]] = {}
    for target in dict.fromkeys(targets):
        by_name.setdefault(display_name(target), []).append(target)
    query = (
        select(
            jobs.c.id,
            jobs.c.batch_id,
            jobs.c.pipeline,
            jobs.c.state,
            jobs.c.target,
            jobs.c.source,
            jobs.c.input_sha256,
            jobs.c.options,
            jobs.c.outputs,
            batches.c.sealed_at,
            batches.c.lane,
            batches.c.tenant,
            batches.c.label,
        )
        .join(batches, batches.c.id == jobs.c.batch_id)
        .order_by(jobs.c.id.desc())
    )
    is_postgres = connection.dialect.name == "postgresql"  # where thousands of parameters cost more than the search
    wanted = any_(literal(list(by_name), ARRAY(Text))) if is_postgres else None
    query = query.where(jobs.c.target.in_(list(by_name)) if wanted is None else jobs.c.target == wanted)
    for row in connection.execute(query):
        for target in by_name[row.target]:
            found.setdefault(target, []).append(row)
    return found


def _stands(path: str, row: Any) -> bool:
    """Tell whether a job that succeeded need not be done again: its outputs are there, its input is as it was read.

    Nothing is opened; an input that cannot be seen from here is taken to be as it was.
    """
    outputs = json.loads(row.outputs) if row.outputs else ()
    try:
        if not outputs or any(Path(decode_path(one)).stat().st_size != one["size"] for one in outputs):
            return False
    except OSError:
        return False
    source = json.loads(row.source)
    try:
        status = Path(path).stat()
    except OSError:
        return True
    known = (source.get("size"), source.get("mtime_ns"))
    return known == (status.st_size, status.st_mtime_ns) or known[1] is None


def _our_hashes(present: Sequence[Any]) -> dict[str, str]:
    """Return the SHA-256 of the files that earlier jobs have written to a place, by format; those of the newest."""
    hashes: dict[str, str] = {}
    for row in reversed(present):
        if row.state == JobState.SUCCEEDED and row.outputs:
            hashes.update({output["format"]: output["sha256"] for output in json.loads(row.outputs)})
    return hashes


def _transcripts(connection: Connection, keys: Sequence[str]) -> dict[str, str]:
    """Return the artifact id of the newest transcript for each of these keys."""
    if not keys:
        return {}
    query = (
        select(results.c.result_key, results.c.artifact_id)
        .where(results.c.result_key.in_(keys))
        .order_by(results.c.created_at)
    )
    return {row.result_key: row.artifact_id for row in connection.execute(query)}
