"""What `watch` does with files between the look that finds them and their turn."""

from pathlib import Path
from typing import Any, cast

import pytest

from voicejobs.cli.inputs import Found, Search
from voicejobs.cli.remote_watch import Ledger
from voicejobs.cli.settling import Settling
from voicejobs.cli.watching import Inbox, Watcher
from voicejobs.errors import QueueFull, QuotaReached, RateLimited, VoicejobsError


class FullAtFirst:
    """Take nothing at first, as a full queue, and note what is taken then."""

    def __init__(self, error: type[VoicejobsError] = QueueFull) -> None:
        self.error = error
        self.is_full = True
        self.taken: list[tuple[str, bytes]] = []
        self.warned: list[str] = []
        self.reporter: Any = self
        self.waiting = 0

    def warn(self, code: str, message: str) -> None:
        """Note a warning."""
        self.warned.append(code)

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
