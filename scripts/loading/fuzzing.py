"""What `scripts/fuzz` does: a service, a key, schemathesis, and a look at what it has really asked."""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.belongings import OTHERS, give
from tests.servers.api import ApiServer
from voicejobs.store.blobs import BlobStore

ROOT = Path(__file__).resolve().parents[2]
REPORTS = ROOT / "build" / "fuzz"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "ignored_auth",
)
PHASES = "examples,coverage,fuzzing,stateful"
REQUEST_TIMEOUT_S = 20
OFTEN = 0.6
"""How often a parameter names something that is there."""
SELF_HARM = ("revoke_key",)
"""Operations that would take the key away that asks, after which every answer is 401; tests ask them."""
SETTINGS = {
    "api_requests_per_minute": 0,
    "api_concurrency": 0,
    "api_body_wait_s": 5,
    "api_sync_wait_s": 5,
    "api_aliases": "whisper-1=fake,tts-1=fake_voice",
    "engine_processes": 1,
    "offline": 1,
    "linger_s": 0.2,
}


def run(arguments: argparse.Namespace) -> int:
    """Run schemathesis on a service of its own and return the exit status."""
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir(parents=True)
    with (
        tempfile.TemporaryDirectory(prefix="vj-fuzz-", ignore_cleanup_errors=True) as name,
        ApiServer(Path(name), "", "--grace", "1", **SETTINGS) as server,
    ):
        key = server.key("fuzz")
        ids = give(server.database, BlobStore(server.folder / "state" / "blobs"), "fuzz")
        (Path(name) / "schemathesis.toml").write_text(configuration(ids), encoding="utf-8")
        status = subprocess.run(command(arguments, server.url, key), check=False, cwd=name).returncode
        with server.client(key) as client:
            alive = client.get("/api/v1/limits").status_code
        shutil.copy(server.log_path, REPORTS / "api.log")
    if not (REPORTS / "run.ndjson").exists():
        print("schemathesis did not run", file=sys.stderr)
        return 1
    asked = answers(REPORTS / "run.ndjson")
    statuses = Counter(status for _, status in asked.elements())
    print(f"{asked.total()} answers: " + ", ".join(f"{count} {code}" for code, count in sorted(statuses.items())))
    if alive != 200 or not statuses.get(200):  # noqa: PLR2004 - the status itself
        print(f"the service answers {alive} in the end, and has answered 200 {statuses.get(200, 0)} times")
        return 1
    return int(status != 0)


def configuration(ids: dict[str, str]) -> str:
    """Return a file that lets schemathesis name things that are there, more often than chance would.

    Args:
        ids: one of each thing, by the name that paths use.
    """
    words = {f"path.{name}": [one] for name, one in {**OTHERS, **ids}.items()}
    words |= {
        "body.source.file_id": [ids["file_id"]],
        "body.input_file_id": [ids["file_id"]],
        "body.pipeline": ["transcribe", "speak"],
        "body.engine": ["fake", "fake_voice"],
        "body.model": ["whisper-1", "tts-1", "fake", "fake_voice"],
        "body.voice": ["alloy", "tone"],
        "body.purpose": ["user_data", "batch"],
        "body.endpoint": ["/v1/audio/speech", "/v1/audio/transcriptions"],
        "query.after": [*ids.values()],
    }
    lines = []
    for number, values in enumerate(words.values()):
        lines.append(f"[dictionaries.words{number}]\nvalues = {json.dumps(values)}\n")
    lines.append("[parameters]")
    for number, place in enumerate(words):
        lines.append(f'"{place}" = {{ dictionary = "words{number}", probability = {OFTEN} }}')
    return "\n".join(lines) + "\n"


def command(arguments: argparse.Namespace, url: str, key: str) -> list[str]:
    """Return the command line of schemathesis."""
    words = [
        str(Path(sys.executable).with_name("schemathesis")),
        *("run", f"{url}/openapi.json", "--header", f"Authorization: Bearer {key}"),
        *("--checks", ",".join(CHECKS), "--phases", PHASES, "--max-time", str(max(int(arguments.minutes * 60), 1))),
        *("--request-timeout", str(REQUEST_TIMEOUT_S), "--workers", str(arguments.workers)),
        *("--continue-on-failure", "--no-color", "--suppress-health-check", "all", "--warnings", "off"),
        *("--output-truncate", "true"),
        *("--report", "ndjson", "--report-ndjson-path", str(REPORTS / "run.ndjson")),
    ]
    for operation in SELF_HARM:
        words += ["--exclude-operation-id", operation]
    if arguments.only:
        words += ["--include-path-regex", arguments.only]
    if arguments.steady:
        words += ["--generation-deterministic", "--no-shrink"]
    else:
        words += ["--generation-database", "none"]
    if arguments.seed is not None:
        words += ["--seed", str(arguments.seed)]
    return words


def answers(report: Path) -> Counter[tuple[str, int]]:
    """Return how often each operation answered with each status, as the report of a run tells."""
    found: Counter[tuple[str, int]] = Counter()
    with report.open(encoding="utf-8") as lines:
        for line in lines:
            for label, status in _statuses(json.loads(line)):
                found[label, status] += 1
    return found


def _statuses(value: Any, label: str = "") -> list[tuple[str, int]]:
    """Return the statuses that an event of the report holds, whatever it is nested in."""
    if isinstance(value, list):
        return [found for one in value for found in _statuses(one, label)]
    if not isinstance(value, dict):
        return []
    label = str(value.get("label") or value.get("operation") or label)
    found = [(label, int(value["status_code"]))] if isinstance(value.get("status_code"), int) else []
    return found + [one for child in value.values() for one in _statuses(child, label)]
