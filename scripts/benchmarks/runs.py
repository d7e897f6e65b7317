"""Commands under watch, each voicejobs one with a state folder of its own."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voicejobs.settings import Settings, inherited_environment

WATCH = Path(__file__).with_name("watch.py")
LOG_TAIL = 3000


@dataclass(frozen=True)
class Account:
    """Hold what a run cost; see watch.py."""

    returncode: int
    wall_s: float
    cpu_s: float
    kinds: dict[str, dict[str, Any]]
    tree_peak_pss_mb: float
    killed_leftovers: int

    def kind(self, name: str, value: str) -> float:
        """Return a figure of one kind of process, 0 where there was none."""
        return float(self.kinds.get(name, {}).get(value, 0.0))


class RunFailedError(RuntimeError):
    """Say that a command under watch failed, with the end of its output."""


def run(
    command: list[str],
    log: Path,
    *,
    environment: dict[str, str] | None = None,
    pss: bool = False,
    interval_s: float = 0.5,
) -> Account:
    """Run a command, its output in `log`, and return what it cost.

    Raises:
        RunFailedError: it ended with another status than 0, or left processes that had to be killed.
    """
    result = log.with_suffix(".watch.json")
    watch = [sys.executable, str(WATCH), "--out", str(result), "--interval", str(interval_s)]
    with log.open("wb") as output:
        subprocess.run(
            [*watch, *(["--pss"] if pss else []), "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=inherited_environment() if environment is None else environment,
            check=True,
        )
    values = json.loads(result.read_text())
    values.pop("command")
    account = Account(**values)
    if account.returncode or account.killed_leftovers:
        tail = log.read_text(errors="replace")[-LOG_TAIL:]
        left = f", {account.killed_leftovers} processes had to be killed" if account.killed_leftovers else ""
        raise RunFailedError(f"{' '.join(command[:4])}... ended with {account.returncode}{left}:\n{tail}")
    return account


def voicejobs_environment(state: Path, **settings: str) -> dict[str, str]:
    """Return the environment of a voicejobs command with a private state folder and the user's models."""
    ours = {"VOICEJOBS_STATE_DIR": str(state), "VOICEJOBS_MODELS_DIR": str(Settings.from_env().models_dir)}
    return {**inherited_environment(), **ours, **settings}


def voicejobs(*arguments: str) -> list[str]:
    """Return the command line of the voicejobs that is installed beside this Python."""
    return [str(Path(sys.executable).with_name("voicejobs")), *arguments]
