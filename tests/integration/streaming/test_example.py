"""The example of the page about streaming."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    """What docs/streaming.md shows runs as it stands, and its last line tells of the end."""
    pytest.importorskip("onnxruntime", reason="the extra `worker` is not installed")
    page = (ROOT / "docs" / "streaming.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(f"if __name__ == '__main__':\n{re.sub('^', '    ', code, flags=re.MULTILINE)}\n", "utf-8")
    done = subprocess.run([sys.executable, script], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("SpeechStarted(segment_id=1")
    assert any("kind='final'" in line for line in lines)
    assert lines[-1].startswith("End(duration_s=6.1")
