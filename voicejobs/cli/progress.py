"""Show how far a batch is, on standard error: bars on a terminal, else a line for each file."""

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import click

from voicejobs.cli.show import duration
from voicejobs.queries import Active, Finished
from voicejobs.store.states import JobState

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

LINE_EVERY_S = 10.0


class Display(Protocol):
    """Show a run; used as a context manager."""

    def __enter__(self) -> Self:
        """Begin to show."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the screen as it was."""
        ...

    def total(self, files: int) -> None:
        """Tell how many files there are."""
        ...

    def finished(self, job: Finished) -> None:
        """Tell that a file has ended."""
        ...

    def active(self, steps: Sequence[Active]) -> None:
        """Tell what is at work now."""
        ...


def display(*, quiet: bool) -> Display:
    """Return the display that suits standard error."""
    if quiet:
        return Silent()
    return Bars() if sys.stderr.isatty() else Lines()


def describe(job: Finished) -> str:
    """Return one line about an ended file."""
    if job.state == JobState.SUCCEEDED:
        return f"done    {job.name} ({duration(job.audio_s)})"
    if job.error is None:
        return f"{job.state:7} {job.name}"
    return f"{job.state:7} {job.name}: {job.error['message']} [{job.error['code']}]\n        {job.error['hint']}"


class Silent:
    """Show nothing but failures."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return

    def total(self, files: int) -> None:
        """Show nothing."""

    def finished(self, job: Finished) -> None:
        """Show a failure."""
        if job.state != JobState.SUCCEEDED:
            click.echo(describe(job), err=True)

    def active(self, steps: Sequence[Active]) -> None:
        """Show nothing."""


class Lines(Silent):
    """Write one line for each ended file, and now and then one about the whole."""

    def __init__(self) -> None:
        self._total = 0
        self._done = 0
        self._audio_s = 0.0
        self._began = self._last = time.monotonic()

    def total(self, files: int) -> None:
        """Note how many files there are."""
        self._total = files

    def finished(self, job: Finished) -> None:
        """Write the file's line."""
        self._done += 1
        self._audio_s += job.audio_s or 0.0
        self._last = time.monotonic()
        click.echo(describe(job), err=True)

    def active(self, steps: Sequence[Active]) -> None:
        """Write a line where none was written for a while."""
        now = time.monotonic()
        if now - self._last < LINE_EVERY_S:
            return
        self._last = now
        at_work = ", ".join(f"{one.name} {one.step} {_done_of(one)}" for one in steps[:2])
        speed = self._audio_s / (now - self._began)
        click.echo(f"{self._done}/{self._total} files, {speed:.1f}x realtime; {at_work or 'starting'}", err=True)


class Bars(Silent):
    """Show a bar for the whole and a row for each file at work."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - only on a terminal
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        self._bars: RichProgress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._whole = self._bars.add_task("files", total=None, note="")
        self._rows: dict[str, TaskID] = {}
        self._done = 0
        self._audio_s = 0.0
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()

    def total(self, files: int) -> None:
        """Set the length of the whole."""
        self._bars.update(self._whole, total=files)

    def finished(self, job: Finished) -> None:
        """Advance the whole, and print the file's line above it."""
        self._done += 1
        self._audio_s += job.audio_s or 0.0
        speed = self._audio_s / max(0.001, time.monotonic() - self._began)
        self._bars.update(self._whole, completed=self._done, note=f"{speed:.1f}x realtime")
        self._bars.console.print(describe(job), markup=False, highlight=False, soft_wrap=True)

    def active(self, steps: Sequence[Active]) -> None:
        """Show a row for each file at work."""
        current = {one.job_id: one for one in steps[:8]}
        for job_id in set(self._rows) - set(current):
            self._bars.remove_task(self._rows.pop(job_id))
        for job_id, one in current.items():
            if job_id not in self._rows:
                self._rows[job_id] = self._bars.add_task("", total=None, note="")
            self._bars.update(
                self._rows[job_id],
                description=f"  {one.name}",
                total=round(one.audio_s) if one.audio_s else None,
                completed=round(one.progress_s),
                note=one.step,
            )


def _done_of(one: Active) -> str:
    """Return how far a step is, where that is known."""
    return f"{duration(one.progress_s)} of {duration(one.audio_s)}" if one.audio_s else ""
