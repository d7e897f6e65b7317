"""Rows of batches that came as a file: how they stand, and the files that they leave behind.

Everything here talks to the database and is called in a thread. What is written is a function of the rows: whoever
looks at a batch that has ended makes its files, and of two who do so at the same time one is heard.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, func, select, update

from voicejobs.api.jsonl import BadLine, bad_line
from voicejobs.errors import NoSuchRecord
from voicejobs.store import jobs as rows
from voicejobs.store.blobs import BlobStore, Stored
from voicejobs.store.database import Database, now_s
from voicejobs.store.files import NewFile, insert_file
from voicejobs.store.jobs import NewBatch
from voicejobs.store.leases import dump
from voicejobs.store.schema import batches, jobs
from voicejobs.store.states import LIVE_JOB, BatchState, JobState

KEY: Final = "openai"
"""Under this name a batch, and each of its jobs, keeps what only this surface knows."""
OUTPUT_PURPOSE: Final = "batch_output"
SHOWN_ERRORS: Final = 100
"""Errors that a batch tells of; its file of errors has all."""
_JOBS_AT_ONCE: Final = 100
_MEDIA_TYPE: Final = "application/jsonl"

Answer = Callable[[Row[Any]], tuple[bytes, bool]]
"""Makes the line for a job that has ended, and tells whether it is an answer (or an error)."""


@dataclass(frozen=True, slots=True)
class Order:
    """Hold what was ordered.

    Args:
        endpoint: what all lines are for.
        input_file_id: the file.
        completion_window: as it was written.
        window_s: the same in seconds.
        metadata: what the caller wants to find again.
        output_life_s: seconds after which the files of answers go; None for never.
        bad: lines that are no requests.
    """

    endpoint: str
    input_file_id: str
    completion_window: str
    window_s: float
    metadata: Mapping[str, str] = field(default_factory=dict)
    output_life_s: float | None = None
    bad: Sequence[BadLine] = ()

    def to_json(self) -> dict[str, Any]:
        """Return what the row of the batch keeps."""
        return {
            "endpoint": self.endpoint,
            "input_file_id": self.input_file_id,
            "completion_window": self.completion_window,
            "window_s": self.window_s,
            "output_life_s": self.output_life_s,
            "bad": [[one.number, one.code, one.message, one.custom_id, one.param] for one in self.bad],
        }


def add_failed(database: Database, tenant: str, order: Order, within: Callable[[Connection, str], None]) -> None:
    """Insert a batch that cannot be, so that its errors can be read; `within` gets its id in the same transaction."""
    request = {KEY: order.to_json(), "metadata": dict(order.metadata)}
    new = NewBatch("bulk", order.input_file_id, {}, tenant, "batch", watched=True, request=request)

    def add(connection: Connection) -> None:
        batch_id = rows.insert_batch(connection, new)
        ended = {"state": BatchState.FAILED, "sealed_at": now_s(), "finished_at": now_s()}
        connection.execute(update(batches).where(batches.c.id == batch_id).values(**ended))
        within(connection, batch_id)

    database.run(add)


def select_batches(tenant: str) -> Select[Any]:
    """Return the query of the batches of a tenant, without those of jobs that belong to none."""
    columns = (batches.c.id, batches.c.state, batches.c.request, batches.c.created_at, batches.c.finished_at)
    return select(*columns).where(batches.c.tenant == tenant, batches.c.kind == "batch")


def find(connection: Connection, tenant: str, batch_id: str) -> Row[Any]:
    """Return the row of a batch.

    Raises:
        NoSuchRecord: the tenant has none of this id.
    """
    row = connection.execute(select_batches(tenant).where(batches.c.id == batch_id)).first()
    if row is None:
        raise NoSuchRecord(f"There is no batch {batch_id!r}")
    return row


def standings(connection: Connection, found: Sequence[Row[Any]]) -> list[dict[str, Any]]:
    """Return how batches stand, as `shapes.batch_object` takes it."""
    query = (
        select(jobs.c.batch_id, jobs.c.state, func.count().label("count"))
        .where(jobs.c.batch_id.in_([row.id for row in found]))
        .group_by(jobs.c.batch_id, jobs.c.state)
    )
    counts: dict[str, dict[str, int]] = {}
    for row in connection.execute(query):
        counts.setdefault(row.batch_id, {})[row.state] = row[2]
    return [_standing(row, counts.get(row.id, {})) for row in found]


def _standing(row: Row[Any], counts: Mapping[str, int]) -> dict[str, Any]:
    """Return how one batch stands."""
    kept = json.loads(row.request) if row.request else {}
    ours = kept.get(KEY, {})
    bad = [BadLine(*one) for one in ours.get("bad", ())]
    failed = counts.get(JobState.FAILED, 0) + counts.get(JobState.EXPIRED, 0)
    window_s = ours.get("window_s")
    return {
        "id": row.id,
        "status": _status(row, ours, counts),
        "request": {
            **{name: ours[name] for name in ("endpoint", "input_file_id", "completion_window") if name in ours},
            "metadata": kept.get("metadata"),
            "errors": [one.to_json() for one in bad[:SHOWN_ERRORS]],
            "output_file_id": ours.get("output_file_id"),
            "error_file_id": ours.get("error_file_id"),
        },
        "counts": {
            "total": sum(counts.values()) + len(bad),
            "completed": counts.get(JobState.SUCCEEDED, 0),
            "failed": failed + len(bad),
        },
        "live": sum(counts.get(state, 0) for state in LIVE_JOB),
        "created_at": row.created_at,
        "finished_at": row.finished_at,
        "expires_at": None if window_s is None else row.created_at + window_s,
    }


def _status(row: Row[Any], ours: Mapping[str, Any], counts: Mapping[str, int]) -> str:
    """Return OpenAI's word for the state of a batch."""
    stopped = counts.get(JobState.CANCELLED, 0) + counts.get(JobState.CANCELLING, 0)
    if row.finished_at is None:
        return "cancelling" if stopped or row.state == BatchState.CANCELLING else "in_progress"
    if row.state == BatchState.FAILED:
        return "failed"
    if needs_files(row, ours):
        return "finalizing"
    if stopped or row.state == BatchState.CANCELLED:
        return "cancelled"
    return "expired" if counts.get(JobState.EXPIRED) else "completed"


def needs_files(row: Any, ours: Mapping[str, Any] | None = None) -> bool:
    """Tell whether a batch has ended and its files are still to be made; again where it went on after its end."""
    if ours is None:
        ours = (json.loads(row.request) if row.request else {}).get(KEY, {})
    ended = row.finished_at is not None and row.state != BatchState.FAILED
    return bool(ours) and ended and ours.get("files_of") != row.finished_at


def make_files(database: Database, blobs: BlobStore, tenant: str, batch_id: str, answer: Answer) -> None:
    """Write the answers and the errors of a batch that has ended to files, each where there are any."""
    with database.read() as connection:
        row = find(connection, tenant, batch_id)
    if not needs_files(row):
        return
    ours = json.loads(row.request)[KEY]
    with ExitStack() as cleanup:
        answers, errors = (cleanup.enter_context(blobs.writer()) for _ in range(2))
        for one in _ended_jobs(database, batch_id):
            line, is_answer = answer(one)
            (answers if is_answer else errors).write(line)
        for bad in ours.get("bad", ()):
            errors.write(bad_line(batch_id, BadLine(*bad)))
        made = {
            "output": answers.commit() if answers.size_bytes else None,
            "error": errors.commit() if errors.size_bytes else None,
        }
    database.run(lambda connection: _note_files(connection, tenant, row, made))


def _ended_jobs(database: Database, batch_id: str) -> Iterator[Any]:
    """Yield the jobs of a batch in the order of their lines, some at a time."""
    after = -1
    columns = (jobs.c.id, jobs.c.seq, jobs.c.state, jobs.c.error, jobs.c.request, jobs.c.pipeline)
    while True:
        query = select(*columns).where(jobs.c.batch_id == batch_id, jobs.c.seq > after).order_by(jobs.c.seq)
        with database.read() as connection:
            page = list(connection.execute(query.limit(_JOBS_AT_ONCE)))
        yield from page
        if len(page) < _JOBS_AT_ONCE:
            return
        after = page[-1].seq


def _note_files(connection: Connection, tenant: str, row: Row[Any], made: Mapping[str, Stored | None]) -> None:
    """Give the files their rows, and their names to the batch; unless somebody has done so meanwhile."""
    query = select(batches.c.request, batches.c.finished_at, batches.c.state).where(batches.c.id == row.id)
    held = connection.execute(query.with_for_update()).one()
    kept = json.loads(held.request)
    if held.finished_at != row.finished_at or not needs_files(held):
        return
    ours = kept[KEY]
    for name, stored in made.items():
        if stored is None:
            ours.pop(f"{name}_file_id", None)
            continue
        new = NewFile(f"{row.id}_{name}.jsonl", OUTPUT_PURPOSE, _MEDIA_TYPE, ours.get("output_life_s"))
        ours[f"{name}_file_id"] = insert_file(connection, tenant, stored, new).id
    ours["files_of"] = row.finished_at
    connection.execute(update(batches).where(batches.c.id == row.id).values(request=dump(kept)))
