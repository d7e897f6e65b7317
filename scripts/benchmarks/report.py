"""What every benchmark prints: the machine, a table, and JSON in a file."""

import json
import os
import platform
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "voicejobs",
    "celery",
    "faster-whisper",
    "ctranslate2",
    "onnxruntime",
    "av",
    "grpcio",
    "whisper-ctranslate2",
)


def machine() -> dict[str, Any]:
    """Return what figures depend on: cores, memory, versions."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _first("/proc/cpuinfo", "model name"),
        "memory_gb": round(int(_first("/proc/meminfo", "MemTotal").split()[0]) / 1e6, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "date": time.strftime("%Y-%m-%d"),
    }


def _first(path: str, label: str) -> str:
    """Return the value of the first line `label : value` of a file of /proc."""
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == label:
            return value.strip()
    return "0"


def _version(name: str) -> str | None:
    """Return the version of a package, None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns; the first is the heading, numbers go right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def finish(name: str, result: dict[str, Any], target: Path | None) -> int:
    """Write the JSON, say where, and return the exit status: 1 where something that must hold does not."""
    path = target or Path("build", "bench", f"{name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"benchmark": name, "machine": machine(), **result}, indent=2) + "\n")
    for claim, holds in result.get("holds", {}).items():
        print(f"{'holds ' if holds else 'BROKEN'}  {claim}")
    print(f"JSON: {path}")
    return 0 if all(result.get("holds", {}).values()) else 1
