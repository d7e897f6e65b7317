"""Blobs on an object store: two machines see the same, caches stay small, and pruning takes nothing that is needed."""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from tests.servers.s3 import S3, client, new_bucket, serving
from voicejobs.cli import doctor
from voicejobs.errors import BadOption, BlobsRefused, BlobsUnavailable, NotFound, OutputUnwritable
from voicejobs.settings import Settings
from voicejobs.store import files, object_store, remote_blobs
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database
from voicejobs.store.files import NewFile
from voicejobs.store.remote_blobs import RemoteBlobStore, blob_store

HOURS_2 = 7200.0


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Return the address of a server for this module."""
    with serving() as endpoint_url:
        yield endpoint_url


@pytest.fixture
def s3(server: str) -> S3:
    """Return an empty bucket."""
    return new_bucket(server)


def machine(s3: S3, folder: Path, **settings: object) -> RemoteBlobStore:
    """Return the blob store of a machine with a state folder of its own."""
    ours = s3.settings(Settings(state_dir=folder, models_dir=folder, disk_floor_bytes=0))
    blobs = blob_store(replace(ours, **settings))  # type: ignore[arg-type]
    assert isinstance(blobs, RemoteBlobStore)
    blobs.make_folders()
    return blobs


@pytest.fixture
def here(s3: S3, tmp_path: Path) -> RemoteBlobStore:
    """Return the blob store of one machine."""
    return machine(s3, tmp_path / "here")


@pytest.fixture
def there(s3: S3, tmp_path: Path) -> RemoteBlobStore:
    """Return the blob store of another machine."""
    return machine(s3, tmp_path / "there")


def test_what_one_machine_keeps_another_reads(here: RemoteBlobStore, there: RemoteBlobStore) -> None:
    """Raw blobs and packed artifacts are the same on both, also large ones, which go in parts."""
    data = os.urandom(20_000_000)
    stored = here.put_stream([data])
    assert stored == (sha256(data).hexdigest(), len(data))
    assert there.has(stored.sha256)
    assert there.size_bytes(stored.sha256) == len(data)
    with there.open_raw(stored.sha256) as file:
        file.seek(19_999_990)
        assert file.read() == data[-10:]
    assert there.put_stream([data]) == stored, "what is there already may come again"
    transcript = os.urandom(50_000)
    artifact = here.store(transcript, "transcript", {})
    assert artifact.data is None
    assert there.load(artifact.sha256, None) == transcript
    assert set(here.digests()) == set(there.digests()) == {stored.sha256, artifact.sha256}
    for blobs in (here, there):
        with pytest.raises(NotFound):
            blobs.raw_path("0" * 64)
        assert not blobs.has("0" * 64)
        assert not list(blobs.incoming.iterdir())


def test_uploads_may_come_to_several_machines(
    here: RemoteBlobStore, there: RemoteBlobStore, sqlite_url: str, s3: S3
) -> None:
    """Parts that came to one machine are put together by another, and then gone."""
    database = Database(sqlite_url)
    upload = files.create_upload(database, "a", NewFile("a.wav", "user_data"), size_bytes=10)
    first = files.add_part(database, here, upload, [b"hello"])
    last = files.add_part(database, there, upload, [b"world"])
    assert s3.names("parts/") == [f"parts/{first.id}", f"parts/{last.id}"]
    assert list(here.parts(older_than_s=HOURS_2)) == []
    assert [name for name, _ in here.parts(older_than_s=-1)] == [first.id, last.id]
    _, file = files.complete_upload(database, there, upload, [first.id, last.id])
    assert here.raw_path(file.sha256).read_bytes() == b"helloworld"
    assert s3.names("parts/") == []
    database.close()


def test_decoded_audio_is_shared_and_goes_with_its_job(here: RemoteBlobStore, there: RemoteBlobStore, s3: S3) -> None:
    """What a worker shares another reads in windows; whoever ends the job, or sweeps, removes it everywhere."""
    for job in ("job_1", "job_2"):
        path = here.scratch / f"{job}.1-0.s16le"
        path.write_bytes(bytes(range(100)))
        here.share_scratch(str(path))
    name = "job_1.1-0.s16le"
    assert there.scratch_path(name) is None
    assert there.has_scratch(name)
    assert not there.has_scratch("job_3.1-0.s16le")
    assert there.read_scratch(name, 10, 5) == bytes(range(10, 15))
    assert there.read_scratch(name, 98, 50) == bytes([98, 99])
    assert there.read_scratch(name, 0, 0) == b""
    for place in (100, 2000):
        with pytest.raises(NotFound):
            there.read_scratch(name, place, 5)
    there.remove_scratch("job_1")
    assert s3.names("scratch/") == ["scratch/job_2.1-0.s16le"]
    assert there.jobs_in_scratch(older_than_s=0.0) == {"job_2"}
    there.remove_scratch("job_2")
    assert s3.names("scratch/") == []
    assert here.jobs_in_scratch(older_than_s=-1.0) == {"job_1", "job_2"}, "its own folder is its own to sweep"


def test_a_store_that_is_away_does_not_undo_the_end_of_a_job(
    here: RemoteBlobStore, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoded audio that cannot be removed now is left to whoever sweeps; nothing is raised after the last commit."""
    path = here.scratch / "job_1.1-0.s16le"
    path.write_bytes(b"1234")
    here.share_scratch(str(path))

    def refuse(*names: str) -> None:
        raise BlobsRefused("no")

    with monkeypatch.context() as patch:
        patch.setattr(here.remote, "remove", refuse)
        here.remove_scratch("job_1")
    assert not path.exists()
    assert here.jobs_in_scratch(older_than_s=0.0) == {"job_1"}
    here.remove_scratch("job_1")
    assert s3.names() == []


def test_the_cache_stays_small(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above its limit the cache loses what was not asked for longest, and never what was used a moment ago."""
    blobs = machine(s3, tmp_path / "small", blobs_cache_bytes=250_000)
    stored = [blobs.put_stream([os.urandom(100_000)]).sha256 for _ in range(4)]
    assert blobs.trim() == 0, "all are in use"
    for age, digest in enumerate(reversed(stored)):
        os.utime(blobs._path(digest), (time.time() - 1000 * age - 1000,) * 2)
    assert blobs.raw_path(stored[0]).exists(), "asked for, the oldest is the newest"
    assert blobs.trim() == 200_000
    assert [blobs._path(digest).exists() for digest in stored] == [True, False, False, True]
    monkeypatch.setattr(remote_blobs, "IN_USE_S", -1.0)
    monkeypatch.setattr(RemoteBlobStore.trim, "__kwdefaults__", {"in_use_s": -1.0})
    for digest in stored * 2:
        assert blobs.raw_path(digest).stat().st_size == 100_000
    assert sum(path.stat().st_size for path in blobs.root.glob("??/*")) <= 300_000


def age_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is in the store now, and what will be, look as if it were written some milliseconds too long ago."""
    monkeypatch.setattr(remote_blobs, "FRESH_BLOB_S", -1.0)


def test_only_old_blobs_are_removed(
    here: RemoteBlobStore, there: RemoteBlobStore, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh blob stays, for its row may be about to come; an old one goes with its copy here, and leaves no mark."""
    digest = here.put_stream([b"bytes"]).sha256
    there.raw_path(digest)
    assert there.remove(digest) is None
    age_all(monkeypatch)
    os.utime(there._path(digest), (1, 1))
    assert there.remove("0" * 64) is None
    assert there.remove(digest) == 5
    assert not here.has(digest)
    assert s3.names() == []
    with pytest.raises(NotFound):
        there.raw_path(digest)


@pytest.mark.timeout(60)
def test_writing_and_pruning_at_the_same_moment_lose_nothing(
    here: RemoteBlobStore, there: RemoteBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blob that is written again while somebody removes it as old is there once it has been written."""
    digest = here.put_stream([b"bytes"]).sha256
    looks = iter([HOURS_2, HOURS_2])  # both looks of whoever prunes came before it was written again
    real_look, real_remove = there.remote.look, there.remote.remove
    written = threading.Event()

    def look(name: str) -> object:
        found = real_look(name)
        return None if found is None else replace(found, age_s=next(looks))

    def remove(*names: str) -> None:
        if names[0].startswith("blobs/"):
            writing.start()
            time.sleep(0.3)
        real_remove(*names)

    def write() -> None:
        here.put_stream([b"bytes"])
        written.set()

    writing = threading.Thread(target=write)
    monkeypatch.setattr(there.remote, "look", look)
    monkeypatch.setattr(there.remote, "remove", remove)
    assert there.remove(digest) == 5
    assert written.wait(30)
    assert here.has(digest)
    writing.join()


def test_what_was_just_written_here_is_published_though_it_is_being_removed(
    there: RemoteBlobStore, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that has come into the folder meanwhile stays: another process of this machine is about to publish it."""
    digest = there.put_stream([b"bytes"]).sha256
    age_all(monkeypatch)
    real_remove = there.remote.remove

    def remove(*names: str) -> None:
        real_remove(*names)
        if names[0].startswith("removing/"):
            BlobStore.put_stream(BlobStore(there.root), [b"bytes"])  # as far as `RemoteBlobStore.adopt` comes at first

    with monkeypatch.context() as patch:
        patch.setattr(there.remote, "remove", remove)
        assert there.remove(digest) == 5
    there._publish(digest)
    assert s3.names("blobs/") == [f"blobs/{digest[:2]}/{digest[2:]}"]


def test_the_store_says_what_is_wrong_with_it(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that is not there, a server that is away and a wrong address have errors of their own."""
    monkeypatch.setattr(object_store, "TRIES", 1)
    with pytest.raises(BlobsRefused, match="NoSuchBucket"):
        machine(s3, tmp_path, blobs_url="s3://nobody-has-this").put_stream([b"x"])
    away = machine(s3, tmp_path, s3_endpoint_url="http://127.0.0.1:9")
    with pytest.raises(BlobsUnavailable, match="cannot be reached"):
        away.put_stream([b"x"])
    with pytest.raises(BlobsUnavailable):
        away.has("0" * 64)
    for wrong in ("s3://", "https://bucket", "blobs"):
        with pytest.raises(BadOption):
            blob_store(replace(s3.settings(Settings(tmp_path, tmp_path)), blobs_url=wrong))


def test_damage_is_noticed(here: RemoteBlobStore, there: RemoteBlobStore, s3: S3) -> None:
    """Other bytes under the name of a blob are not taken for it."""
    digest = here.put_stream([b"bytes"]).sha256
    name = f"some/prefix/blobs/{digest[:2]}/{digest[2:]}"
    client(s3.endpoint_url).put_object(Bucket=s3.bucket, Key=name, Body=b"other")
    with pytest.raises(OutputUnwritable, match="damaged"):
        there.raw_path(digest)
    assert not there._path(digest).exists()


def test_a_folder_may_be_shared(tmp_path: Path) -> None:
    """An absolute path, or file:// with one, is a folder that all machines see; nothing of a job is kept in memory."""
    for url in (str(tmp_path / "nfs"), f"file://{tmp_path / 'nfs'}"):
        settings = Settings(tmp_path / "state", tmp_path, blobs_url=url)
        blobs = blob_store(settings)
        assert type(blobs) is BlobStore
        assert (blobs.root, blobs.is_shared) == (tmp_path / "nfs", True)
    assert not blob_store(Settings(tmp_path / "state", tmp_path)).is_shared


def test_doctor_writes_to_the_store(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding names the place, or what is wrong with it and what to do; nothing is left there."""
    settings = s3.settings(Settings(tmp_path, tmp_path))
    good = doctor._guarded(doctor._blobs, settings)
    assert (good.status, s3.bucket in good.detail) == ("ok", True)
    assert s3.names() == []
    monkeypatch.setattr(object_store, "TRIES", 1)
    bad = doctor._guarded(doctor._blobs, replace(settings, blobs_url="s3://nobody-has-this"))
    assert (bad.check, bad.status, "blobs_refused" in bad.detail, bool(bad.fix)) == ("blobs", "fail", True, True)
    shared = doctor._guarded(doctor._blobs, Settings(tmp_path, tmp_path, blobs_url=str(tmp_path / "nfs")))
    assert (shared.status, str(tmp_path / "nfs") in shared.detail) == ("ok", True)
