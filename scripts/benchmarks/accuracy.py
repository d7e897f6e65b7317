"""Word error rate of voicejobs against plain faster-whisper: same model, same options, same files, same run."""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.recordings import SPEECH, stage
from benchmarks.report import finish, machine, print_table
from benchmarks.runs import run, voicejobs, voicejobs_environment
from benchmarks.score import pooled_error_rate

from voicejobs.models.installed import resolve
from voicejobs.settings import Settings

MARGIN = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", type=Path, nargs="?", default=SPEECH, help="recordings with a manifest.jsonl")
    parser.add_argument("--model", default="base")
    parser.add_argument("--language", default="en")
    parser.add_argument("--cores", type=int, default=0, help="threads of faster-whisper; 0 takes all cores")


def main(arguments: argparse.Namespace) -> int:
    """Run both, print the rates."""
    threads = arguments.cores or machine()["cores"]
    model = str(resolve(arguments.model, Settings.from_env()).dir)
    with tempfile.TemporaryDirectory(prefix="vj-bench-") as name:
        work = Path(name)
        staged = stage(arguments.folder, arguments.language, work / "in")
        if not staged.references:
            sys.exit(f"{arguments.folder}: no manifest.jsonl with texts in {arguments.language!r}")
        ours, theirs = work / "ours", work / "theirs"
        theirs.mkdir()
        options = ["-o", str(ours), "-m", arguments.model, "-l", arguments.language, "-f", "txt", "--no-progress"]
        our_run = run(
            voicejobs("transcribe", str(staged.folder), *options),
            work / "ours.log",
            environment=voicejobs_environment(work / "state"),
        )
        plain = [sys.executable, str(Path(__file__).with_name("plain.py")), model, str(theirs), arguments.language]
        their_run = run([*plain, str(threads), *map(str, staged.files)], work / "theirs.log")
        rates = {
            "voicejobs": pooled_error_rate(staged.references, ours, arguments.language),
            "faster-whisper": pooled_error_rate(staged.references, theirs, arguments.language),
        }
    walls = {"voicejobs": our_run.wall_s, "faster-whisper": their_run.wall_s}
    print_table([("system", "WER", "wall s"), *((name, f"{rates[name]:.4f}", f"{walls[name]:.1f}") for name in rates)])
    print(f"{len(staged.references)} files; left out: {', '.join(staged.left_out) or 'none'}")
    claim = f"pooled WER at most that of faster-whisper + {MARGIN}"
    result = {
        "model": arguments.model,
        "language": arguments.language,
        "files": len(staged.references),
        "left_out": staged.left_out,
        "wer": rates,
        "wall_s": walls,
        "holds": {claim: rates["voicejobs"] <= rates["faster-whisper"] + MARGIN},
    }
    return finish("accuracy", result, arguments.json)
