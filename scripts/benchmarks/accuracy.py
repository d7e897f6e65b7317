"""Word error rate of voicejobs against plain faster-whisper: same model, same options, same files, same run."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.recordings import SPEECH, stage
from benchmarks.report import finish, machine, print_table
from benchmarks.runs import run, voicejobs, voicejobs_environment
from benchmarks.score import UNSPACED_LANGUAGES, pooled_error_rate, read_manifest

from voicejobs.models.installed import resolve
from voicejobs.settings import Settings

MARGIN = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", type=Path, nargs="?", default=SPEECH, help="recordings with a manifest.jsonl")
    parser.add_argument("--model", default="base")
    parser.add_argument("--language", default="", help="only this one, en for example; by default all of the manifest")
    parser.add_argument("--cores", type=int, default=0, help="threads of faster-whisper; 0 takes all cores")


def main(arguments: argparse.Namespace) -> int:
    """Run both in each language, print the rates."""
    languages = sorted({row["language"] for row in read_manifest(arguments.folder).values() if row["text"]})
    if arguments.language:
        languages = [language for language in languages if language == arguments.language]
    if not languages:
        sys.exit(f"{arguments.folder}: no manifest.jsonl with texts in {arguments.language or 'any language'!r}")
    found = {language: _compare(arguments, language) for language in languages}
    rows = [("language", "files", "measure", "voicejobs", "faster-whisper", "limit", "holds", "wall s", "their wall s")]
    rows += [(language, *_cells(one)) for language, one in found.items()]
    print_table(rows)
    left_out = [name for one in found.values() for name in one["left_out"]]
    print(f"left out, since faster-whisper cannot open them: {', '.join(left_out) or 'none'}")
    holds = {
        f"{language}: pooled {one['measure']} at most that of faster-whisper + {MARGIN}": one["rate"] <= one["limit"]
        for language, one in found.items()
    }
    return finish("accuracy", {"model": arguments.model, "languages": found, "holds": holds}, arguments.json)


def _compare(arguments: argparse.Namespace, language: str) -> dict[str, Any]:
    """Run both systems over the recordings in one language."""
    threads = arguments.cores or machine()["cores"]
    model = str(resolve(arguments.model, Settings.from_env()).dir)
    with tempfile.TemporaryDirectory(prefix="vj-bench-") as name:
        work = Path(name)
        staged = stage(arguments.folder, language, work / "in")
        ours, theirs = work / "ours", work / "theirs"
        theirs.mkdir()
        options = ["-o", str(ours), "-m", arguments.model, "-l", language, "-f", "txt", "--no-progress"]
        our_run = run(
            voicejobs("transcribe", str(staged.folder), *options),
            work / "ours.log",
            environment=voicejobs_environment(work / "state"),
        )
        plain = [sys.executable, str(Path(__file__).with_name("plain.py")), model, str(theirs), language]
        their_run = run([*plain, str(threads), *map(str, staged.files)], work / "theirs.log")
        rate, their_rate = (pooled_error_rate(staged.references, folder, language) for folder in (ours, theirs))
    return {
        "files": len(staged.references),
        "left_out": staged.left_out,
        "measure": "CER" if language in UNSPACED_LANGUAGES else "WER",
        "rate": rate,
        "their_rate": their_rate,
        "limit": their_rate + MARGIN,
        "wall_s": our_run.wall_s,
        "their_wall_s": their_run.wall_s,
    }


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of one language."""
    return (
        str(one["files"]),
        one["measure"],
        *(f"{one[name]:.4f}" for name in ("rate", "their_rate", "limit")),
        "yes" if one["rate"] <= one["limit"] else "NO",
        *(f"{one[name]:.1f}" for name in ("wall_s", "their_wall_s")),
    )
