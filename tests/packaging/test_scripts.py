"""The scripts: what continuous integration runs is what a laptop runs."""

import os
import shutil
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
    assert "BASH_SOURCE" in text or script.name == "install_redis_server"  # touches nothing of the checkout
    assert "sudo" not in text
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_ci_runs_the_scripts_and_nothing_else() -> None:
    """`.ci/run` brings a Redis, then is `scripts/check` and `scripts/test` with CI=true: a laptop can do the same."""
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands[2:] == ["scripts/install_redis_server", "export CI=true", "scripts/check", "scripts/test"]


@pytest.mark.parametrize(("user", "works"), [(0, True), (0, False), (1000, True)])
def test_redis_is_installed_where_it_can_be_and_never_fails_the_run(tmp_path: Path, user: int, *, works: bool) -> None:
    """Root asks apt once, or after an update once more; an ordinary user never does; the exit status is 0."""
    tools = {
        "id": f"echo {user}",
        "apt-get": f"echo $1 $DEBIAN_FRONTEND >>{tmp_path}/asked; exit {0 if works else 100}",
        "timeout": 'shift; exec "$@"',
    }
    for name in ("bash", "mktemp", "rm", "tail", "sh", "chmod"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    for name, text in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    script = ROOT / "scripts" / "install_redis_server"
    done = subprocess.run(["bash", script], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    asked = tmp_path / "asked"
    told = asked.read_text().splitlines() if asked.exists() else []
    assert told == [f"{word} noninteractive" for word in (["install"] if works else ["install", "update"]) if user == 0]
    assert ("Valkey alone" in done.stderr) == (not works)


def test_install_refuses_what_is_no_list_of_extras(tmp_path: Path) -> None:
    """A mistyped argument is an error before anything is made."""
    done = subprocess.run(
        [ROOT / "scripts" / "install", "worker embedded"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "worker,embedded" in done.stderr
