"""Find the lines of the log files that tell of a job."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SHOWN = ("time", "level", "event", "logger", "job_id", "trace_id", "traceback")


def lines_of(logs_dir: Path, job_id: str) -> list[dict[str, Any]]:
    """Return what the log files of this machine, older generations too, say of a job, in the order of time."""
    found = [line for path in sorted(logs_dir.glob("*.log*")) for line in _matching(path, job_id)]
    return sorted(found, key=lambda line: str(line.get("time", "")))


def _matching(path: Path, job_id: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of one file that carry the id."""
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            for text in stream:
                # Most lines are of other jobs: parsing begins where the id stands at all.
                if job_id not in text:
                    continue
                line = _parsed(text)
                if line.get("job_id") == job_id or job_id in str(line.get("step_run_id", "")):
                    yield line
    except OSError:
        return


def _parsed(text: str) -> dict[str, Any]:
    """Return a line as an object; an empty one where it is no JSON (a library wrote it, or a crash cut it off)."""
    try:
        line = json.loads(text)
    except ValueError:
        return {}
    return line if isinstance(line, dict) else {}


def as_text(line: dict[str, Any]) -> str:
    """Return a line for people."""
    rest = " ".join(f"{name}={value}" for name, value in line.items() if name not in _SHOWN)
    text = f"{line.get('time', '-')}  {line.get('level', '-'):7}  {line.get('event', '')}  {rest}".rstrip()
    trace = str(line.get("traceback", "")).strip()
    return f"{text}\n    " + trace.replace("\n", "\n    ") if trace else text
