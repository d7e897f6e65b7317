"""`voicejobs batch`: list, show, watch, cancel, retry and export batches."""

from pathlib import Path
from typing import Any

import click

from voicejobs import control, queries
from voicejobs.cli import option_types, remote_records
from voicejobs.cli.completers import complete_batches, complete_formats
from voicejobs.cli.export import Exported, Wish, export_batch
from voicejobs.cli.follow import Following
from voicejobs.cli.globals import current, current_settings
from voicejobs.cli.job import after_retry
from voicejobs.cli.main import complain
from voicejobs.cli.remote import remote_settings, server_option
from voicejobs.cli.remote_download import Download, download_batch
from voicejobs.cli.show import counts, duration, print_json, print_table, when
from voicejobs.cli.spelling import Group
from voicejobs.cli.store import opened
from voicejobs.cli.subtitle_options import render_flags, subtitle_options
from voicejobs.client.service import Service
from voicejobs.errors import BadOption
from voicejobs.formats import chosen
from voicejobs.store.paths import display_name
from voicejobs.store.states import BatchState, JobState
from voicejobs.submit import cancel_batch

EXIT_SOME_FAILED = 3
EXIT_NO_INPUT = 4
EXIT_ALL_FAILED = 8


@click.group(
    cls=Group,
    help=(
        "List, show, watch, cancel, retry, export and download batches.\n\n\b\nExamples:\n  voicejobs batch list\n"
        "  voicejobs batch retry-failed BATCH --wait\n  voicejobs batch export BATCH -f srt,vtt -o subtitles/"
    ),
)
def batch() -> None:
    """Batches: the jobs that one command submitted."""


@batch.command("list")
@click.option("--state", type=click.Choice([state.value for state in BatchState]), help="Only batches in this state.")
@click.option("--after", metavar="BATCH", help="Go on after this batch, the last one of a page.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@server_option
def list_batches(state: str | None, after: str | None, limit: int, as_json: bool, server: str | None) -> None:
    """List batches, newest first."""
    if (remote := remote_settings(current_settings(), server)) is not None:
        remote_records.list_batches(remote, state=state, after=after, limit=limit, as_json=as_json)
        return
    with opened(current_settings()) as database:
        found = queries.list_batches(database, limit, state=state, after=after or "")
    if as_json:
        print_json("batches", found)
        return
    rows = [(one["id"], one["state"], when(one["created_at"]), counts(one["jobs"]), one["label"]) for one in found]
    print_table(("BATCH", "STATE", "CREATED", "JOBS", "LABEL"), rows)
    if len(found) == limit and not current().quiet:
        click.echo(f"More: --after {found[-1]['id']}", err=True)


@batch.command("show")
@click.argument("batch_id", metavar="BATCH", shell_complete=complete_batches)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@server_option
def show_batch(batch_id: str, as_json: bool, server: str | None) -> None:
    """Show how a batch stands.

    How many of its jobs are in which state, and which failed and why.
    """
    if (remote := remote_settings(current_settings(), server)) is not None:
        remote_records.show_batch(remote, batch_id, as_json=as_json)
        return
    with opened(current_settings()) as database:
        found = queries.show_batch(database, batch_id)
    if as_json:
        print_json("batch", found)
        return
    click.echo(f"{found['id']}  {found['state']}  {display_name(found['label'])}")
    click.echo(f"  created   {when(found['created_at'])}   finished {when(found['finished_at'])}")
    click.echo(f"  jobs      {counts(found['jobs'])}")
    click.echo(f"  audio     {duration(found['audio_s'])} done")
    for failure in found["failures"]:
        click.echo(f"  failed    {failure['name']}: {failure['error']['message']} [{failure['error_code']}]")
        click.echo(f"            {failure['error']['hint']}  (voicejobs job show {failure['id']})")


@batch.command("watch")
@click.argument("batch_id", metavar="BATCH", shell_complete=complete_batches)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@server_option
def watch_batch(batch_id: str, as_json: bool, server: str | None) -> int:
    """Follow a batch to its end.

    Workers are started where none run; Ctrl-C leaves the batch alone.
    Exits like `transcribe`: 0 where all jobs succeeded, 3 where some failed, 8 where all did.
    """
    if (remote := remote_settings(current_settings(), server)) is not None:
        return remote_records.watch_batch(remote, batch_id, as_json=as_json)
    with opened(current_settings()) as database:
        queries.show_batch_row(database, batch_id)
        return Following(current_settings(), database, [batch_id], as_json=as_json).run(f"batch show {batch_id}")


@batch.command("cancel")
@click.argument("batch_id", metavar="BATCH", shell_complete=complete_batches)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@server_option
def cancel(batch_id: str, as_json: bool, server: str | None) -> None:
    """Cancel what is not finished.

    What is done stays.
    """
    if (remote := remote_settings(current_settings(), server)) is not None:
        remote_records.cancel_batch(remote, batch_id, as_json=as_json)
        return
    with opened(current_settings()) as database:
        count = cancel_batch(database, batch_id)
    if as_json:
        print_json("cancelled", count)
    elif not current().quiet:
        click.echo(f"{count} cancelled")


@batch.command("retry-failed")
@click.argument("batch_id", metavar="BATCH", shell_complete=complete_batches)
@click.option("--cancelled", is_flag=True, help="Take up cancelled and expired jobs too.")
@click.option("--wait", is_flag=True, help="Start workers where none run, and follow the jobs to their end.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document; with --wait, one object a line.")
@server_option
def retry_failed(batch_id: str, cancelled: bool, wait: bool, as_json: bool, server: str | None) -> int:
    """Take failed jobs up again.

    What has run stays where it can serve again.
    """
    if (remote := remote_settings(current_settings(), server)) is not None:
        if cancelled:
            raise BadOption("--cancelled looks into the database", hint="`voicejobs job retry` takes single jobs up.")
        return remote_records.retry_batch(remote, batch_id, wait=wait, as_json=as_json)
    states = [JobState.FAILED, *((JobState.CANCELLED, JobState.EXPIRED) if cancelled else ())]
    with opened(current_settings()) as database:
        outcome = control.retry_batch(database, batch_id, states)
        return after_retry(database, outcome, wait=wait, as_json=as_json)


@batch.command("export")
@click.argument("batch_id", metavar="BATCH", shell_complete=complete_batches)
@click.option(
    "-f", "--format", "formats", multiple=True, default=("txt",), show_default=True, shell_complete=complete_formats,
    help="Output formats, or all; repeat, or separate by commas.",
)  # fmt: skip
@click.option(
    "-o", "--output-dir", default=".", show_default=True, type=option_types.OutputFolder(), help="Output folder."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@subtitle_options
def export(batch_id: str, formats: tuple[str, ...], output_dir: Path, as_json: bool, **flags: Any) -> int:
    """Write transcripts from the database.

    Nothing is recognised again, no file is replaced.
    """
    return _export(batch_id, Wish(formats, output_dir, render_flags(flags)), as_json=as_json)


@batch.command("download")
@click.argument("batch_id", metavar="BATCH", shell_complete=complete_batches)
@click.option(
    "-f",
    "--format",
    "formats",
    multiple=True,
    default=("txt",),
    show_default=True,
    shell_complete=complete_formats,
    help="Output formats, or all; repeat, or separate by commas.",
)
@click.option(
    "-o", "--output-dir", default=".", show_default=True, type=option_types.OutputFolder(), help="Output folder."
)
@click.option("--force", is_flag=True, help="Replace files that are in the way.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@subtitle_options
@server_option
def download(batch_id: str, server: str | None, **flags: Any) -> int:
    """Fetch the transcripts, and the sound, of a batch.

    The tree of the inputs is mirrored; without a service it is `batch export`.
    """
    formats, folder, render = flags["formats"], flags["output_dir"], render_flags(flags)
    if (remote := remote_settings(current_settings(), server)) is not None:
        with Service(remote) as service:
            wish = Download(chosen(formats), folder, render, flags["force"])
            return download_batch(service, batch_id, wish, as_json=flags["as_json"])
    return _export(batch_id, Wish(formats, folder, render, flags["force"]), as_json=flags["as_json"])


def _export(batch_id: str, wish: Wish, *, as_json: bool) -> int:
    """Write transcripts from the database, and return the exit code."""
    settings = current_settings()
    with opened(settings) as database:
        outcome = export_batch(database, settings, batch_id, wish)
    for error in outcome.errors:
        complain(error)
    if as_json:
        print_json("files", outcome.files)
    elif not current().quiet:
        click.echo(f"{len(outcome.files)} files written to {wish.folder}, {outcome.same} there already", err=True)
        if not outcome.transcripts and not outcome.errors:
            hint = f"The batch has no transcript: `voicejobs batch show {batch_id}` tells why."
            click.echo(f"  {hint}", err=True)
    return _exit_code(outcome)


def _exit_code(outcome: Exported) -> int:
    """Return the exit code of an export."""
    if not outcome.errors:
        return 0 if outcome.transcripts else EXIT_NO_INPUT
    return EXIT_SOME_FAILED if outcome.files or outcome.same else EXIT_ALL_FAILED
