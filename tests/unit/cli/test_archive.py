"""The archive: what it says, and what it refuses."""

from hashlib import sha256
from pathlib import Path

import pytest

from voicejobs.cli.archive import Archive
from voicejobs.errors import BadOption

ONE, OTHER = sha256(b"1").hexdigest(), sha256(b"2").hexdigest()


def test_what_is_added_is_read_again(tmp_path: Path) -> None:
    """One line for each recording, the name for people; folders are made."""
    archive = Archive.read(tmp_path / "new" / "done.txt")
    archive.open()
    archive.add(ONE, "talk.mp3")
    archive.add(ONE, "again.mp3")
    archive.add(OTHER, "new\nline \x1b[31m.mp3")
    archive.close()
    lines = (tmp_path / "new" / "done.txt").read_text().splitlines()
    assert lines == [f"sha256:{ONE} talk.mp3", f"sha256:{OTHER} new\\nline \\x1b[31m.mp3"]
    assert Archive.read(archive.path).hashes == {ONE, OTHER}


def test_comments_blank_lines_and_a_missing_line_end_are_fine(tmp_path: Path) -> None:
    """People edit such files."""
    path = tmp_path / "done.txt"
    path.write_text(f"# mine\n\nsha256:{ONE}")
    archive = Archive.read(path)
    archive.open()
    archive.add(OTHER, "x")
    archive.close()
    assert Archive.read(path).hashes == {ONE, OTHER}


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    """With the number of the line, and unchanged."""
    path = tmp_path / "notes.txt"
    path.write_text(f"sha256:{ONE}\nyoutube dQw4w9WgXcQ\n")
    with pytest.raises(BadOption, match="line 2"):
        Archive.read(path)


def test_an_archive_that_cannot_be_written_is_found_out_before(tmp_path: Path) -> None:
    """A folder of that name, for example."""
    (tmp_path / "done.txt").mkdir()
    with pytest.raises(BadOption):
        Archive.read(tmp_path / "done.txt")
    (tmp_path / "file").touch()
    with pytest.raises(BadOption):
        Archive.read(tmp_path / "file" / "done.txt").open()
