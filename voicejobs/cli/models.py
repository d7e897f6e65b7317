"""`voicejobs models`: list the catalogue, pull weights, verify what is on this machine."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
from rich.progress import Progress as Bar

from voicejobs.errors import ModelCorrupt, ModelUnavailable, VoicejobsError
from voicejobs.models.catalogue import CATALOGUE, ModelEntry, find
from voicejobs.models.installed import folder_of, state, verify
from voicejobs.models.parts import Progress, PullEvent
from voicejobs.models.pull import pull
from voicejobs.settings import Settings

EXIT_SOME_FAILED = 3
EXIT_PROBLEMS_FOUND = 9
PLAIN_INTERVAL_S = 10.0


@click.group(
    epilog="\b\nExamples:\n  voicejobs models list\n  voicejobs models pull base\n  voicejobs models verify",
)
def models() -> None:
    """List, pull and verify model weights."""


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_models(as_json: bool) -> None:
    """Show the catalogue, and what of it is on this machine."""
    settings = Settings.from_env()
    if as_json:
        click.echo(json.dumps({"v": 1, "models": [_to_json(entry, settings) for entry in CATALOGUE.values()]}))
        return
    rows = [("NAME", "ENGINE", "MB", "STATE", "LICENCE", "NOTE")]
    rows += [
        (entry.name, entry.engine, f"{entry.bytes / 1e6:.0f}", state(entry, settings), entry.licence, entry.note)
        for entry in CATALOGUE.values()
    ]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    click.echo(f"Folder: {settings.models_dir}")


@models.command("pull")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--from",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with the files, asked before all other sources; they are hashed like any other.",
)
@click.option("--no-progress", is_flag=True, help="Say only how it ended.")
def pull_models(names: tuple[str, ...], folder: Path | None, no_progress: bool) -> None:
    """Fetch models and verify every file; what is here already costs nothing."""
    settings = Settings.from_env()
    entries = [find(name) for name in dict.fromkeys(names)]
    failures: list[VoicejobsError] = []
    for entry in entries:
        try:
            with _showing(quiet=no_progress) as progress:
                files = pull(entry, settings, progress, folder=folder)
            click.echo(f"{entry.name}: verified in {files.dir}")
        except VoicejobsError as error:
            failures.append(error)
            if len(entries) > 1:
                _complain(entry, error)
    if len(failures) == len(entries):
        raise failures[0]
    if failures:
        sys.exit(EXIT_SOME_FAILED)


@models.command("verify")
@click.argument("names", metavar="[NAME...]", nargs=-1)
def verify_models(names: tuple[str, ...]) -> None:
    """Hash every file again; without names, of each model that is on this machine.

    Exits with 9 where a model is damaged or, if named, missing.
    """
    settings = Settings.from_env()
    entries = [find(name) for name in dict.fromkeys(names)]
    if not names:
        entries = [entry for entry in CATALOGUE.values() if state(entry, settings) != "missing"]
    failed = False
    for entry in entries:
        try:
            files = verify(entry, settings)
            click.echo(f"{entry.name}: ok, {len(entry.files)} files, model hash {files.sha256}")
        except (ModelCorrupt, ModelUnavailable) as error:
            failed = True
            _complain(entry, error)
    if not entries:
        click.echo(f"No models in {settings.models_dir}.")
    if failed:
        sys.exit(EXIT_PROBLEMS_FOUND)


def _to_json(entry: ModelEntry, settings: Settings) -> dict[str, object]:
    """Return what `models list --json` says of one model."""
    return {
        "name": entry.name,
        "engine": entry.engine,
        "revision": entry.revision,
        "licence": entry.licence,
        "origin": entry.origin,
        "bytes": entry.bytes,
        "sha256": entry.sha256,
        "state": state(entry, settings),
        "dir": str(folder_of(entry, settings)),
        "note": entry.note,
        "files": [{"name": file.name, "sha256": file.sha256, "bytes": file.bytes} for file in entry.files],
    }


def _complain(entry: ModelEntry, error: VoicejobsError) -> None:
    click.echo(f"{entry.name}: {error.message}", err=True)
    if error.hint:
        click.echo(f"  {error.hint}", err=True)


@contextmanager
def _showing(*, quiet: bool) -> Iterator[Progress]:
    """Give a callback that shows a pull on standard error: a bar on a terminal, else plain lines."""
    if quiet:
        yield lambda event: None
    elif sys.stderr.isatty():
        with _bar() as progress:
            yield progress
    else:
        yield _plain_lines()


def _plain_lines() -> Progress:
    """Write a line for each new thing that happens, and one every ten seconds while it lasts."""
    last_text, last_time = "", 0.0

    def show(event: PullEvent) -> None:
        nonlocal last_text, last_time
        now = time.monotonic()
        if event.text == last_text and now - last_time < PLAIN_INTERVAL_S:
            return
        last_text, last_time = event.text, now
        size = event.total or event.done
        amount = f" ({size / 1e6:.1f} MB)" if size else ""
        click.echo(f"{event.model}: {event.text}{amount}", err=True)

    return show


@contextmanager
def _bar() -> Iterator[Progress]:
    """Show a bar that vanishes at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        text = ""

        def show(event: PullEvent) -> None:
            nonlocal text
            if event.text != text:
                text = event.text
                bar.reset(task, description=escape(f"{event.model}: {text}"), total=event.total or None)
            bar.update(task, completed=event.done, total=event.total or None)

        yield show
