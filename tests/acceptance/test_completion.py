"""Completion in real shells."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import rows
from tests.acceptance.harness import COMMAND
from voicejobs.store import migrate
from voicejobs.store.database import Database

pytestmark = pytest.mark.timeout(120)

ASK = """
eval "$(voicejobs completion bash)"
for line in "${LINES_TO_COMPLETE[@]}"; do
    COMP_WORDS=($line)
    [[ $line == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _voicejobs_completion voicejobs 2>/dev/null
    echo "$line|${COMPREPLY[*]}"
done
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home folder whose state folder holds one job."""
    folder = tmp_path_factory.mktemp("home")
    database = Database(f"sqlite:///{folder / 'state' / 'voicejobs.db'}")
    try:
        migrate.upgrade(database)
        batch = rows.add_batch(database)
        (folder / "ids").write_text(f"{rows.add_job(database, batch)} {batch}")
    finally:
        database.close()
    return folder


def environment(home: Path) -> dict[str, str]:
    """Return an environment that finds our command and the state folder."""
    path = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "HOME": str(home), "VOICEJOBS_STATE_DIR": str(home / "state"), "PATH": path}


def in_bash(home: Path, lines: list[str]) -> dict[str, list[str]]:
    """Return what bash offers after each line."""
    quoted = " ".join(f"'{line}'" for line in lines)
    script = f"LINES_TO_COMPLETE=({quoted})\n{ASK}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, env=environment(home), check=True
    )
    offered = (line.split("|") for line in done.stdout.splitlines())
    return {line: words.split() for line, words in offered}


def test_bash_completes_commands_options_and_values(home: Path) -> None:
    """Commands, options, names of models, formats, languages, states, and ids that exist."""
    job, batch = (home / "ids").read_text().split()
    expected = {
        "voicejobs tran": ["transcribe"],
        "voicejobs job re": ["retry"],
        "voicejobs batch retry-failed --can": ["--cancelled"],
        "voicejobs transcribe --beam": ["--beam-size"],
        "voicejobs transcribe -m bas": ["base"],
        "voicejobs transcribe -f txt,sr": ["txt,srt"],
        "voicejobs transcribe -l germ": ["german"],
        "voicejobs batch export -f sr": ["srt"],
        "voicejobs job list --state fa": ["failed"],
        "voicejobs job show ": [job],
        "voicejobs job cancel job_": [job],
        "voicejobs batch watch ": [batch],
        "voicejobs models use base@": ["base@ebe41f70d5b6"],
        "voicejobs --color al": ["always"],
    }
    assert in_bash(home, list(expected)) == expected
    assert {"transcribe", "job", "batch", "config"} <= set(in_bash(home, ["voicejobs "])["voicejobs "])


def test_completing_makes_no_database(tmp_path: Path) -> None:
    """Looking for ids where nothing was ever done leaves nothing behind."""
    assert in_bash(tmp_path, ["voicejobs job show "]) == {"voicejobs job show ": []}
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_takes_its_script(shell: str, home: Path) -> None:
    """The script is printed for each shell; those that are installed find no fault with it."""
    done = subprocess.run(
        [COMMAND, "completion", shell], capture_output=True, text=True, env=environment(home), check=True
    )
    assert "_VOICEJOBS_COMPLETE" in done.stdout
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its script was printed and not tried")
    subprocess.run([shell, "-n", "/dev/stdin"], input=done.stdout, text=True, check=True)


def test_fish_completes(home: Path) -> None:
    """Fish asks us and shows the command with its help."""
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    script = "voicejobs completion fish | source; complete -C 'voicejobs tran'"
    done = subprocess.run(["fish", "-c", script], capture_output=True, text=True, env=environment(home), check=True)
    assert done.stdout.split()[0] == "transcribe"
