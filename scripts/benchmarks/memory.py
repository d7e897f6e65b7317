"""Memory of each kind of process over one long recording, sampled every second as proportional set size."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.recordings import write_long
from benchmarks.report import finish, print_table
from benchmarks.runs import Account, run, voicejobs, voicejobs_environment

PROCESS_LIMIT_MB = 300
TREE_LIMIT_MB = 1500
GROWTH_LIMIT = 1.1
ENGINES = {"engine", "vad"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--hours", type=float, nargs="+", default=[10.0, 1.0], help="lengths, one run each")
    parser.add_argument("--engine", choices=("whisper", "fake"), default="whisper")
    parser.add_argument("--model", default="base")


def main(arguments: argparse.Namespace) -> int:
    """Run each length, compare."""
    accounts: dict[float, Account] = {}
    for hours in sorted(arguments.hours):
        with tempfile.TemporaryDirectory(prefix="vj-bench-") as name:
            accounts[hours] = _run(hours, arguments, Path(name))
    rows = [("largest process, MB", *(f"{hours:g} h" for hours in accounts))]
    kinds = sorted({kind for account in accounts.values() for kind in account.kinds})
    rows += [
        (kind, *(f"{account.kind(kind, 'largest_pss_mb'):.0f}" for account in accounts.values())) for kind in kinds
    ]
    rows.append(("whole tree", *(f"{account.tree_peak_pss_mb:.0f}" for account in accounts.values())))
    rows.append(("wall s", *(f"{account.wall_s:.0f}" for account in accounts.values())))
    print_table(rows)
    return finish("memory", _result(arguments, accounts), arguments.json)


def _run(hours: float, arguments: argparse.Namespace, work: Path) -> Account:
    """Transcribe one recording of `hours`."""
    recording = work / "in" / "long.flac"
    recording.parent.mkdir()
    print(f"writing {hours:g} h", file=sys.stderr)
    write_long(recording, hours)
    options = [
        "-o",
        str(work / "out"),
        "-m",
        arguments.model,
        "-l",
        "en",
        "--engine",
        arguments.engine,
        "-f",
        "txt,json",
    ]
    return run(
        voicejobs("transcribe", str(recording), *options, "--no-progress"),
        work / "log",
        environment=voicejobs_environment(work / "state"),
        pss=True,
        interval_s=1.0,
    )


def _result(arguments: argparse.Namespace, accounts: dict[float, Account]) -> dict[str, Any]:
    """Return the JSON."""
    largest = max(
        account.kind(kind, "largest_pss_mb")
        for account in accounts.values()
        for kind in account.kinds
        if kind not in ENGINES
    )
    trees = [account.tree_peak_pss_mb for account in accounts.values()]
    holds = {
        f"no process but the engines above {PROCESS_LIMIT_MB} MB": largest <= PROCESS_LIMIT_MB,
        f"the whole tree at most {TREE_LIMIT_MB} MB": max(trees) <= TREE_LIMIT_MB,
    }
    if len(trees) > 1:
        holds["the longest recording takes at most 10 % more than the shortest"] = trees[-1] <= GROWTH_LIMIT * trees[0]
    return {
        "engine": arguments.engine,
        "model": arguments.model,
        "runs": {
            f"{hours:g} h": {
                "tree_peak_pss_mb": account.tree_peak_pss_mb,
                "kinds": account.kinds,
                "wall_s": account.wall_s,
                "cpu_s": account.cpu_s,
            }
            for hours, account in accounts.items()
        },
        "holds": holds,
    }
