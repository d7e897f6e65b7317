"""Looking at an input before it is opened."""

import os
from pathlib import Path

import pytest

from voicejobs.errors import InputChanged, VoicejobsError
from voicejobs.tasks.inputs import check_not_replaced, check_unchanged, unreadable


def source(path: Path) -> dict[str, int]:
    """Return what submission notes of a file."""
    status = path.stat()
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a small file."""
    path = tmp_path / "a.wav"
    path.write_bytes(b"abc")
    return path


def code_of(path: Path, noted: dict[str, int]) -> str:
    """Return the code of the error that a look at the file gives; empty for none."""
    try:
        check_unchanged(str(path), noted)
    except VoicejobsError as error:
        return error.code
    return ""


def test_the_file_that_was_submitted_passes(path: Path) -> None:
    """The same size and time are taken for the same file."""
    assert code_of(path, source(path)) == ""


def test_another_size_or_time_is_another_file(path: Path) -> None:
    """A file that was written again since is refused, as is one with an older copy in its place."""
    noted = source(path)
    path.write_bytes(b"abcd")
    assert code_of(path, noted) == "input_changed"
    path.write_bytes(b"abc")
    os.utime(path, ns=(0, noted["mtime_ns"] - 1))
    assert code_of(path, noted) == "input_changed"


def test_what_is_gone_empty_or_no_file_is_refused(path: Path, tmp_path: Path) -> None:
    """A missing file, an empty one, a folder and a pipe have codes of their own, and no pipe is opened."""
    noted = source(path)
    path.write_bytes(b"")
    assert code_of(path, noted) == "empty_file"
    path.unlink()
    assert code_of(path, noted) == "not_found"
    assert code_of(tmp_path, noted) == "not_audio"
    os.mkfifo(path)
    assert code_of(path, noted) == "not_audio"
    assert code_of(path / "below", noted) == "unreadable"


def test_a_file_that_changed_while_it_was_decoded_is_refused(path: Path) -> None:
    """What was written to meanwhile is nobody's content; what was removed meanwhile was read to its end."""
    noted = source(path)
    check_not_replaced(str(path), noted)
    path.write_bytes(b"abcd")
    with pytest.raises(InputChanged, match=r"a\.wav"):
        check_not_replaced(str(path), noted)
    path.unlink()
    check_not_replaced(str(path), noted)


def test_a_file_that_we_may_not_read_says_why() -> None:
    """The system's reason is in the message, with the name."""
    error = unreadable("a.wav", PermissionError(13, "Permission denied"))
    assert (error.code, str(error)) == ("unreadable", "a.wav cannot be read: Permission denied")
