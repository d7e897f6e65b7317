"""What commands do where their output cannot be written, or not in every letter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")


def voicejobs(tmp_path: Path, *words: str, stdout: int, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process of its own, whose streams are those of the operating system."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "voicejobs.cli.main", *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "VOICEJOBS_STATE_DIR": str(tmp_path / "state"), **environment},
        check=False,
    )


@pytest.mark.skipif(not FULL.exists(), reason="there is no device here that is always full")
def test_a_full_disk_behind_the_output_is_no_fault_of_ours(tmp_path: Path) -> None:
    """The command ends with 5, as with every other full disk, and says so once."""
    with FULL.open("wb") as full:
        done = voicejobs(tmp_path, "version", stdout=full.fileno())
    assert (done.returncode, done.stderr.count(b"error:")) == (5, 1), done.stderr
    assert b"[disk_full]" in done.stderr


def test_a_terminal_that_cannot_spell_a_name_shows_escapes(tmp_path: Path) -> None:
    """Letters that its encoding lacks end no command."""
    name = "t\u00e4lk \U0001f3a4.wav"
    done = voicejobs(tmp_path, "transcribe", name, stdout=subprocess.PIPE, PYTHONIOENCODING="latin-1:strict")
    assert (done.returncode, b"[not_found]" in done.stderr) == (7, True), done.stderr
    assert b"t\xe4lk \\U0001f3a4.wav" in done.stderr


def test_a_name_from_elsewhere_needs_no_locale(tmp_path: Path) -> None:
    """What a service calls a file is shown also where the file system would not take such a name."""
    program = r"from voicejobs.store.paths import display_name; print(ascii(display_name('t\xe4lk\n \U0001f3a4')))"
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **plain},
        check=True,
    )
    assert done.stdout.strip() == ascii("t\u00e4lk\\n \U0001f3a4")
