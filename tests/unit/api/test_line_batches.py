"""How batches that came as a file stand, and the files that they leave behind."""

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert, update

from tests.rows import opened
from voicejobs.api import line_batches
from voicejobs.api.jsonl import BadLine
from voicejobs.api.line_batches import KEY, Order
from voicejobs.api.shapes import batch_object
from voicejobs.store import files
from voicejobs.store import jobs as rows
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database
from voicejobs.store.jobs import NewBatch
from voicejobs.store.schema import batches, jobs

TENANT = "t"
ORDER = Order("/v1/audio/speech", "file_1", "24h", 86_400.0, {"a": "b"}, bad=[BadLine(3, "wrong", "It is wrong", "x")])


def insert_batch(connection: Connection, *states: str, ended: bool) -> str:
    """Insert a batch with jobs in some states, and return its id."""
    request = {KEY: ORDER.to_json(), "metadata": dict(ORDER.metadata)}
    batch_id = rows.insert_batch(connection, NewBatch("bulk", "", {}, TENANT, request=request))
    plain = dict.fromkeys(("pipeline", "source_name", "target", "trace_id"), "")
    numbers = dict.fromkeys(("priority", "pipeline_version", "cost_order", "created_at"), 0)
    for seq, state in enumerate(states):
        values: dict[str, Any] = {**plain, **numbers, "tenant": TENANT, "options": "{}", "source": "{}", "seq": seq}
        wanted = json.dumps({KEY: {"custom_id": f"line {seq}"}})
        connection.execute(
            insert(jobs).values(id=f"job_{seq}", batch_id=batch_id, state=state, request=wanted, **values)
        )
    if ended:
        done = {"state": "completed", "finished_at": 2_000_000_000.0}
        connection.execute(update(batches).where(batches.c.id == batch_id).values(**done))
    return batch_id


def shown(database: Database, batch_id: str) -> dict[str, Any]:
    """Return a batch as clients see it."""
    with database.read() as connection:
        row = line_batches.find(connection, TENANT, batch_id)
        return batch_object(line_batches.standings(connection, [row])[0])


@pytest.mark.parametrize(
    ("states", "ended", "status", "counts"),
    [
        (("queued", "running"), False, "in_progress", (3, 0, 1)),
        (("succeeded", "cancelling"), False, "cancelling", (3, 1, 1)),
        (("succeeded", "failed"), True, "completed", (3, 1, 2)),
        (("succeeded", "cancelled"), True, "cancelled", (3, 1, 1)),
        (("succeeded", "expired"), True, "expired", (3, 1, 2)),
    ],
)
def test_a_batch_stands_as_its_jobs_do(
    sqlite_url: str, tmp_path: Path, states: tuple[str, ...], ended: bool, status: str, counts: tuple[int, int, int]
) -> None:
    """OpenAI's words follow from the states of the jobs; bad lines count as failed; files are made once."""
    blobs = BlobStore(tmp_path / "blobs")
    blobs.make_folders()

    def answer(row: Any) -> tuple[bytes, bool]:
        good = row.state == "succeeded"
        return f"{json.loads(row.request)[KEY]['custom_id']}\n".encode(), good

    with opened(sqlite_url) as database:
        batch_id = database.run(lambda connection: insert_batch(connection, *states, ended=ended))
        before = shown(database, batch_id)
        assert before["status"] == ("finalizing" if ended else status)
        assert tuple(before["request_counts"].values()) == counts
        assert (before["metadata"], before["errors"]["data"][0]["line"]) == ({"a": "b"}, 3)
        assert before["expires_at"] - before["created_at"] == 86_400
        line_batches.make_files(database, blobs, TENANT, batch_id, answer)
        line_batches.make_files(database, blobs, TENANT, batch_id, answer)
        after = shown(database, batch_id)
        assert after["status"] == status
        found = files.list_files(database, TENANT)
        assert len(found) == (2 if ended else 0)
        if ended:
            assert after[f"{status}_at"] == 2_000_000_000
            output = files.get_file(database, TENANT, after["output_file_id"])
            assert blobs.raw_path(output.sha256).read_bytes() == b"line 0\n"
            errors = blobs.raw_path(files.get_file(database, TENANT, after["error_file_id"]).sha256).read_bytes()
            assert errors.startswith(b"line 1\n")
            assert b'"custom_id":"x"' in errors


def test_a_batch_that_goes_on_after_its_end_gets_new_files(sqlite_url: str, tmp_path: Path) -> None:
    """What was taken up again has another end, and other answers."""
    blobs = BlobStore(tmp_path / "blobs")
    blobs.make_folders()
    with opened(sqlite_url) as database:
        batch_id = database.run(lambda connection: insert_batch(connection, "failed", ended=True))
        line_batches.make_files(database, blobs, TENANT, batch_id, lambda _: (b"no\n", False))
        first = shown(database, batch_id)
        assert first["output_file_id"] is None
        again = update(batches).where(batches.c.id == batch_id).values(finished_at=2_000_000_001.0)
        database.run(lambda connection: connection.execute(again))
        assert shown(database, batch_id)["status"] == "finalizing"
        line_batches.make_files(database, blobs, TENANT, batch_id, lambda _: (b"yes\n", True))
        assert shown(database, batch_id)["output_file_id"]


def test_a_batch_of_jobs_is_shown_without_files(sqlite_url: str, tmp_path: Path) -> None:
    """Batches of the native surface are there under the same ids; they have no files of answers."""
    with opened(sqlite_url) as database:
        batch_id = database.run(lambda connection: rows.insert_batch(connection, NewBatch("bulk", "", {}, TENANT)))
        found = shown(database, batch_id)
        assert (found["status"], found["endpoint"], found["expires_at"]) == ("in_progress", "", None)
        done = update(batches).where(batches.c.id == batch_id).values(state="completed", finished_at=5.0)
        database.run(lambda connection: connection.execute(done))
        line_batches.make_files(database, BlobStore(tmp_path), TENANT, batch_id, lambda _: (b"", True))
        assert shown(database, batch_id)["status"] == "completed"
