"""`voicejobs models`: list the catalogue, pull weights, choose a revision, verify what is on this machine."""

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

from voicejobs.cli.completers import complete_models
from voicejobs.cli.globals import current, current_settings
from voicejobs.cli.show import print_json, print_table
from voicejobs.cli.spelling import Group
from voicejobs.errors import ModelCorrupt, ModelUnavailable, VoicejobsError
from voicejobs.models.catalogue import CATALOGUE, SHORT_REVISION, ModelEntry, revisions
from voicejobs.models.installed import chosen, folder_of, state, use, verify
from voicejobs.models.parts import Progress, PullEvent
from voicejobs.models.pull import pull
from voicejobs.settings import Settings

EXIT_SOME_FAILED = 3
EXIT_PROBLEMS_FOUND = 9
PLAIN_INTERVAL_S = 10.0


@click.group(
    cls=Group,
    help=(
        "List, pull, choose and verify model weights.\n\n\b\nExamples:\n  voicejobs models list\n"
        "  voicejobs models pull base\n  voicejobs models use base@ebe41f70d5b6\n  voicejobs models verify"
    ),
)
def models() -> None:
    """Model weights."""


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_models(as_json: bool) -> None:
    """Show the catalogue.

    Models in all their revisions, what of them is on this machine, and which revision is in use.
    """
    settings = current_settings()
    entries = _all_entries()
    if as_json:
        print_json("models", [_to_json(entry, settings) for entry in entries])
        return
    rows = [
        (
            entry.name,
            entry.revision[:SHORT_REVISION],
            entry.engine,
            f"{entry.bytes / 1e6:.0f}",
            state(entry, settings),
            "yes" if chosen(entry.name, settings) == entry else "-",
            entry.licence,
            entry.note,
        )
        for entry in entries
    ]
    print_table(("NAME", "REVISION", "ENGINE", "MB", "STATE", "IN USE", "LICENCE", "NOTE"), rows)
    click.echo(f"Folder: {settings.models_dir}")


@models.command("use")
@click.argument("name", metavar="NAME[@REVISION]", shell_complete=complete_models)
def use_model(name: str) -> None:
    """Choose the revision of a model.

    The plain name means it from then on; without a revision, the default one again.
    Revisions lie side by side: to roll back, use the older one.
    """
    settings = current_settings()
    entry = use(name, settings)
    click.echo(f"{entry.name}: revision {entry.revision} is in use, model hash {entry.sha256}")


def _all_entries() -> list[ModelEntry]:
    """Return every revision of every model."""
    return [entry for name in CATALOGUE for entry in revisions(name)]


@models.command("pull")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_models)
@click.option(
    "--from",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with the files, asked before all other sources; they are hashed like any other.",
)
@click.option("--no-progress", is_flag=True, help="Say only how it ended.")
def pull_models(names: tuple[str, ...], folder: Path | None, no_progress: bool) -> None:
    """Fetch and verify models.

    What is here already costs nothing.
    """
    settings = current_settings()
    entries = [chosen(name, settings) for name in dict.fromkeys(names)]
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
@click.argument("names", metavar="[NAME...]", nargs=-1, shell_complete=complete_models)
def verify_models(names: tuple[str, ...]) -> None:
    """Hash every file again.

    Without names, those of each model that is on this machine.

    Exits with 9 where a model is damaged or, if named, missing.
    """
    settings = current_settings()
    entries = [chosen(name, settings) for name in dict.fromkeys(names)]
    if not names:
        entries = [entry for entry in _all_entries() if state(entry, settings) != "missing"]
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
        "in_use": chosen(entry.name, settings) == entry,
        "dir": str(folder_of(entry, settings)),
        "note": entry.note,
        "files": [{"name": file.name, "sha256": file.sha256, "bytes": file.bytes} for file in entry.files],
    }


def _complain(entry: ModelEntry, error: VoicejobsError) -> None:
    click.echo(f"{entry.name}: {error.message} [{error.code}]", err=True)
    if error.hint:
        click.echo(f"  {error.hint}", err=True)


@contextmanager
def _showing(*, quiet: bool) -> Iterator[Progress]:
    """Give a callback that shows a pull on standard error: a bar on a terminal, else plain lines."""
    if quiet or current().quiet:
        yield lambda event: None
    elif sys.stderr.isatty() and current().live:
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
