"""Delivering: files are written whole or not at all, and nobody else's file is touched."""

import errno
import os
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from voicejobs.audio.types import Segment, Transcript
from voicejobs.errors import DiskFull, OutputExists, OutputUnwritable
from voicejobs.formats import FORMATS
from voicejobs.store.blobs import BlobStore, write_atomic
from voicejobs.store.paths import decode_path, encode_path
from voicejobs.tasks import delivery


def transcript(text: str = "Hello.") -> Transcript:
    """Return a transcript of one segment."""
    return Transcript(segments=(Segment(0.0, 1.0, text),), language="en", duration_s=1.0)


def deliver_files(transcript: Transcript, options: dict[str, Any], fence: int = 1) -> list[dict[str, Any]]:
    """Deliver as a task with this fencing number does."""
    lease: Any = SimpleNamespace(job_id="job_a", fence=fence)
    return delivery.deliver_files(transcript, options, lease)


def options(stem: Path | str, *formats: str, **given: Any) -> dict[str, Any]:
    """Return the options of `deliver`."""
    return {"target": encode_path(stem), "formats": formats or ("txt",), "replace": False, "known": {}, **given}


def test_each_format_is_a_file_that_is_described(tmp_path: Path) -> None:
    """Name, hash and size of each file are those of the file that is there; folders are made."""
    files = deliver_files(transcript(), options(tmp_path / "new" / "talk", "txt", "srt", "vtt", "json"))
    assert [file["format"] for file in files] == ["txt", "srt", "vtt", "json"]
    for file in files:
        data = Path(decode_path(file)).read_bytes()
        assert (file["sha256"], file["size"]) == (sha256(data).hexdigest(), len(data))
    assert (tmp_path / "new" / "talk.txt").read_text() == "Hello.\n"
    assert len(list((tmp_path / "new").iterdir())) == 4


def test_files_follow_the_options_of_the_job(tmp_path: Path) -> None:
    """What the job says of lines and labels reaches the files, and each is named after its own input."""
    spoken = transcript("Hello there.")
    deliver_files(
        spoken, options(tmp_path / "my talk", "srt", "ctm", render={"max_words_per_line": 1, "srt_crlf": True})
    )
    assert (tmp_path / "my talk.srt").read_bytes().count(b"-->") == 2
    assert b"\r\n" in (tmp_path / "my talk.srt").read_bytes()
    assert (tmp_path / "my talk.ctm").read_text().splitlines()[1].startswith("my_talk 1 ")


def test_every_format_can_be_had_at_once(tmp_path: Path) -> None:
    """No two formats write the same file, and each file is there."""
    files = deliver_files(transcript(), options(tmp_path / "talk", *FORMATS))
    assert len({decode_path(file) for file in files}) == len(FORMATS) == len(list(tmp_path.iterdir()))


def test_without_a_target_nothing_is_written(tmp_path: Path) -> None:
    """A job whose transcript is only kept in the store has no files."""
    assert deliver_files(transcript(), {**options(tmp_path), "target": ""}) == []
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_no_text_is_kept(tmp_path: Path) -> None:
    """The stem's bytes come back in the name of the file."""
    stem = os.fsdecode(os.fsencode(tmp_path) + b"/od\xffd")
    (file,) = deliver_files(transcript(), options(stem))
    assert os.fsencode(decode_path(file)).endswith(b"/od\xffd.txt")
    assert Path(stem + ".txt").exists()


def test_a_file_of_somebody_else_stops_everything(tmp_path: Path) -> None:
    """Where one of two files is in the way neither is written, and the one that is there stays."""
    (tmp_path / "talk.srt").write_text("mine")
    with pytest.raises(OutputExists, match=r"talk\.srt") as caught:
        deliver_files(transcript(), options(tmp_path / "talk", "txt", "srt"))
    assert "--force" in caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["talk.srt"]
    assert (tmp_path / "talk.srt").read_text() == "mine"


@pytest.mark.parametrize("why", ["same", "known", "replace"])
def test_a_file_that_may_go_is_replaced(tmp_path: Path, why: str) -> None:
    """The same bytes, a file that we wrote before, and any file with `replace`, are no obstacle."""
    path = tmp_path / "talk.txt"
    path.write_text("Hello.\n" if why == "same" else "old")
    given: dict[str, Any] = {"replace": why == "replace"}
    if why == "known":
        given["known"] = {"txt": sha256(b"old").hexdigest()}
    deliver_files(transcript(), options(tmp_path / "talk", **given))
    assert path.read_text() == "Hello.\n"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails for lack of space is a transient error; the old file stays, and no part is left."""
    path = tmp_path / "talk.txt"
    path.write_text("old")

    def fail(descriptor: int) -> None:
        raise OSError(code, "full")

    monkeypatch.setattr("voicejobs.store.blobs.os.fsync", fail)
    with pytest.raises(DiskFull, match=r"talk\.txt"):
        deliver_files(transcript(), options(tmp_path / "talk", replace=True))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("talk.txt", "old")]


def test_what_a_killed_worker_left_is_cleared_away(tmp_path: Path) -> None:
    """The next claim removes the unfinished files of earlier ones, and those of other jobs stay."""
    for name in (".voicejobs-job_a-1.txt.part", ".voicejobs-job_b-1.txt.part"):
        (tmp_path / name).write_text("Hel")
    deliver_files(transcript(), options(tmp_path / "talk"), fence=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".voicejobs-job_b-1.txt.part", "talk.txt"]


def test_a_folder_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    """Where a file stands in the place of the folder the error names the path, and is permanent."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputUnwritable, match="file"):
        write_atomic(tmp_path / "file" / "talk.txt", b"")
    with pytest.raises(OutputUnwritable):
        deliver_files(transcript(), options(tmp_path / "file" / "talk"))


def test_the_umask_of_the_process_is_respected(tmp_path: Path) -> None:
    """Output files have the rights that other programs' files have here; blobs are private."""
    delivery._umask.cache_clear()
    before = os.umask(0o027)
    try:
        deliver_files(transcript(), options(tmp_path / "talk"))
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
        delivery._umask.cache_clear()
    assert (tmp_path / "talk.txt").stat().st_mode & 0o777 == 0o640
    write_atomic(tmp_path / "blob", b"x")
    assert (tmp_path / "blob").stat().st_mode & 0o777 == 0o600


def test_a_damaged_blob_is_noticed(tmp_path: Path) -> None:
    """Bytes that are not those that were stored are never handed out."""
    store = BlobStore(tmp_path)
    data = os.urandom(100_000)
    artifact = store.store(data, "transcript", {})
    assert store.load(artifact.sha256, None) == data
    (path,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    path.write_bytes(b"other")
    with pytest.raises(OutputUnwritable, match="damaged"):
        store.load(artifact.sha256, None)


def test_only_the_scratch_of_one_job_is_removed(tmp_path: Path) -> None:
    """Decoded audio of other jobs stays, and removing what is not there is no error."""
    store = BlobStore(tmp_path)
    store.remove_scratch("job_a")
    store.make_folders()
    for name in ("job_a.1-0.s16le", "job_a.2-1.s16le", "job_b.1-0.s16le"):
        (store.scratch / name).write_bytes(b"")
    store.remove_scratch("job_a")
    assert [path.name for path in store.scratch.iterdir()] == ["job_b.1-0.s16le"]
    assert store.scratch.stat().st_mode & 0o077 == 0
