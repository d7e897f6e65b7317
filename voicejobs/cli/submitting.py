"""One run of `voicejobs submit`: stream a manifest into the database, and say what became of its lines."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any, BinaryIO, TypeVar

import click

from voicejobs.cli.follow import Following
from voicejobs.cli.globals import current, current_settings
from voicejobs.cli.naming import Places
from voicejobs.cli.recognition_options import option_warnings, pipeline_options
from voicejobs.cli.show import print_json
from voicejobs.cli.store import opened
from voicejobs.cli.subtitle_options import render_flags
from voicejobs.errors import BadOption, NotFound, Unreadable
from voicejobs.formats import chosen
from voicejobs.manifest import Line, read_manifest
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.settings import Settings
from voicejobs.store.database import Database
from voicejobs.store.paths import display_name
from voicejobs.submit_manifest import Item, ManifestSubmission, Wish

T = TypeVar("T")

EXIT_SOME_REFUSED = 3
EXIT_NO_INPUT = 4
EXIT_ALL_REFUSED = 8
STDIN = "-"
FIRST_CHUNK_LINES = 100
"""Small, so that work begins while further lines are being read."""
CHUNK_LINES = 5000
"""On a busy machine each word with the server costs more than the rows that it is about."""
SQLITE_CHUNK_LINES = 1000
"""Nobody else writes to SQLite meanwhile."""
MAX_TENANT_CHARS = 64
OUTCOMES = ("submitted", "known", "done", "refused")


def run(manifest: str, flags: dict[str, Any]) -> int:
    """Do what the command line says, and return the exit code of docs/cli.md.

    Raises:
        VoicejobsError: the whole run ended with it; chunks before it are submitted.
    """
    settings = current_settings()
    wish = _wish(settings, manifest, flags)
    with _stream(manifest) as stream, opened(settings) as database:
        submission = ManifestSubmission(database, wish)
        _submit(submission, stream)
        if not submission.counts:
            click.echo("error: the manifest has no line [no_input]", err=True)
            click.echo("  Write one line for each recording.", err=True)
            return EXIT_NO_INPUT
        _tell(submission, as_json=flags["as_json"], wait=flags["wait"])
        if flags["wait"]:
            return _follow(settings, database, submission, as_json=flags["as_json"])
    refused = submission.counts["refused"]
    if not refused:
        return 0
    return EXIT_SOME_REFUSED if refused < submission.counts.total() else EXIT_ALL_REFUSED


def _submit(submission: ManifestSubmission, stream: BinaryIO) -> None:
    """Submit the lines chunk by chunk; no more than a few chunks of the manifest are in memory."""

    def chunks() -> Iterator[list[Item]]:
        lines = read_manifest(stream)
        limit = FIRST_CHUNK_LINES
        while chunk := list(islice(lines, limit)):
            yield submission.prepare(chunk)
            limit = SQLITE_CHUNK_LINES if submission.database.is_sqlite else CHUNK_LINES

    for items in one_ahead(chunks()):
        submission.add(items)
    submission.seal()


def one_ahead(source: Iterable[T]) -> Iterator[T]:
    """Yield what `source` yields; a thread makes the next one while the last one is used.

    An error of the source is raised where it came: after all that was yielded before it.
    """
    made: SimpleQueue[tuple[T] | BaseException | None] = SimpleQueue()
    room = Semaphore(1)
    ended = False

    def make() -> None:
        try:
            for one in source:
                made.put((one,))
                room.acquire()
                if ended:
                    return
            made.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again by who waits for it
            made.put(error)

    # A daemon: it may wait for standard input when nobody wants its lines any more.
    Thread(target=make, name="manifest", daemon=True).start()
    try:
        while (one := made.get()) is not None:
            if isinstance(one, BaseException):
                raise one
            yield one[0]
            room.release()
    finally:
        ended = True
        room.release()


def _follow(settings: Settings, database: Database, submission: ManifestSubmission, *, as_json: bool) -> int:
    """Follow the batch to its end."""
    batch_ids = sorted(name for name, is_live in submission.batch_ids.items() if is_live)
    if not batch_ids:
        return 0
    return Following(settings, database, batch_ids, as_json=as_json).run(f"batch show {batch_ids[0]}")


def _tell(submission: ManifestSubmission, *, as_json: bool, wait: bool) -> None:
    """Print the id of the batch, and what became of the lines."""
    batch_ids = [submission.batch_id] if submission.batch_id else sorted(submission.batch_ids)
    counts = {name: submission.counts[name] for name in OUTCOMES}
    if as_json and not wait:
        print_json("submission", {"batches": batch_ids, "lines": submission.counts.total(), **counts})
    elif not as_json:
        click.echo("\n".join(batch_ids))
    if not as_json and not current().quiet:
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        click.echo(f"{submission.counts.total()} lines: {told}", err=True)
        if not wait and submission.counts["submitted"]:
            click.echo("Workers take them as they have room; `voicejobs batch watch BATCH` follows them.", err=True)


@contextmanager
def _stream(manifest: str) -> Iterator[BinaryIO]:
    """Open the manifest.

    Raises:
        NotFound, Unreadable: as their names say.
        BadOption: standard input is a terminal.
    """
    if manifest == STDIN:
        if sys.stdin is None or sys.stdin.isatty():
            raise BadOption("Standard input is a terminal", hint="`-` reads a manifest from a pipe.")
        # Not `sys.stdin`, and never closed: a thread may still wait for its lines when an error ends the command.
        yield os.fdopen(sys.stdin.fileno(), "rb", closefd=False)
        return
    try:
        stream = Path(manifest).open("rb")  # noqa: SIM115 - closed below; only its opening is ours to explain
    except FileNotFoundError:
        raise NotFound(f"{display_name(manifest)} is not there") from None
    except OSError as error:
        raise Unreadable(f"{display_name(manifest)} cannot be read: {error.strerror}") from error
    with stream:
        yield stream


def _wish(settings: Settings, manifest: str, flags: dict[str, Any]) -> Wish:
    """Return what is to be done with every line.

    Raises:
        BadOption: options do not go together.
        UnknownModel, ModelUnavailable: there is no such model, or it cannot be fetched.
    """
    formats = list(chosen(flags["formats"]))
    for warning in option_warnings(flags):
        click.echo(f"warning: {warning}", err=True)
    tenant = flags["tenant"]
    if not tenant or len(tenant) > MAX_TENANT_CHARS or not tenant.isprintable():
        raise BadOption(f"--tenant {tenant!r} is no name", hint=f"Take 1 to {MAX_TENANT_CHARS} printable characters.")
    places = Places.below(flags["output_dir"], formats)

    def place(line: Line) -> str:
        return places.named(line.target) if line.target else places.of(line.name or line.path)

    return Wish(
        TRANSCRIBE,
        _options(settings, flags, formats),
        place,
        label=flags["label"] or f"submit {'standard input' if manifest == STDIN else display_name(manifest)}",
        lane=flags["lane"],
        tenant=tenant,
        force=flags["force"],
        max_queued_jobs=settings.max_queued_jobs,
        expires_after_s=flags["expires_after"],
    )


def _options(settings: Settings, flags: Mapping[str, Any], formats: list[str]) -> dict[str, dict[str, Any]]:
    """Return the full options of the pipeline; the model is fetched where this machine has the workers."""
    told: set[str] = set()

    def tell(event: Any) -> None:
        if event.text not in told and not current().quiet:
            told.add(event.text)
            click.echo(f"{event.model}: {event.text}", err=True)

    prepare, recognise = pipeline_options(settings, flags, formats, tell, fetch=settings.local_workers)
    deliver = {"formats": formats, "render": render_flags(flags)}
    return TRANSCRIBE.options({"prepare": prepare, "recognise": recognise, "deliver": deliver})
