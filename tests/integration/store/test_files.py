"""Files and uploads: what tenants send is whole or not there, and nobody sees what another one has sent."""

import os
import time
from collections.abc import Iterator
from hashlib import md5, sha256
from itertools import repeat
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import update

from voicejobs.errors import BadOption, DatabaseUnavailable, DiskFull, NoSuchRecord, NotFound, TooLarge, WrongState
from voicejobs.store import files
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database, now_s
from voicejobs.store.files import File, NewFile, Upload
from voicejobs.store.schema import files as files_table
from voicejobs.store.schema import uploads as uploads_table

AUDIO = NewFile("talk.wav", "user_data", "audio/wav")


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    """Return an empty blob store."""
    return BlobStore(tmp_path / "blobs")


def lies(blobs: BlobStore) -> list[str]:
    """Return the names of all files of a blob store."""
    return sorted(path.name for path in blobs.root.rglob("*") if path.is_file())


def begun(database: Database, size_bytes: int, tenant: str = "a") -> Upload:
    """Begin an upload."""
    return files.create_upload(database, tenant, AUDIO, size_bytes=size_bytes)


def add(database: Database, blobs: BlobStore, data: bytes, tenant: str = "a") -> File:
    """Keep bytes as a file."""
    return files.add_file(database, tenant, blobs.put_stream([data]), AUDIO)


def test_a_raw_blob_is_its_bytes_under_their_hash(blobs: BlobStore, tmp_path: Path) -> None:
    """What comes in pieces, from a file, or as a file is one blob, which can be sought in."""
    data = os.urandom(3_000_000)
    digest = sha256(data).hexdigest()
    assert blobs.put_stream(data[place : place + 70_000] for place in range(0, len(data), 70_000)) == (
        digest,
        len(data),
    )
    path = tmp_path / "source"
    path.write_bytes(data)
    with path.open("rb") as file:
        assert blobs.put_stream(file) == (digest, len(data))
    assert blobs.put_file(path) == (digest, len(data))
    assert path.exists()
    assert blobs.put_file(path, move=True) == (digest, len(data))
    assert not path.exists()
    assert blobs.has(digest)
    assert blobs.size_bytes(digest) == len(data)
    assert blobs.raw_path(digest).read_bytes() == data
    with blobs.open_raw(digest) as file:
        file.seek(-10, os.SEEK_END)
        assert file.read() == data[-10:]
    assert lies(blobs) == [digest[2:]]


def test_what_is_not_whole_leaves_nothing(blobs: BlobStore) -> None:
    """Too many bytes, a source that fails and a writer that was never told to commit leave no file."""

    def broken() -> Iterator[bytes]:
        yield b"x" * 1000
        raise ConnectionResetError

    with pytest.raises(TooLarge, match="more than 999 bytes"):
        blobs.put_stream([b"x" * 1000], limit_bytes=999)
    with pytest.raises(ConnectionResetError):
        blobs.put_stream(broken())
    with blobs.writer() as writer:
        writer.write(b"half")
    assert lies(blobs) == []
    with pytest.raises(NotFound):
        blobs.open_raw("0" * 64)
    with pytest.raises(NotFound):
        blobs.raw_path("0" * 64)
    assert not blobs.has("0" * 64)


def test_nothing_is_taken_in_below_the_floor(tmp_path: Path) -> None:
    """The floor of the disk stops what comes from outside before a byte is written, and not what workers make."""
    blobs = BlobStore(tmp_path / "blobs", floor_bytes=1 << 60)
    with pytest.raises(DiskFull, match="below the floor"):
        blobs.put_stream([b"x"], taken_in=True)
    assert lies(blobs) == []
    assert blobs.put_stream([b"x"]).size_bytes == 1


def test_files_belong_to_their_tenant(database: Database, blobs: BlobStore) -> None:
    """A file is found, listed, held and deleted by its tenant alone; two files may share their bytes."""
    mine, theirs = add(database, blobs, b"sound"), add(database, blobs, b"sound", "b")
    assert mine.sha256 == theirs.sha256
    assert files.get_file(database, "a", mine.id) == mine
    for file_id in (theirs.id, "file_nobody"):
        with pytest.raises(NoSuchRecord):
            files.get_file(database, "a", file_id)
        with pytest.raises(NoSuchRecord):
            files.delete_file(database, "a", file_id)
        with pytest.raises(NoSuchRecord), database.begin() as connection:
            files.hold_file(connection, "a", file_id)
    with database.begin() as connection:
        assert files.hold_file(connection, "a", mine.id) == mine
    files.delete_file(database, "a", mine.id)
    assert files.list_files(database, "a") == []
    assert files.list_files(database, "b") == [theirs]


def test_files_are_listed_page_by_page(database: Database, blobs: BlobStore) -> None:
    """Lists go on behind an id, either way, and show one purpose where asked; what has expired is not there."""
    ids = [add(database, blobs, bytes([number])).id for number in range(5)]
    batch = files.add_file(database, "a", blobs.put_stream([b"{}"]), NewFile("in.jsonl", "batch"))
    assert [one.id for one in files.list_files(database, "a", limit=2)] == [batch.id, ids[4]]
    assert [one.id for one in files.list_files(database, "a", after=ids[4], limit=2)] == [ids[3], ids[2]]
    assert [one.id for one in files.list_files(database, "a", newest_first=False, after=ids[3])] == [ids[4], batch.id]
    assert [one.id for one in files.list_files(database, "a", purpose="batch")] == [batch.id]
    with database.begin() as connection:
        connection.execute(update(files_table).where(files_table.c.id != ids[0]).values(expires_at=now_s() - 1))
    assert [one.id for one in files.list_files(database, "a")] == [ids[0]]
    with pytest.raises(NoSuchRecord):
        files.get_file(database, "a", batch.id)
    assert files.expire(database, blobs) == 5
    assert files.get_file(database, "a", ids[0]).expires_at is None


def test_parts_become_a_file_in_the_order_of_their_ids(database: Database, blobs: BlobStore) -> None:
    """Parts may come in any order; the order of completion counts, their hashes are checked, and they go."""
    upload = begun(database, 10)
    with pytest.raises(BadOption, match="SHA-256"):
        files.add_part(database, blobs, upload, [b"worl"], sha256=sha256(b"word").hexdigest())
    with pytest.raises(BadOption, match="at least one byte"):
        files.add_part(database, blobs, upload, [])
    with pytest.raises(TooLarge):
        files.add_part(database, blobs, upload, [b"x" * 11])
    last = files.add_part(database, blobs, upload, [b"world"], sha256=sha256(b"world").hexdigest())
    again = files.add_part(database, blobs, upload, [b"world"])
    first = files.add_part(database, blobs, upload, [b"he", b"llo"])
    assert files.list_parts(database, upload) == [last, again, first]
    for wrong in ([first.id], [first.id, first.id], [first.id, "part_nobody"], [first.id, last.id, again.id]):
        with pytest.raises(BadOption):
            files.complete_upload(database, blobs, upload, wrong)
    with pytest.raises(BadOption, match="MD5"):
        files.complete_upload(database, blobs, upload, [first.id, last.id], md5_hex="0" * 32)
    wanted = md5(b"helloworld", usedforsecurity=False).hexdigest()
    done, file = files.complete_upload(database, blobs, upload, [first.id, last.id], md5_hex=wanted)
    assert (done.state, done.file_id, file.size_bytes, file.media_type) == ("completed", file.id, 10, "audio/wav")
    assert blobs.raw_path(file.sha256).read_bytes() == b"helloworld"
    assert lies(blobs) == [file.sha256[2:]]
    assert files.complete_upload(database, blobs, upload, [first.id]) == (done, file), "the answer was lost"
    with pytest.raises(WrongState):
        files.add_part(database, blobs, done, [b"x"])
    with pytest.raises(WrongState):
        files.cancel_upload(database, blobs, done)


def test_an_upload_takes_no_more_than_twice_its_size(database: Database, blobs: BlobStore) -> None:
    """Parts that were sent twice are taken; a client that sends without end is stopped, and leaves nothing more."""
    upload = begun(database, 4)
    files.add_part(database, blobs, upload, [b"1234"])
    files.add_part(database, blobs, upload, [b"1234"])
    with pytest.raises(TooLarge):
        files.add_part(database, blobs, upload, [b"1"])
    assert len(lies(blobs)) == 2
    with pytest.raises(TooLarge):
        begun(database, files.MAX_UPLOAD_BYTES + 1)
    with pytest.raises(BadOption):
        begun(database, 0)


def test_uploads_that_end_leave_nothing(database: Database, blobs: BlobStore) -> None:
    """Cancelled and expired uploads lose their parts, take none, and cannot be completed."""
    cancelled, late = begun(database, 4), begun(database, 4)
    parts = [files.add_part(database, blobs, upload, [b"1234"]).id for upload in (cancelled, late)]
    assert files.cancel_upload(database, blobs, cancelled).state == "cancelled"
    assert files.cancel_upload(database, blobs, cancelled).state == "cancelled"
    with database.begin() as connection:
        connection.execute(update(uploads_table).where(uploads_table.c.id == late.id).values(expires_at=now_s() - 1))
    assert files.get_upload(database, "a", late.id).state == "expired"
    with pytest.raises(WrongState):
        files.add_part(database, blobs, late, [b"1"])  # as it was before its time was over
    assert files.expire(database, blobs) == 1
    assert files.expire(database, blobs) == 0
    assert lies(blobs) == []
    for upload, part_id in zip((cancelled, late), parts, strict=True):
        with pytest.raises(WrongState):
            files.complete_upload(database, blobs, files.get_upload(database, "a", upload.id), [part_id])
    with pytest.raises(NoSuchRecord):
        files.get_upload(database, "b", late.id)
    assert [one.id for one in files.list_uploads(database, "a")] == [late.id, cancelled.id]


def test_what_a_dead_process_left_goes(blobs: BlobStore) -> None:
    """A half-written blob goes when it has lain for an hour, and not before."""
    path = blobs.work_file()
    path.write_bytes(b"half")
    assert blobs.remove_leftovers() == 0
    os.utime(path, (time.time() - 7200, time.time() - 7200))
    assert blobs.remove_leftovers() == 4
    assert lies(blobs) == []


@pytest.mark.timeout(60)
def test_a_large_upload_takes_no_memory(sqlite_url: str, blobs: BlobStore) -> None:
    """Two hundred megabytes in parts become a file while the process grows by less than ten."""
    database = Database(sqlite_url)
    part = os.urandom(1 << 20)
    upload = begun(database, 200 << 20)
    process = psutil.Process()
    before_bytes = process.memory_info().rss
    ids = [files.add_part(database, blobs, upload, repeat(part, 40)).id for _ in range(5)]
    _, file = files.complete_upload(database, blobs, upload, ids)
    assert process.memory_info().rss - before_bytes < 10 << 20
    assert blobs.size_bytes(file.sha256) == 200 << 20
    database.close()


def test_a_part_whose_row_was_committed_unheard_keeps_its_bytes(
    database: Database, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the answer of the database was lost the row may stand: the upload is completed with that part."""
    upload = begun(database, 3)
    run = database.run

    def unheard(act: Any) -> Any:
        run(act)
        raise DatabaseUnavailable("the connection broke")

    with monkeypatch.context() as patch:
        patch.setattr(database, "run", unheard)
        with pytest.raises(DatabaseUnavailable):
            files.add_part(database, blobs, upload, [b"abc"])
    (part,) = files.list_parts(database, upload)
    _, file = files.complete_upload(database, blobs, upload, [part.id])
    assert blobs.raw_path(file.sha256).read_bytes() == b"abc"
