"""Which files of a watched folder have stood still."""

import os
from pathlib import Path

import pytest

from voicejobs.cli.inputs import Found
from voicejobs.cli.settling import Settling, is_temporary


def found(*paths: Path) -> list[Found]:
    """Return what a look at the folder finds."""
    return [Found(str(path), path.name) for path in paths]


def names(files: list[Found]) -> list[str]:
    """Return the names of files."""
    return [one.relative for one in files]


def test_a_file_is_taken_once_when_it_has_stood_still(tmp_path: Path) -> None:
    """It is taken after the time, not before, and not again while it stays as it is."""
    path = tmp_path / "a.wav"
    path.write_bytes(b"x")
    settling = Settling(2.0)
    looks = [settling.ready(found(path), now) for now in (0.0, 1.9, 2.0, 2.1, 50.0)]
    assert [names(one) for one in looks] == [[], [], ["a.wav"], [], []]


@pytest.mark.parametrize("change", ["size", "time", "another file"])
def test_a_change_begins_the_time_anew(tmp_path: Path, change: str) -> None:
    """A file that grows, whose time moves, or that another one replaced is not taken until that has stood still."""
    path = tmp_path / "a.wav"
    path.write_bytes(b"x")
    os.utime(path, ns=(5, 5))
    settling = Settling(2.0)
    assert not settling.ready(found(path), 0.0)
    if change == "size":
        path.write_bytes(b"xy")
        os.utime(path, ns=(5, 5))
    elif change == "time":
        os.utime(path, ns=(5, 6))
    else:
        other = tmp_path / "b.part"
        other.write_bytes(b"x")
        os.utime(other, ns=(5, 5))
        other.replace(path)
    assert not settling.ready(found(path), 3.0)
    assert settling.moving == 1
    assert not settling.ready(found(path), 4.9)
    assert names(settling.ready(found(path), 5.0)) == ["a.wav"]
    assert settling.moving == 0


def test_an_empty_file_waits_for_its_content(tmp_path: Path) -> None:
    """A name without content is no recording yet, however long it stands still."""
    path = tmp_path / "a.wav"
    path.touch()
    settling = Settling(1.0)
    assert not any(settling.ready(found(path), now) for now in (0.0, 10.0, 20.0))
    path.write_bytes(b"x")
    assert not settling.ready(found(path), 30.0)
    assert names(settling.ready(found(path), 31.0)) == ["a.wav"]


def test_what_has_gone_is_forgotten(tmp_path: Path) -> None:
    """A file that goes between two looks costs nothing, and one that comes back is looked at anew."""
    path = tmp_path / "a.wav"
    path.write_bytes(b"x")
    settling = Settling(1.0)
    settling.ready(found(path), 0.0)
    assert names(settling.ready(found(path), 1.0)) == ["a.wav"]
    path.unlink()
    assert not settling.ready(found(path), 2.0)
    path.write_bytes(b"x")
    assert not settling.ready(found(path), 3.0)
    assert names(settling.ready(found(path), 4.0)) == ["a.wav"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("talk.mp3", False), ("talk.part.mp3", False), ("talk.mp3.part", True), ("talk.mp3.PART", True),
        ("talk.tmp", True), ("talk.wav.crdownload", True), (".talk.wav", True), ("talk.wav~", True),
        ("~talk.wav", True),
    ],
)  # fmt: skip
def test_names_of_unfinished_files(name: str, expected: bool) -> None:
    """Names that programs give to what they have not finished are known in any case."""
    assert is_temporary(name) is expected
