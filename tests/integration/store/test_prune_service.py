"""Pruning what the service leaves: files, uploads, parts, events, deliveries and answers; and nothing in use."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, func, insert, select, update

from tests import rows
from voicejobs.store import files
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database, now_s
from voicejobs.store.files import NewFile
from voicejobs.store.jobs import finish_job
from voicejobs.store.prune import Pruned, Rules, prune
from voicejobs.store.schema import cursors, deliveries, events, idempotency_keys, jobs, uploads, webhooks
from voicejobs.store.schema import files as files_table
from voicejobs.store.states import JobState

DAY_S = 86_400.0
OLD = Rules(30 * DAY_S)
WAV = NewFile("talk.wav", "user_data")


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    """Return an empty blob store."""
    blobs = BlobStore(tmp_path / "blobs")
    blobs.make_folders()
    return blobs


def old_blob(blobs: BlobStore, data: bytes) -> str:
    """Write a blob two hours ago."""
    digest = blobs.put_stream([data]).sha256
    age(blobs.raw_path(digest))
    return digest


def age(path: Path) -> None:
    """Make a file look as if it were written two hours ago."""
    os.utime(path, (time.time() - 7200, time.time() - 7200))


def job_of(database: Database, digest: str, state: JobState | None = None) -> str:
    """Insert a job whose input is a blob, and that has ended in a state."""
    source = {"path": "/x", "name": "talk.wav", "size": 5, "mtime_ns": 0, "blob": digest}
    job_id = rows.add_job(database, source=source, input_sha256=digest)
    if state is not None:
        with database.begin() as connection:
            finish_job(connection, job_id, state)
    return job_id


def count(database: Database, table: Table) -> int:
    """Count the rows of a table."""
    with database.read() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def put(database: Database, table: Table, *values: dict[str, Any]) -> None:
    """Insert rows."""
    with database.begin() as connection:
        for one in values:
            connection.execute(insert(table).values(**one))


def pruned_as_told(database: Database, blobs: BlobStore, rules: Rules = OLD) -> Pruned:
    """Prune, after a dry run that must tell the same."""
    told = prune(database, blobs, Rules(rules.older_than_s, rules.keep_failed, dry_run=True))
    done = prune(database, blobs, rules)
    assert told == done
    return done


def test_a_source_stays_while_a_job_may_run(database: Database, blobs: BlobStore) -> None:
    """The bytes of an upload stay for live jobs and those that can be taken up again, and go once all succeeded."""
    kept = {
        state: old_blob(blobs, str(state).encode())
        for state in (None, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED)
    }
    for state, digest in kept.items():
        job_of(database, digest, state)
    done = old_blob(blobs, b"done")
    job_of(database, done, JobState.SUCCEEDED)
    shared = old_blob(blobs, b"shared")
    job_of(database, shared, JobState.SUCCEEDED)
    job_of(database, shared)
    assert (pruned_as_told(database, blobs).blobs, blobs.has(done)) == (1, False)
    assert all(blobs.has(digest) for digest in (*kept.values(), shared))


def test_a_source_goes_with_its_old_job(database: Database, blobs: BlobStore) -> None:
    """Once a failed job is past its time, its upload goes with it."""
    digest = old_blob(blobs, b"failed")
    job_id = job_of(database, digest, JobState.FAILED)
    with database.begin() as connection:
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(finished_at=now_s() - 31 * DAY_S))
    assert prune(database, blobs, Rules(30 * DAY_S, keep_failed=True)).blobs == 0
    done = pruned_as_told(database, blobs)
    assert (done.jobs, done.blobs, done.blob_bytes) == (1, 1, 6)


def test_files_keep_their_bytes_until_they_are_deleted(database: Database, blobs: BlobStore) -> None:
    """A blob stays while any file is made of it, of whatever tenant; a file whose time is over goes with its bytes."""
    digest = old_blob(blobs, b"shared")
    stored = blobs.put_stream([b"shared"])
    age(blobs.raw_path(digest))
    one, two = (files.add_file(database, tenant, stored, WAV) for tenant in "ab")
    files.delete_file(database, "a", one.id)
    assert pruned_as_told(database, blobs).blobs == 0
    with database.begin() as connection:
        connection.execute(update(files_table).where(files_table.c.id == two.id).values(expires_at=now_s() - 1))
    done = pruned_as_told(database, blobs)
    assert (done.files, done.blobs) == (1, 1)
    assert count(database, files_table) == 0
    assert not blobs.has(digest)


def test_a_fresh_blob_waits_for_its_row(database: Database, blobs: BlobStore) -> None:
    """What was written a moment ago stays, as do the parts of living uploads and those without a row yet."""
    digest = blobs.put_stream([b"fresh"]).sha256
    upload = files.create_upload(database, "a", WAV, size_bytes=4)
    part = files.add_part(database, blobs, upload, [b"part"])
    age(blobs.root / "parts" / part.id)
    with blobs.writer() as writer:
        writer.write(b"left")
        writer.commit(part_id="part_nobody")
    assert prune(database, blobs, OLD).blobs == 0
    assert blobs.has(digest)
    age(blobs.root / "parts" / "part_nobody")
    half = blobs.work_file()
    half.write_bytes(b"half")
    age(half)
    done = prune(database, blobs, OLD)
    assert (done.blobs, done.blob_bytes) == (1, 8)
    assert [path.name for path in (blobs.root / "parts").iterdir()] == [part.id]


def test_uploads_end_and_are_forgotten(database: Database, blobs: BlobStore) -> None:
    """An upload whose time is over loses its parts; its row goes when it is old."""
    late, living = (files.create_upload(database, "a", WAV, size_bytes=4) for _ in range(2))
    part = files.add_part(database, blobs, late, [b"part"])
    with database.begin() as connection:
        connection.execute(update(uploads).where(uploads.c.id == late.id).values(expires_at=now_s() - 1))
    assert prune(database, blobs, OLD).files == 1
    assert not (blobs.root / "parts" / part.id).exists()
    assert files.get_upload(database, "a", late.id).state == "expired"
    with database.begin() as connection:
        connection.execute(update(uploads).values(created_at=now_s() - 31 * DAY_S))
    assert pruned_as_told(database, blobs).uploads == 1
    assert files.get_upload(database, "a", living.id).state == "pending"


def test_events_stay_until_all_have_read_them(database: Database, blobs: BlobStore) -> None:
    """Old events go, but for those that a reader which must miss nothing has still to come to."""
    for tx, age_days in ((1, 31), (2, 31), (3, 31), (3, 1)):
        put(
            database,
            events,
            {
                "tx": tx,
                "tenant": "a",
                "type": "job.succeeded",
                "batch_id": "b",
                "created_at": now_s() - age_days * DAY_S,
            },
        )
    with database.read() as connection:
        second = connection.execute(select(events.c.id).where(events.c.tx == 2)).scalar_one()
    put(database, cursors, {"name": "slow", "tx": 2, "event_id": second}, {"name": "fast", "tx": 9, "event_id": 1})
    assert pruned_as_told(database, blobs).events == 2
    with database.begin() as connection:
        connection.execute(update(cursors).values(tx=9))
    assert pruned_as_told(database, blobs).events == 1
    assert count(database, events) == 1


def test_deliveries_and_answers_go_in_their_time(database: Database, blobs: BlobStore) -> None:
    """Deliveries that have ended go when they are old, answers after a day; what is owed stays."""
    put(
        database,
        webhooks,
        {"id": "w", "tenant": "a", "url": "u", "types": "[]", "state": "active", "generation": 1, "created_at": 0.0},
    )
    for number, (state, age_days) in enumerate(
        [("delivered", 31), ("delivered", 1), ("failed", 31), ("dropped", 31), ("pending", None)]
    ):
        put(
            database,
            deliveries,
            {
                "id": f"d{number}",
                "webhook_id": "w",
                "event_id": f"e{number}",
                "type": "t",
                "body": "{}",
                "state": state,
                "next_at": 0.0,
                "created_at": 0.0,
                "finished_at": None if age_days is None else now_s() - age_days * DAY_S,
            },
        )
    for hours in (23, 25):
        put(
            database,
            idempotency_keys,
            {
                "tenant": "a",
                "route": "r",
                "key": str(hours),
                "fingerprint": "f",
                "status_code": 200,
                "headers": "{}",
                "body": "",
                "created_at": now_s() - hours * 3600.0,
            },
        )
    done = pruned_as_told(database, blobs, Rules(30 * DAY_S, keep_failed=True))
    assert (done.deliveries, done.keys) == (2, 1)
    assert pruned_as_told(database, blobs).deliveries == 1
    assert (count(database, deliveries), count(database, idempotency_keys)) == (2, 1)


def test_who_writes_into_a_folder_that_is_being_emptied_is_not_disturbed(blobs: BlobStore) -> None:
    """To remove the only blob of a folder leaves the folder: another one may be on its way there in the same moment."""
    digest = old_blob(blobs, b"last of its folder")
    path = blobs.raw_path(digest)
    assert blobs.remove(digest) == 18
    assert path.parent.is_dir()
    work = blobs.work_file()
    work.replace(path)  # what a writer does that had looked for the folder before
    assert blobs.has(digest)
