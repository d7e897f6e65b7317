"""The scripts: what continuous integration runs is what a laptop runs."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHELL_SCRIPTS = [
    path
    for path in (*sorted((ROOT / "scripts").iterdir()), ROOT / ".ci" / "run")
    if path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/env bash\n")
]


@pytest.mark.parametrize("script", SHELL_SCRIPTS, ids=lambda path: path.name)
def test_shell_script_is_strict_and_runs_from_anywhere(script: Path) -> None:
    """Each is executable, parses, stops at the first error and finds the checkout by its own place."""
    text = script.read_text(encoding="utf-8")
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in text
    assert "BASH_SOURCE" in text
    assert "sudo" not in text
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_ci_runs_the_scripts_and_nothing_else() -> None:
    """`.ci/run` is `scripts/check` and `scripts/test` with CI=true, so that a laptop can do the same."""
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands[2:] == ["export CI=true", "scripts/check", "scripts/test"]


def test_install_refuses_what_is_no_list_of_extras(tmp_path: Path) -> None:
    """A mistyped argument is an error before anything is made."""
    done = subprocess.run(
        [ROOT / "scripts" / "install", "worker embedded"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "worker,embedded" in done.stderr
