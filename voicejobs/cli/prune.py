"""`voicejobs prune`: remove what is past its time."""

import re
from dataclasses import asdict
from typing import Any

import click

from voicejobs.cli.globals import current, current_settings
from voicejobs.cli.show import print_json
from voicejobs.cli.spelling import Command
from voicejobs.cli.store import opened
from voicejobs.store.blobs import BlobStore
from voicejobs.store.prune import Rules
from voicejobs.store.prune import prune as remove

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.IGNORECASE)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


class Age(click.ParamType[float]):
    """Read an age such as 30d, 12h or 2w, in seconds."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        if isinstance(value, float):
            return value
        match = _AGE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no age: write a number and s, m, h, d or w, such as 30d.", param, ctx)
        return float(match[1]) * _SECONDS[match[2].lower()]


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  voicejobs prune --older-than 30d --dry-run\n"
    "  voicejobs prune --older-than 2w --keep-failed",
)
@click.option("--older-than", type=Age(), default="30d", show_default=True, metavar="AGE",
              help="Remove jobs that ended longer ago than this: 12h, 30d, 2w.")  # fmt: skip
@click.option("--keep-failed", is_flag=True, help="Keep failed jobs, however old.")
@click.option("-n", "--dry-run", is_flag=True, help="Tell what would be removed, and remove nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def prune(older_than: float, keep_failed: bool, dry_run: bool, as_json: bool) -> None:
    """Remove old jobs with their transcripts.

    Output files stay. What a live job still needs stays too, and running work is not disturbed. A recording whose job
    was removed is recognised again if it is submitted again.
    """
    settings = current_settings()
    with opened(settings) as database:
        done = remove(database, BlobStore(settings.blobs_dir), Rules(older_than, keep_failed, dry_run))
    if as_json:
        print_json("pruned", {**asdict(done), "dry_run": dry_run})
    elif not current().quiet:
        word = "would be removed" if dry_run else "removed"
        click.echo(
            f"{done.jobs} jobs, {done.batches} batches and {done.blobs} blobs "
            f"({done.blob_bytes / 1e6:.1f} MB) {word}; {done.kept} jobs kept, which others need"
        )
