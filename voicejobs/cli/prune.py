"""`voicejobs prune`: remove what is past its time."""

from dataclasses import asdict

import click

from voicejobs.cli.durations import Duration
from voicejobs.cli.globals import current, current_settings
from voicejobs.cli.show import print_json
from voicejobs.cli.spelling import Command
from voicejobs.cli.store import opened
from voicejobs.store.prune import Rules
from voicejobs.store.prune import prune as remove
from voicejobs.store.remote_blobs import blob_store


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  voicejobs prune --older-than 30d --dry-run\n"
    "  voicejobs prune --older-than 2w --keep-failed",
)
@click.option("--older-than", type=Duration("age"), default="30d", show_default=True, metavar="AGE",
              help="Remove jobs that ended longer ago than this: 12h, 30d, 2w.")  # fmt: skip
@click.option("--keep-failed", is_flag=True, help="Keep failed jobs, however old.")
@click.option("-n", "--dry-run", is_flag=True, help="Tell what would be removed, and remove nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def prune(older_than: float, keep_failed: bool, dry_run: bool, as_json: bool) -> None:
    """Remove old jobs with their transcripts, and uploads that nobody needs.

    Output files stay. What a live job still needs stays too, and running work is not disturbed. A recording whose job
    was removed is recognised again if it is submitted again.
    """
    settings = current_settings()
    with opened(settings) as database:
        done = remove(database, blob_store(settings), Rules(older_than, keep_failed, dry_run))
    if as_json:
        print_json("pruned", {**asdict(done), "dry_run": dry_run})
    elif not current().quiet:
        word = "would be removed" if dry_run else "removed"
        click.echo(
            f"{done.jobs} jobs, {done.batches} batches and {done.blobs} blobs "
            f"({done.blob_bytes / 1e6:.1f} MB) {word}; {done.kept} jobs kept, which others need"
        )
        if of_service := [
            f"{number} {name}"
            for name in ("files", "uploads", "events", "deliveries", "keys")
            if (number := getattr(done, name))
        ]:
            click.echo(f"Of the service: {', '.join(of_service)} {word}")
