"""Follow jobs to their end: one line for each that ends, a line now and then, and the exit code of them all."""

import json
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from voicejobs import queries
from voicejobs.cli.broker import require_answer
from voicejobs.cli.globals import current
from voicejobs.cli.main import EXIT_INTERRUPTED
from voicejobs.cli.pauses import Pause, pause
from voicejobs.cli.show import duration
from voicejobs.control import settle
from voicejobs.embedded.stack import Stack
from voicejobs.settings import Settings
from voicejobs.store.database import Database
from voicejobs.store.states import JobState

EXIT_SOME_FAILED = 3
EXIT_ALL_FAILED = 8

POLL_S = 0.2
REPORT_EVERY_S = 10.0
RECONCILE_EVERY_S = 5.0
UNSEALED_WAIT_S = 5.0
"""Time without a live job after which a batch counts as whole although its producer has not said so."""


@dataclass(slots=True)
class Following:
    """Follow the jobs of batches, or some of them, until they have ended.

    Args:
        settings: they say whether workers must be started for it.
        database: the store.
        batch_ids: the batches.
        job_ids: the jobs that count; None for all.
        as_json: print one JSON object a line instead of text.
    """

    settings: Settings
    database: Database
    batch_ids: Sequence[str]
    job_ids: Container[str] | None = None
    as_json: bool = False
    _seen: set[str] = field(default_factory=set)
    _failed: int = 0
    _audio_s: float = 0.0
    _cursor: float = 0.0
    _is_paused: bool = False

    def run(self, name: str) -> int:
        """Start or join the workers, follow, and return the exit code; `name` is what Ctrl-C leaves alone."""
        if self.settings.broker_url:
            require_answer(self.settings.broker_url)
        try:
            with Stack(self.settings) as stack:
                self._tell_beginning()
                self._follow(stack)
            settle(self.database)
        except KeyboardInterrupt:
            click.echo(f"\nLeft {name} as it is. See `voicejobs {name}` for how it stands.", err=True)
            return EXIT_INTERRUPTED
        self._summarise()
        if not self._failed:
            return 0
        return EXIT_SOME_FAILED if self._failed < len(self._seen) else EXIT_ALL_FAILED

    def _tell_beginning(self) -> None:
        """Say what is followed, and how to leave it."""
        if not self.as_json and not current().quiet:
            live = self._live()
            words = f"Following {live} job{'s' if live != 1 else ''} to the end; Ctrl-C leaves them alone"
            click.echo(words if live else "Nothing to wait for: all has ended", err=True)

    def _follow(self, stack: Stack) -> None:
        """Look at the rows until nothing lives."""
        told = reconciled = idle_since = time.monotonic()
        while True:
            live = self._live()
            now = time.monotonic()
            since = self._cursor
            if not live or now - reconciled > RECONCILE_EVERY_S:
                since, reconciled = 0.0, now
                self._tell_pause(pause(stack) if live else None)
            self._show_ended(since)
            if live:
                idle_since = now
                stack.check()
            elif self._is_whole() or now - idle_since > UNSEALED_WAIT_S:
                return
            if now - told > REPORT_EVERY_S:
                told = now
                self._report(live)
            time.sleep(POLL_S)

    def _tell_pause(self, reason: Pause | None) -> None:
        """Say once that workers begin no job, for as long as it lasts."""
        if reason and not self._is_paused:
            if self.as_json:
                self._print({"type": "warning", "code": reason.code, "message": reason.message})
            elif not current().quiet:
                click.echo(f"{click.style('warning', fg='yellow')} {reason.message} [{reason.code}]", err=True)
        self._is_paused = reason is not None

    def _live(self) -> int:
        """Return how many of the jobs have not ended."""
        return queries.live_jobs(self.database, self.batch_ids, self.job_ids)

    def _is_whole(self) -> bool:
        """Tell whether no further job can come."""
        if self.job_ids is not None:
            return True
        return all(queries.show_batch_row(self.database, one)["sealed_at"] for one in self.batch_ids)

    def _show_ended(self, since: float) -> None:
        """Say of each job that has ended since the last look how it ended."""
        for job in queries.finished_jobs(self.database, self.batch_ids, since, only=self.job_ids):
            if job.id in self._seen:
                continue
            self._cursor = max(self._cursor, job.finished_at)
            self._seen.add(job.id)
            self._failed += job.state != JobState.SUCCEEDED
            self._audio_s += job.audio_s or 0.0
            self._tell_ended(job)

    def _tell_ended(self, job: queries.Finished) -> None:
        """Show one job that has ended."""
        if self.as_json:
            fields = {"id": job.id, "name": job.name, "state": job.state, "audio_s": job.audio_s, "error": job.error}
            self._print({"type": "file", **fields})
        elif job.error is not None:
            word = click.style("failed", fg="red")
            click.echo(f"{word}  {job.name}: {job.error['message']} [{job.error['code']}]", err=True)
            click.echo(f"  {job.error['hint']}", err=True)
        elif not current().quiet:
            click.echo(f"{job.state}  {job.name}  ({duration(job.audio_s)})", err=True)

    def _report(self, live: int) -> None:
        """Say how far it is."""
        ended = len(self._seen)
        if self.as_json:
            self._print({"type": "progress", "ended": ended, "live": live, "failed": self._failed})
        elif not current().quiet:
            click.echo(f"{ended} of {ended + live} ended, {duration(self._audio_s)} of audio", err=True)

    def _summarise(self) -> None:
        """Say how it ended."""
        done = len(self._seen) - self._failed
        if self.as_json:
            self._print({"type": "summary", "succeeded": done, "failed": self._failed, "audio_s": self._audio_s})
        elif not current().quiet:
            failed = f", {self._failed} failed or cancelled" if self._failed else ""
            click.echo(f"{done} succeeded{failed}: {duration(self._audio_s)} of audio", err=True)

    @staticmethod
    def _print(event: dict[str, Any]) -> None:
        """Print one line of JSON."""
        click.echo(json.dumps({"v": 1, **event}, ensure_ascii=False))
