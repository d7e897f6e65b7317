"""The service is asked what its description allows, and what it does not."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MINUTES = 1.0


@pytest.mark.timeout(300)
def test_no_server_error_and_no_undocumented_answer() -> None:
    """A bounded run of schemathesis over both surfaces, with a key and without, finds nothing."""
    pytest.importorskip("schemathesis")
    command = [sys.executable, str(ROOT / "scripts" / "fuzz"), "--minutes", str(MINUTES), "--steady"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
