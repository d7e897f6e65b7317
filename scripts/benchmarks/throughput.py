"""Time to transcribe a folder: voicejobs, plain faster-whisper, whisper-ctranslate2; in turns, start-up included."""

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.recordings import Staged, stage
from benchmarks.report import finish, machine, print_table
from benchmarks.runs import Account, run, voicejobs, voicejobs_environment
from benchmarks.score import pooled_error_rate

from voicejobs.models.installed import resolve
from voicejobs.settings import Settings

OURS = "voicejobs"
RIVAL = Path(sys.executable).with_name("whisper-ctranslate2")
BATCHED = ("--batched", "True", "--batch_size", "8")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", type=Path)
    parser.add_argument("--language", default="en", help="empty lets every system tell")
    parser.add_argument("--model", default="base")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="systems to run, by the start of their names, with commas")


def main(arguments: argparse.Namespace) -> int:
    """Run all systems in turns and print the medians."""
    model = str(resolve(arguments.model, Settings.from_env()).dir)
    with tempfile.TemporaryDirectory(prefix="vj-bench-") as name:
        work = Path(name)
        staged = stage(arguments.folder, arguments.language, work / "in")
        systems = _systems(staged, arguments, model, machine()["cores"])
        figures: dict[str, list[Account]] = {system: [] for system in systems}
        rates: dict[str, list[float]] = {system: [] for system in systems}
        for number in range(arguments.runs):
            order = list(systems)
            for system in order[number % len(order) :] + order[: number % len(order)]:
                folder = work / "run"
                folder.mkdir()
                (folder / "out").mkdir()
                account = systems[system](folder)
                figures[system].append(account)
                rates[system].append(pooled_error_rate(staged.references, folder / "out", arguments.language))
                print(f"run {number + 1}: {system}: {account.wall_s:.1f} s", file=sys.stderr)
                shutil.rmtree(folder)
    return _report(arguments, staged, figures, rates)


def _systems(
    staged: Staged, arguments: argparse.Namespace, model: str, cores: int
) -> dict[str, Callable[[Path], Account]]:
    """Return what to run, by name: functions of a fresh folder that holds an empty folder `out`."""
    files, language = [str(path) for path in staged.files], arguments.language

    def ours(folder: Path) -> Account:
        options = ["-o", str(folder / "out"), "-m", arguments.model, "-f", "txt", "--no-progress"]
        command = voicejobs("transcribe", str(staged.folder), *options, *(["-l", language] if language else []))
        return run(command, folder / "log", environment=voicejobs_environment(folder / "state"))

    def plain(folder: Path) -> Account:
        script = str(Path(__file__).with_name("plain.py"))
        return run([sys.executable, script, model, str(folder / "out"), language, str(cores), *files], folder / "log")

    def rival(*more: str) -> Callable[[Path], Account]:
        options = ["--model_directory", model, "--compute_type", "int8", "--device", "cpu", "--threads", str(cores)]
        options += ["--output_format", "txt", *more, *(["--language", language] if language else [])]
        return lambda folder: run([str(RIVAL), *options, "--output_dir", str(folder / "out"), *files], folder / "log")

    systems: dict[str, Callable[[Path], Account]] = {OURS: ours, "faster-whisper": plain}
    if RIVAL.exists():
        systems |= {"whisper-ctranslate2": rival(), "whisper-ctranslate2 batched": rival(*BATCHED)}
    else:
        print("whisper-ctranslate2 is not installed and left out: pip install whisper-ctranslate2", file=sys.stderr)
    wanted = tuple(filter(None, arguments.only.split(",")))
    return {name: system for name, system in systems.items() if not wanted or name.startswith(wanted)}


def _report(
    arguments: argparse.Namespace,
    staged: Staged,
    figures: dict[str, list[Account]],
    rates: dict[str, list[float]],
) -> int:
    """Print the table and write the JSON."""
    medians = {system: statistics.median(account.wall_s for account in runs) for system, runs in figures.items()}
    rows = [("system", "median s", "min s", "max s", "CPU s", "WER")]
    systems: dict[str, Any] = {}
    for system, runs in figures.items():
        walls = [account.wall_s for account in runs]
        cpu, rate = statistics.median(account.cpu_s for account in runs), statistics.median(rates[system])
        shown = f"{rate:.4f}" if staged.references else "-"
        rows.append((system, f"{medians[system]:.1f}", f"{min(walls):.1f}", f"{max(walls):.1f}", f"{cpu:.1f}", shown))
        systems[system] = {"wall_s": walls, "cpu_s": cpu, "wer": rate if staged.references else None}
    print_table(rows)
    print(f"{len(staged.files)} files; left out: {', '.join(staged.left_out) or 'none'}")
    result: dict[str, Any] = {
        "model": arguments.model,
        "language": arguments.language,
        "files": len(staged.files),
        "left_out": staged.left_out,
        "systems": systems,
    }
    others = {system: wall for system, wall in medians.items() if system != OURS}
    if OURS in medians and others:
        best = min(others, key=lambda system: others[system])
        result["holds"] = {f"not slower than the best of the others ({best})": medians[OURS] <= others[best]}
        print(f"{OURS} takes {medians[OURS] / others[best]:.2f} of the time of {best}")
    return finish("throughput", result, arguments.json)
