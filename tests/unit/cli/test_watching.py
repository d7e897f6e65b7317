"""What `watch` does with files between the look that finds them and their turn."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from voicejobs.cli.inputs import Found, Search
from voicejobs.cli.naming import Places
from voicejobs.cli.remote_watch import Ledger, Remote, _Job
from voicejobs.cli.report import FileReport, Summary
from voicejobs.cli.settling import Settling
from voicejobs.cli.watching import Inbox, Watcher
from voicejobs.client.uploads import Notes
from voicejobs.errors import NoSuchRecord, QueueFull, QuotaReached, RateLimited, VoicejobsError


class FullAtFirst:
    """Take nothing at first, as a full queue, and note what is taken then."""

    def __init__(self, error: type[VoicejobsError] = QueueFull) -> None:
        self.error = error
        self.is_full = True
        self.taken: list[tuple[str, bytes]] = []
        self.warned: list[str] = []
        self.at_work: set[str] = set()
        self.reporter: Any = self
        self.waiting = 0

    def warn(self, code: str, message: str) -> None:
        """Note a warning."""
        self.warned.append(code)

    def works_on(self, path: str) -> bool:
        """Tell of none."""
        return path in self.at_work

    def take(self, one: Found) -> None:
        """Take a file with what is in it now."""
        if self.is_full:
            raise self.error("full")
        self.taken.append((one.relative, Path(one.path).read_bytes()))

    def look(self) -> None:
        """See nothing."""

    def rest(self) -> None:
        """Note nothing."""

    def leave(self) -> None:
        """Note nothing."""


def watcher(folder: Path, work: FullAtFirst) -> Watcher:
    """Return what watches a folder whose files need not stand still for long."""
    inbox = Inbox(Search(), (f"{folder}/text/", (".txt",)))
    return Watcher(str(folder), cast("Any", work), inbox, Settling(0.0))


def test_a_file_that_is_written_while_it_waits_is_taken_when_it_is_done(tmp_path: Path) -> None:
    """Before its turn it is looked at once more: half of it is never taken, and the whole of it once."""
    (tmp_path / "a.wav").write_bytes(b"first")
    (tmp_path / "b.wav").write_bytes(b"other")
    (tmp_path / "gone.wav").write_bytes(b"gone")
    work = FullAtFirst()
    one = watcher(tmp_path, work)
    one._look()
    one._work()
    assert work.warned == ["queue_full"]
    (tmp_path / "a.wav").write_bytes(b"half of the sec")
    (tmp_path / "gone.wav").unlink()
    work.is_full, one._full_until = False, 0.0
    one._work()
    assert work.taken == [("b.wav", b"other")]
    (tmp_path / "a.wav").write_bytes(b"the second, whole")
    one._look()
    one._work()
    assert work.taken == [("b.wav", b"other"), ("a.wav", b"the second, whole")]


def test_a_file_waits_for_the_end_of_what_was_in_it_before(tmp_path: Path) -> None:
    """One that was replaced while its job runs has its turn after that, once, and holds up no other."""
    work = FullAtFirst()
    work.is_full, work.at_work = False, {str(tmp_path / "a.wav")}
    one = watcher(tmp_path, work)
    for content in (b"second", b"the third"):
        (tmp_path / "a.wav").write_bytes(content)
        (tmp_path / "b.wav").write_bytes(b"other")
        one._look()
        one._work()
    assert {name for name, _ in work.taken} == {"b.wav"}
    work.at_work.clear()
    one._work()
    assert work.taken[-1] == ("a.wav", b"the third")
    assert [name for name, _ in work.taken].count("a.wav") == 1


@pytest.mark.parametrize("error", [QueueFull, QuotaReached, RateLimited])
def test_a_service_that_has_no_room_now_is_waited_for(tmp_path: Path, error: type[VoicejobsError]) -> None:
    """A full queue, a quota and a rate end nothing: the file keeps its turn, and nothing is asked for a while."""
    (tmp_path / "a.wav").write_bytes(b"first")
    work = FullAtFirst(error)
    one = watcher(tmp_path, work)
    one._look()
    one._work()
    one._work()
    assert work.warned == [error.code]
    work.is_full, one._full_until = False, 0.0
    one._work()
    assert work.taken == [("a.wav", b"first")]


def test_a_note_after_one_that_was_cut_off_is_kept(tmp_path: Path) -> None:
    """Half a line costs itself alone: what is noted after it is known to the next run."""
    path = tmp_path / "notes.jsonl"
    Ledger.read(path).add("aa", "/in/a.wav", "/out/a")
    path.write_bytes(path.read_bytes() + b'{"sha256": "bb", "sou')
    Ledger.read(path).add("cc", "/in/c.wav", "/out/c")
    assert Ledger.read(path).done == {"aa": "/out/a", "cc": "/out/c"}


class TwoJobs:
    """Be a service whose second job ends before its first one."""

    def __init__(self) -> None:
        self.ended: set[str] = {"job_2"}
        self.deleted: set[str] = set()

    def get(self, path: str) -> dict[str, Any]:
        """Return a job."""
        job_id = path.rpartition("/")[2]
        if job_id in self.deleted:
            raise NoSuchRecord(f"There is no job {job_id}")
        return {"id": job_id, "status": "succeeded" if job_id in self.ended else "running"}

    def send(self, method: str, path: str, **request: Any) -> Any:
        """Return the text of a job."""
        return SimpleNamespace(content=f"text of {path.split('/')[4]}".encode())


def remote_watch(service: TwoJobs, folder: Path, reports: list[FileReport], *names: str) -> Remote:
    """Return a watch with a job at the service for each of these files."""
    ledger, places = Ledger(folder / "notes.jsonl"), Places.below(folder, ["txt"])
    notes, told = Notes(folder / "uploads", ""), SimpleNamespace(file=reports.append)
    remote = Remote(cast("Any", service), ledger, notes, places, ["txt"], {}, {}, cast("Any", told), Summary(""))
    for number, name in enumerate(names, 1):
        one = Found(str(folder / f"{name}.wav"), f"{name}.wav")
        remote._live[f"job_{number}"] = _Job(one, f"hash {number}", str(folder / name))
    return remote


def test_the_text_of_the_newer_content_stands(tmp_path: Path) -> None:
    """A file that was replaced while its first job ran has the text of the second, whichever job ends first."""
    service = TwoJobs()
    remote = remote_watch(service, tmp_path, [], "a", "a")
    for ended in ("job_2", "job_1", "job_2"):
        service.ended.add(ended)
        remote._asked_at = -1e9
        remote.look()
    assert remote.waiting == 0
    assert (tmp_path / "a.txt").read_text() == "text of job_2"
    assert set(remote.ledger.done) == {"hash 1", "hash 2"}


def test_a_job_that_was_deleted_at_the_service_costs_no_other(tmp_path: Path) -> None:
    """It is told of, and the watch goes on."""
    service, reports = TwoJobs(), list[FileReport]()
    service.deleted = {"job_1"}
    remote = remote_watch(service, tmp_path, reports, "a", "b")
    remote.look()
    assert remote.waiting == 0
    assert [(one.name, one.state) for one in reports] == [("a.wav", "cancelled"), ("b.wav", "succeeded")]
