"""`voicejobs batch`: list batches, and show one."""

import click

from voicejobs import queries
from voicejobs.cli.show import counts, duration, print_json, print_table, when
from voicejobs.cli.store import opened
from voicejobs.settings import Settings


@click.group()
def batch() -> None:
    """List batches, and show one."""


@batch.command("list")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_batches(limit: int, as_json: bool) -> None:
    """List batches, newest first."""
    with opened(Settings.from_env()) as database:
        found = queries.list_batches(database, limit=limit)
    if as_json:
        print_json("batches", found)
        return
    rows = [(one["id"], one["state"], when(one["created_at"]), counts(one["jobs"]), one["label"]) for one in found]
    print_table(("BATCH", "STATE", "CREATED", "JOBS", "LABEL"), rows)


@batch.command("show")
@click.argument("batch_id", metavar="BATCH")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show_batch(batch_id: str, as_json: bool) -> None:
    """Show a batch: how its jobs stand, and which failed and why."""
    with opened(Settings.from_env()) as database:
        found = queries.show_batch(database, batch_id)
    if as_json:
        print_json("batch", found)
        return
    click.echo(f"{found['id']}  {found['state']}  {found['label']}")
    click.echo(f"  created   {when(found['created_at'])}   finished {when(found['finished_at'])}")
    click.echo(f"  jobs      {counts(found['jobs'])}")
    click.echo(f"  audio     {duration(found['audio_s'])} done")
    for failure in found["failures"]:
        click.echo(f"  failed    {failure['name']}: {failure['error']['message']} [{failure['error_code']}]")
        click.echo(f"            {failure['error']['hint']}  (voicejobs job show {failure['id']})")
