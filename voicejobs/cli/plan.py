"""`--dry-run`: what would be done, for how long, without touching anything."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Self

import click

from voicejobs import queries
from voicejobs.cli.inputs import STDIN
from voicejobs.cli.outputs import formats_of, output_paths
from voicejobs.cli.progress import describe
from voicejobs.cli.report import DONE, FAILED, PLANNED, SKIPPED, FileReport, Snapshot, Summary, error_json
from voicejobs.cli.show import duration
from voicejobs.errors import VoicejobsError
from voicejobs.pipelines.pipeline import Pipeline
from voicejobs.queries import PastSpeed
from voicejobs.settings import Settings
from voicejobs.store import migrate
from voicejobs.store.database import Database
from voicejobs.store.paths import HASH8, display_name, encode_path
from voicejobs.submit import Accepted, InputFile, Submission

ASSUMED_SPEED = 5.0
"""Seconds of audio for each second of time, where this machine has not shown how fast it is."""
CHUNK_FILES = 200

Measure = Callable[[Settings, Sequence[InputFile]], Sequence[float | VoicejobsError | None]]
"""See `Errand.measure`."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Hold what a command would do with its files.

    Args:
        pipeline: what each file goes through.
        options: full options of the pipeline.
        formats: output formats.
        force: do again what is done.
        archived: SHA-256 of contents to leave out.
        pace: options by which earlier runs are compared in speed (`Errand.pace`).
        stdout: whether the output goes to standard output.
    """

    pipeline: Pipeline
    options: Mapping[str, Mapping[str, Any]]
    formats: Sequence[str]
    force: bool
    archived: frozenset[str]
    pace: Mapping[str, Any]
    stdout: bool = False


class PlanLines:
    """Print the plan on standard output: it is what was asked for."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        return

    def start(self, facts: Mapping[str, Any]) -> None:
        """Print nothing."""

    def file(self, report: FileReport) -> None:
        """Print what would become of a file."""
        if report.state == PLANNED:
            outputs = ", ".join(display_name(str(output.get("shown", ""))) for output in report.outputs)
            click.echo(f"plan    {report.name} ({duration(report.audio_s)}) -> {outputs}")
        else:
            label, color, text = describe(report)
            click.echo(f"{click.style(f'{label:7}', fg=color or None)} {text}")

    def progress(self, snapshot: Snapshot) -> None:
        """Print nothing."""

    def warn(self, code: str, message: str) -> None:
        """Print a warning."""
        click.echo(f"warning {display_name(message)} [{code}]")

    def fail(self, error: VoicejobsError) -> None:
        """Print nothing: the command itself says it."""

    def summary(self, summary: Summary) -> None:
        """Print how much it would be, and how long it might take."""
        if summary.plan is None:
            return
        plan = summary.plan
        counts = summary.counts
        parts = [f"{counts[PLANNED]} to {summary.command}"]
        words = ((DONE, "done before"), (SKIPPED, "skipped"), (FAILED, "would fail"))
        parts += [f"{counts[state]} {word}" for state, word in words if counts[state]]
        text = f"{', '.join(parts)}: {duration(plan['audio_s'])} of audio"
        if plan["unknown"]:
            text += f" and {plan['unknown']} of unknown length"
        if plan["eta_s"] is not None:
            text += f", about {duration(plan['eta_s'])} at {plan['speed']:.1f}x realtime ({_basis(plan)})"
        click.echo(text)


def _basis(plan: Mapping[str, Any]) -> str:
    """Say where the speed comes from."""
    if not plan["past_batches"]:
        return "assumed: nothing like it was done on this machine"
    runs = "run" if plan["past_batches"] == 1 else "runs"
    return f"as in {plan['past_batches']} earlier {runs}"


def make_plan(
    settings: Settings, files: Sequence[InputFile], wish: Wish, measure: Measure
) -> tuple[list[FileReport], dict[str, Any]]:
    """Return what would become of each file, and the sums of it all; nothing is written, fetched or worked on.

    Raises:
        VoicejobsError: the decoder cannot be started.
    """
    known = {one.file.path: one for one in _known(settings, files, wish)}
    fresh = [file for file in files if file.path not in known]
    lengths = dict(zip((file.path for file in fresh), measure(settings, fresh), strict=True))
    reports = [
        _settled(known[file.path]) if file.path in known else _planned(file, lengths[file.path], wish) for file in files
    ]
    planned = [one for one in reports if one.state == PLANNED]
    audio_s = sum(one.audio_s or 0.0 for one in planned)
    past = _past_speed(settings, wish)
    speed = past.speed if past else ASSUMED_SPEED
    sums = {
        "audio_s": round(audio_s, 3),
        "unknown": sum(one.audio_s is None for one in planned),
        "speed": round(speed, 3),
        "past_batches": past.batches if past else 0,
        "eta_s": round(audio_s / speed, 3) if audio_s else None,
    }
    return reports, sums


def _settled(one: Accepted) -> FileReport:
    """Return the report of a file on which nothing would be done."""
    name = display_name(one.file.name)
    if one.error is not None:
        return FileReport(name, FAILED, one.file.path, error=error_json(one.error))
    if one.outcome == "left_out":
        return FileReport(name, SKIPPED, one.file.path, reason="archived")
    return FileReport(name, DONE, one.file.path, one.job_id, outputs=one.outputs)


def _planned(file: InputFile, found: float | VoicejobsError | None, wish: Wish) -> FileReport:
    """Return the report of a file that would be transcribed, or fail."""
    name = display_name(file.name)
    path = file.path if file.path.startswith("/") else ""
    if isinstance(found, VoicejobsError):
        return FileReport(name, FAILED, path, error=error_json(found))
    outputs = []
    for form, target in zip(formats_of(file, wish.formats), output_paths(file, wish.formats), strict=True):
        place = target.replace(HASH8, "{hash8}")
        shown = "standard output" if wish.stdout else os.path.relpath(place)
        outputs.append({"format": form, "shown": display_name(shown), **({} if wish.stdout else encode_path(place))})
    return FileReport(name, PLANNED, path, audio_s=found, outputs=outputs)


def _known(settings: Settings, files: Sequence[InputFile], wish: Wish) -> Iterator[Accepted]:
    """Yield the files on which nothing would be done. Only those are read that may be among them."""
    database = readable(settings)
    if database is None:
        yield from _faulty(files)
        return
    submission = Submission(database, wish.pipeline, wish.options, force=wish.force, leave_out=wish.archived)
    with closing(database):
        for first in range(0, len(files), CHUNK_FILES):
            chunk = files[first : first + CHUNK_FILES]
            done = queries.succeeded_targets(database, [display_name(file.target) for file in chunk])
            yield from _faulty(chunk)
            candidates = [
                file
                for file in chunk
                if file.error is None
                and file.path != STDIN
                and (wish.archived or HASH8 in file.target or (display_name(file.target) in done and not wish.force))
            ]
            yield from (one for one in submission.preview(candidates) if one.outcome in {"done", "left_out"})


def _faulty(files: Sequence[InputFile]) -> Iterator[Accepted]:
    """Yield the files that were found with an error."""
    yield from (Accepted(file, "refused", error=file.error) for file in files if file.error is not None)


def readable(settings: Settings) -> Database | None:
    """Return the embedded database where it is there and ours to read: a server would be the network."""
    if settings.database_url or not (settings.state_dir / "voicejobs.db").is_file():
        return None
    database = Database(settings.effective_database_url, pool_size=1)
    try:
        migrate.check(database)
    except VoicejobsError:
        database.close()
        return None
    return database


def _past_speed(settings: Settings, wish: Wish) -> PastSpeed | None:
    """Return how fast this machine was with the same model."""
    database = readable(settings)
    if database is None:
        return None
    with closing(database):
        return queries.past_speed(database, wish.pace)
