"""`voicejobs transcribe`: files and folders in, transcripts out, through real workers."""

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import click

from voicejobs import queries
from voicejobs.cli.broker import require_answer
from voicejobs.cli.inputs import find_inputs, name_outputs, require_writable
from voicejobs.cli.main import EXIT_INTERRUPTED, complain
from voicejobs.cli.progress import Display, display
from voicejobs.cli.show import duration
from voicejobs.cli.store import opened
from voicejobs.embedded.stack import Stack
from voicejobs.engines.base import EngineSpec
from voicejobs.engines.registry import engine_class
from voicejobs.errors import BadOption
from voicejobs.formats import FORMATS
from voicejobs.models.pull import ensure
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.settings import Settings
from voicejobs.store.database import Database
from voicejobs.store.states import JobState
from voicejobs.submit import Accepted, InputFile, Submission, cancel_batch

EXIT_SOME_FAILED = 3
EXIT_NO_INPUT = 4
EXIT_ALL_FAILED = 8
EXIT_TERMINATED = 143

CHUNK_FILES = 200
FIRST_CHUNK_FILES = 16
CHUNK_BYTES = 200_000_000
POLL_S = 0.2
SLOW_POLL_S = 0.5
"""Time between two looks while many files are still to come."""
RECONCILE_EVERY_S = 5.0
CANCEL_WAIT_S = 5.0


class _Terminated(KeyboardInterrupt):
    """SIGTERM came."""


@dataclass(slots=True)
class _Tally:
    """Count what has become of the files of this run."""

    batches: set[str] = field(default_factory=set)
    expected: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    already: int = 0
    succeeded: int = 0
    failed: int = 0
    audio_s: float = 0.0
    cursor: float = 0.0
    reconciled: float = field(default_factory=time.monotonic)

    @property
    def is_complete(self) -> bool:
        """Tell whether every job has ended."""
        return len(self.seen) >= len(self.expected)

    @property
    def exit_code(self) -> int:
        """Return the exit code of docs/cli.md."""
        if not self.failed:
            return 0
        return EXIT_SOME_FAILED if self.succeeded or self.already else EXIT_ALL_FAILED


@click.command(
    epilog="\b\nExamples:\n  voicejobs transcribe interviews/ -o text/ -f txt,srt\n"
    "  voicejobs transcribe talk.mp3 -m base -l en --word-timestamps -f json",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@click.option(
    "-o", "--output-dir", default=".", show_default=True, type=click.Path(path_type=Path), help="Output folder."
)
@click.option("-m", "--model", default="base", show_default=True, help="Model of the catalogue; fetched where missing.")
@click.option(
    "-l", "--language", default=None, help="Language of the speech, e.g. en; told from the speech if left out."
)
@click.option(
    "-f", "--format", "formats", multiple=True, default=("txt",), show_default=True,
    help=f"Output formats: {', '.join(FORMATS)}, or all; repeat, or separate by commas.",
)  # fmt: skip
@click.option("--word-timestamps", is_flag=True, help="Give each word its times (in json).")
@click.option(
    "--channels", type=click.Choice(["mix", "split", "left", "right"]), default="mix", show_default=True,
    help="What to do with several channels; split recognises each and merges by time.",
)  # fmt: skip
@click.option("--task", type=click.Choice(["transcribe", "translate"]), default="transcribe", show_default=True,
              help="translate gives English text.")  # fmt: skip
@click.option("--beam-size", type=click.IntRange(1, 20), default=5, show_default=True, help="Beams of the search.")
@click.option("--engine", default="whisper", show_default=True, help="Engine that recognises.")
@click.option("--force", is_flag=True, help="Do again what is done, and replace files that are in the way.")
@click.option("--no-progress", is_flag=True, help="Show only failures and the summary.")
def transcribe(paths: tuple[str, ...], output_dir: Path, **options: Any) -> int:
    """Transcribe files and folders (searched to their leaves, the tree mirrored in the output folder).

    Run the same command again after any interruption: only what is missing is done.
    """
    formats = _formats(options["formats"])
    settings = Settings.from_env()
    found = find_inputs(paths)
    if not found:
        click.echo("error: no audio files were found there [no_input]", err=True)
        click.echo("  Name files, or folders that hold recordings.", err=True)
        return EXIT_NO_INPUT
    require_writable(output_dir)
    files = name_outputs(found, output_dir)
    with _interruptible():
        return _run(settings, files, _pipeline_options(settings, options, formats), options)


def _run(
    settings: Settings, files: Sequence[InputFile], options: dict[str, dict[str, Any]], flags: dict[str, Any]
) -> int:
    """Submit the files to a stack of our own or a running one, and follow them to their end."""
    began = time.monotonic()
    if settings.broker_url:  # workers would wait for it, since servers come back; a wrong address is worth a word
        require_answer(settings.broker_url)
    with Stack(settings) as stack, opened(settings) as database, display(quiet=flags["no_progress"]) as shown:
        shown.total(len(files))
        submission = Submission(database, TRANSCRIBE, options, label=_label(files), force=flags["force"])
        tally = _Tally()
        try:
            _submit(submission, files, tally, shown)
            while not tally.is_complete:
                stack.check()  # joins it first
                _look(database, tally, shown)
                time.sleep(POLL_S if len(tally.expected) - len(tally.seen) < CHUNK_FILES else SLOW_POLL_S)
            submission.settle()
        except KeyboardInterrupt as interrupt:
            _leave(database, submission)
            return EXIT_TERMINATED if isinstance(interrupt, _Terminated) else EXIT_INTERRUPTED
    _summarise(tally, time.monotonic() - began)
    return tally.exit_code


def _submit(submission: Submission, files: Sequence[InputFile], tally: _Tally, shown: Display) -> None:
    """Insert the jobs in chunks, and show in between what has ended already."""
    for chunk in _chunks(files):
        for one in submission.add(chunk):
            _note_accepted(one, tally)
        _look(submission.database, tally, shown)
    submission.seal()


def _chunks(files: Sequence[InputFile]) -> Iterator[list[InputFile]]:
    """Cut the files into chunks: a small one first, so that work begins at once, none with too much to hash."""
    chunk: list[InputFile] = []
    size = 0
    limit = FIRST_CHUNK_FILES
    for file in files:
        chunk.append(file)
        with contextlib.suppress(OSError):  # submission says what is wrong with it
            size += Path(file.path).stat().st_size
        if len(chunk) >= limit or size >= CHUNK_BYTES:
            yield chunk
            chunk, size, limit = [], 0, CHUNK_FILES
    if chunk:
        yield chunk


def _note_accepted(one: Accepted, tally: _Tally) -> None:
    """Count a file, and say at once what cannot be read."""
    if one.outcome == "refused" and one.error is not None:
        tally.failed += 1
        complain(one.error)
    elif one.outcome == "done":
        tally.already += 1
    else:
        tally.expected.add(one.job_id)
        tally.batches.add(one.batch_id)


def _look(database: Database, tally: _Tally, shown: Display) -> None:
    """Show what has ended since the last look, and what is at work."""
    if not tally.batches:
        return
    batch_ids = sorted(tally.batches)
    now = time.monotonic()
    since = tally.cursor
    if now - tally.reconciled > RECONCILE_EVERY_S and len(tally.expected) - len(tally.seen) <= CHUNK_FILES:
        since, tally.reconciled = 0.0, now
    for job in queries.finished_jobs(database, batch_ids, since, but=tally.seen):
        tally.cursor = max(tally.cursor, job.finished_at)
        if job.id not in tally.expected:
            continue
        tally.seen.add(job.id)
        tally.succeeded += job.state == JobState.SUCCEEDED
        tally.failed += job.state != JobState.SUCCEEDED
        tally.audio_s += job.audio_s or 0.0
        shown.finished(job)
    shown.active(queries.active_steps(database, batch_ids))


def _summarise(tally: _Tally, seconds: float) -> None:
    """Say how it went."""
    parts = [f"{tally.succeeded} transcribed"]
    if tally.already:
        parts.append(f"{tally.already} done before")
    if tally.failed:
        parts.append(f"{tally.failed} failed")
    speed = f", {tally.audio_s / seconds:.1f}x realtime" if tally.audio_s else ""
    click.echo(f"{', '.join(parts)}: {duration(tally.audio_s)} of audio in {seconds:.1f} s{speed}", err=True)


def _leave(database: Database, submission: Submission) -> None:
    """Cancel what has not been done and say how to go on; a second Ctrl-C leaves at once."""
    click.echo("\nStopping: what is being recognised is dropped, what is done stays.", err=True)
    if submission.batch_id:
        submission.seal()
        cancel_batch(database, submission.batch_id)
        deadline = time.monotonic() + CANCEL_WAIT_S
        while queries.live_count(database, submission.batch_id) and time.monotonic() < deadline:
            time.sleep(POLL_S)
    click.echo("Run the same command again to go on from here.", err=True)


def _label(files: Sequence[InputFile]) -> str:
    """Return a name for the batch."""
    return f"transcribe {len(files)} file{'s' if len(files) != 1 else ''}"


def _formats(given: Sequence[str]) -> list[str]:
    """Return the formats that the option names, each once.

    Raises:
        BadOption: there is no such format.
    """
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if "all" in names:
        return list(FORMATS)
    unknown = [name for name in names if name not in FORMATS]
    if unknown or not names:
        raise BadOption(
            f"There is no output format {unknown[0]!r}" if unknown else "No output format is named",
            hint=f"The formats are {', '.join(FORMATS)}, and all.",
        )
    return list(dict.fromkeys(names))


def _pipeline_options(settings: Settings, options: dict[str, Any], formats: list[str]) -> dict[str, dict[str, Any]]:
    """Return the full options of the pipeline; the model is fetched here if need be, and named by its hash."""
    model_sha256 = ""
    facts = engine_class(options["engine"]).facts(EngineSpec(options["engine"], options["model"]))
    if facts.kind != "recogniser":
        raise BadOption(f"The engine {options['engine']!r} does not recognise speech")
    if facts.needs_model:
        model_sha256 = ensure(options["model"], settings, _tell_pull).sha256
    return TRANSCRIBE.options(
        {
            "prepare": {"channels": options["channels"]},
            "recognise": {
                "engine": options["engine"],
                "model": options["model"] if facts.needs_model else "",
                "model_sha256": model_sha256,
                "language": options["language"],
                "task": options["task"],
                "word_timestamps": options["word_timestamps"],
                "beam_size": options["beam_size"],
            },
            "deliver": {"formats": formats},
        }
    )


_told: set[str] = set()


def _tell_pull(event: Any) -> None:
    """Say once what is being fetched."""
    if event.text not in _told:
        _told.add(event.text)
        click.echo(f"{event.model}: {event.text}", err=True)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn SIGTERM into an exception like that of Ctrl-C, for the time of the block."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
