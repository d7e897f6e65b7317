"""What `watch` does with files between the look that finds them and their turn."""

from pathlib import Path
from typing import Any, cast

from voicejobs.cli.inputs import Found, Search
from voicejobs.cli.settling import Settling
from voicejobs.cli.watching import Inbox, Watcher
from voicejobs.errors import QueueFull


class FullAtFirst:
    """Take nothing at first, as a full queue, and note what is taken then."""

    def __init__(self) -> None:
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
            raise QueueFull("full")
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
