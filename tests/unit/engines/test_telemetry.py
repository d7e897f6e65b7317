"""No library of an engine tells its maker anything."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("onnxruntime") is None, reason="onnxruntime is not installed")
SUPPRESSED_BY = ("CI", "TF_BUILD", "GITHUB_ACTIONS")
"""Variables by which onnxruntime knows a machine of tests, where it is silent anyway."""


def files_after(words: str, home: Path) -> list[str]:
    """Return the names of the files that a process leaves in its home."""
    kept = {name: value for name, value in os.environ.items() if name not in SUPPRESSED_BY and "ORT_" not in name}
    kept = {name: value for name, value in kept.items() if not name.startswith("XDG_")}
    subprocess.run([sys.executable, "-P", "-c", words], env={**kept, "HOME": str(home)}, check=True)
    return [path.name for path in home.rglob("*") if path.is_file()]


def test_onnxruntime_keeps_silent(tmp_path: Path) -> None:
    """Where an engine was imported before it, it makes no number for this machine, and no store of events to send."""
    assert files_after("import voicejobs.engines.silero, onnxruntime", tmp_path) == []


def test_whoever_wants_it_is_not_overruled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable keeps the value that the environment gives it."""
    from voicejobs.settings import forbid_telemetry

    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    forbid_telemetry()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "0"
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY")
    forbid_telemetry()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
