"""People's view of a run, on standard error: bars on a terminal that can be redrawn, else plain lines."""

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import click

from voicejobs.cli.globals import Globals
from voicejobs.cli.inputs import REASONS
from voicejobs.cli.report import (
    CANCELLED,
    DONE,
    FAILED,
    NO_SPEECH,
    SKIPPED,
    SUCCEEDED,
    ActiveFile,
    FileReport,
    Reporter,
    Snapshot,
    Summary,
)
from voicejobs.cli.show import duration
from voicejobs.errors import VoicejobsError
from voicejobs.store.paths import display_name

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID
    from rich.text import Text

LINE_EVERY_S = 10.0
REDRAWS_PER_S = 8
_LABELS = {SUCCEEDED: ("done", "green"), DONE: ("as is", ""), FAILED: ("failed", "red"), SKIPPED: ("skipped", "yellow")}
_WARNINGS = {
    NO_SPEECH: "no speech in it",
    "clip_past_end": "a clip begins after its end",
    "damaged_passages": "damaged passages left out",
    "does_not_fit": "longer than its times allow",
    "not_spoken": "letters that the voice does not know left out",
    "not_understood": "not all of it was understood",
}
_IN_SUMMARY = {NO_SPEECH: "no speech"}
_LABEL_WIDTH = 8
_DONE_WORDS = {"transcribe": "transcribed", "speak": "spoken", "retell": "retold"}


def human_view(settings: Globals, *, no_progress: bool) -> Reporter:
    """Return what suits standard error and the global options."""
    if settings.quiet:
        return Failures(settings)
    if no_progress:
        return Plain(settings)
    return Bars(settings) if settings.live and sys.stderr.isatty() else Lines(settings)


def describe(report: FileReport) -> tuple[str, str, str]:
    """Return label, colour and text of the line about a file; every name in it is fit for a terminal."""
    label, color = _LABELS.get(report.state, (report.state, ""))
    text = report.name
    if report.state == SUCCEEDED:
        text += f" ({', '.join([duration(report.audio_s), *(_WARNINGS.get(code, code) for code in report.warnings)])})"
    if report.reason:
        text += f": {REASONS.get(report.reason, report.reason)}"
    if report.error is not None:
        error = {name: display_name(str(report.error[name])) for name in ("message", "code", "hint")}
        hint = f"\n{'':{_LABEL_WIDTH}}{error['hint']}" if error["hint"] else ""
        text += f": {error['message']} [{error['code']}]{hint}"
    return label, color, text


def summary_line(summary: Summary) -> str:
    """Return how it went, in one line."""
    counts = summary.counts
    parts = [f"{counts[SUCCEEDED]} {_DONE_WORDS[summary.command]}"]
    words = ((DONE, "done before"), (SKIPPED, "skipped"), (FAILED, "failed"), (CANCELLED, "not done"))
    parts += [f"{counts[state]} {word}" for state, word in words if counts[state]]
    text = f"{', '.join(parts)}: {duration(summary.audio_s)} of audio in {summary.elapsed_s:.1f} s"
    if summary.speed:
        text += f", {summary.speed:.1f}x realtime"
    if summary.outputs and summary.output_dir != "-":
        files = "file" if summary.outputs == 1 else "files"
        text += f"; {summary.outputs} {files} in {display_name(summary.output_dir)}"
    for code, count in sorted(summary.warned.items()):
        text += f"; {_IN_SUMMARY.get(code) or _WARNINGS.get(code, code)} in {count}"
    return text


class Failures:
    """Show nothing but failures: `--quiet`."""

    def __init__(self, settings: Globals) -> None:
        self._settings = settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        return

    def start(self, facts: Mapping[str, Any]) -> None:
        """Show nothing."""

    def file(self, report: FileReport) -> None:
        """Show a failure."""
        if report.state == FAILED:
            self.show(*describe(report))

    def progress(self, snapshot: Snapshot) -> None:
        """Show nothing."""

    def warn(self, code: str, message: str) -> None:
        """Show nothing."""

    def fail(self, error: VoicejobsError) -> None:
        """Show nothing: the command itself says it."""

    def summary(self, summary: Summary) -> None:
        """Show nothing."""

    def show(self, label: str, color: str, text: str) -> None:
        """Write a line with a coloured label; the label itself says what the colour says."""
        click.echo(f"{click.style(f'{label:{_LABEL_WIDTH - 1}}', fg=color or None)} {text}", err=True)


class Plain(Failures):
    """Show failures, warnings and the summary: `--no-progress`."""

    def file(self, report: FileReport) -> None:
        """Show a failure, or what was skipped for a reason that may surprise."""
        if report.state == FAILED or (report.state == SKIPPED and (self._settings.verbose or _surprises(report))):
            self.show(*describe(report))

    def warn(self, code: str, message: str) -> None:
        """Show a warning."""
        self.show("warning", "yellow", f"{display_name(message)} [{code}]")

    def summary(self, summary: Summary) -> None:
        """Show how it went; after an error that ended the whole run people have read what there is to say."""
        if summary.ended not in {"error", "no_input"}:
            click.echo(summary_line(summary), err=True)


class Lines(Plain):
    """Write one line for each ended file, and now and then one about the whole."""

    def __init__(self, settings: Globals) -> None:
        super().__init__(settings)
        self._last = time.monotonic()

    def start(self, facts: Mapping[str, Any]) -> None:
        """Say what is going to be done, where more is to be said."""
        if self._settings.verbose:
            self._start(facts)

    def _start(self, facts: Mapping[str, Any]) -> None:
        """Say what is going to be done."""
        model = f"{facts['engine']} {facts['model']}".strip()
        files = "1 file" if facts["files"] == 1 else f"{facts['files']} files"
        click.echo(f"{files}, {model}, {', '.join(facts['formats'])} to {display_name(facts['output_dir'])}", err=True)
        if self._settings.verbose > 1:
            click.echo(f"options: {facts['options']}", err=True)

    def file(self, report: FileReport) -> None:
        """Write the file's line."""
        if report.state in {SUCCEEDED, FAILED}:
            self._last = time.monotonic()
            self.show(*describe(report))
        elif report.state in {SKIPPED, DONE} and (self._settings.verbose or _surprises(report)):
            self.show(*describe(report))

    def progress(self, snapshot: Snapshot) -> None:
        """Write a line where none was written for a while."""
        now = time.monotonic()
        if now - self._last < LINE_EVERY_S:
            return
        self._last = now
        at_work = ", ".join(f"{one.name} {one.step} {_part(one)}".rstrip() for one in snapshot.active[:2])
        click.echo(f"{whole(snapshot)}; {at_work or 'starting'}", err=True)


class Bars(Lines):
    """Show a bar for the whole, weighted by seconds of audio, and a row for each file at work."""

    def __init__(self, settings: Globals) -> None:
        super().__init__(settings)
        from rich.console import Console  # noqa: PLC0415 - only on a terminal
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415
        from rich.table import Column  # noqa: PLC0415

        # A row never wraps, however narrow the terminal becomes: the name gives way first.
        self._bars: RichProgress = Progress(
            TextColumn(
                "{task.description}", markup=False, table_column=Column(ratio=2, no_wrap=True, overflow="ellipsis")
            ),
            BarColumn(bar_width=None, table_column=Column(ratio=1, no_wrap=True)),
            TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
            console=Console(stderr=True, no_color=settings.color is False, highlight=False),
            transient=True,
            expand=True,
            refresh_per_second=REDRAWS_PER_S,
        )
        self._whole = self._bars.add_task("files", total=None, note="starting")
        self._rows: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._bars.stop()

    def show(self, label: str, color: str, text: str) -> None:
        """Print a line above the bars."""
        self._bars.console.print(_colored(label, color, text), soft_wrap=True)

    def progress(self, snapshot: Snapshot) -> None:
        """Move the bars."""
        self._bars.update(
            self._whole,
            description=f"{snapshot.files_done}/{snapshot.files} files",
            total=snapshot.audio_total_s,
            completed=snapshot.audio_done_s,
            note=_note(snapshot),
        )
        current = {one.job: one for one in snapshot.active}
        for job in set(self._rows) - set(current):
            self._bars.remove_task(self._rows.pop(job))
        for job, one in current.items():
            if job not in self._rows:
                self._rows[job] = self._bars.add_task("", total=None, note="")
            self._bars.update(
                self._rows[job],
                description=f"  {one.name}",
                total=one.total_s if one.done_s else None,
                completed=one.done_s,
                note=_row_note(one),
            )

    def summary(self, summary: Summary) -> None:
        """Take the bars down, and show how it went."""
        self._bars.stop()
        super().summary(summary)


def whole(snapshot: Snapshot) -> str:
    """Return how far the run is: files, audio, speed and the time left, as far as they are known."""
    return f"{snapshot.files_done}/{snapshot.files} files, {_note(snapshot)}"


def _note(snapshot: Snapshot) -> str:
    """Return audio, speed and time left of the whole; what is estimated bears a sign."""
    about = "~" if snapshot.is_estimate else ""
    text = duration(snapshot.audio_done_s)
    if snapshot.audio_total_s is not None:
        text += f" of {about}{duration(snapshot.audio_total_s)}"
    if snapshot.speed:
        text += f", {snapshot.speed:.1f}x realtime"
    if snapshot.eta_s is not None:
        text += f", {about}{duration(snapshot.eta_s)} left"
    return text


def _row_note(one: ActiveFile) -> str:
    """Return step, audio, speed and time left of a file at work."""
    text = f"{one.step} {_part(one)}".rstrip()
    if one.speed:
        text += f", {one.speed:.1f}x"
    if one.eta_s is not None:
        text += f", {duration(one.eta_s)} left"
    return text


def _part(one: ActiveFile) -> str:
    """Return how far a file is, where that is known."""
    return f"{duration(one.done_s)} of {duration(one.total_s)}" if one.total_s else ""


def _surprises(report: FileReport) -> bool:
    """Tell whether a user should see that a file was skipped: nobody asked for it by an option."""
    return report.reason in {"archive", "special", "output_folder"}


def _colored(label: str, color: str, text: str) -> "Text":
    """Return a line for rich, nothing in which is taken for markup."""
    from rich.text import Text  # noqa: PLC0415 - only on a terminal

    return Text.assemble((f"{label:{_LABEL_WIDTH - 1}}", color), " ", text)
