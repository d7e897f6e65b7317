"""Submit the files of a run and follow them to their end, or to ours."""

import contextlib
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Self

from voicejobs import queries
from voicejobs.cli.archive import Archive
from voicejobs.cli.estimate import Estimate
from voicejobs.cli.pauses import CODES, pause
from voicejobs.cli.report import (
    CANCELLED,
    DONE,
    FAILED,
    SKIPPED,
    SUCCEEDED,
    FileReport,
    Reporter,
    Summary,
    error_json,
)
from voicejobs.embedded.stack import Stack
from voicejobs.errors import Internal, NoSuchRecord
from voicejobs.queries import Finished
from voicejobs.store.paths import display_name
from voicejobs.store.states import JobState
from voicejobs.submit import Accepted, InputFile, Submission, cancel_batch

EXIT_SOME_FAILED = 3
EXIT_TEMPORARY = 5
EXIT_ALL_FAILED = 8
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

CHUNK_FILES = 200
FIRST_CHUNK_FILES = 16
CHUNK_BYTES = 200_000_000
POLL_S = 0.2
SLOW_POLL_S = 0.5
"""Time between two looks while many files are still to come."""
RECONCILE_EVERY_S = 5.0
CANCEL_WAIT_S = 5.0
ARCHIVE_UNWRITABLE = "archive_unwritable"


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


class GivingUp(Exception):  # noqa: N818 - no error to show, but a reason to stop
    """A limit of the user is reached; the argument is the word of `Summary.ended`."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGTERM into an exception like that of Ctrl-C, for the time of the block."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True, slots=True)
class Limits:
    """Say when a run gives up; None never."""

    max_failures: int | None = None
    deadline: float | None = None

    @classmethod
    def of(cls, *, max_failures: int | None, timeout_s: float | None) -> Self:
        """Return limits that count from now."""
        return cls(max_failures, None if timeout_s is None else time.monotonic() + timeout_s)


@dataclass(slots=True)
class Run:
    """Take the files of one command through a stack.

    Args:
        stack: keeps workers alive.
        submission: takes the files in.
        reporter: shows what happens.
        summary: counts it.
        limits: when to give up.
        archive: notes what is done.
        hidden: folder of our private copies of standard input, whose paths are nobody's business.
    """

    stack: Stack
    submission: Submission
    reporter: Reporter
    summary: Summary
    limits: Limits = field(default_factory=Limits)
    archive: Archive | None = None
    hidden: str = ""
    estimate: Estimate = field(default_factory=Estimate)
    _waiting: dict[str, Accepted] = field(default_factory=dict)
    _unsubmitted: list[InputFile] = field(default_factory=list)
    _again: list[InputFile] = field(default_factory=list)
    _own_batches: list[str] = field(default_factory=list)
    _batches: set[str] = field(default_factory=set)
    _cursor: float = 0.0
    _reconciled: float = field(default_factory=time.monotonic)
    _told: set[str] = field(default_factory=set)
    _is_leaving: bool = False

    def follow(self, files: Sequence[InputFile]) -> None:
        """Run to the end; afterwards the summary tells how it ended, and with which exit code.

        Raises:
            BrokenPipeError: nobody reads our output any more; what was left is cancelled.
            VoicejobsError: the stack or the database fails.
        """
        self.estimate.files = len(files)
        self._unsubmitted = list(reversed(files))
        try:
            self._submit()
            while self._waiting or self._again:
                self.stack.check()  # joins it first
                self._look()
                self._check_limits()
                if self._again:
                    self._submit_again()
                time.sleep(POLL_S if len(self._waiting) < CHUNK_FILES else SLOW_POLL_S)
            self.submission.settle()
        except GivingUp as limit:
            self._leave(str(limit))
        except KeyboardInterrupt as interrupt:
            self._leave("terminated" if isinstance(interrupt, Terminated) else "interrupted")
        except BrokenPipeError:
            self._cancel()
            raise
        self.summary.batches = sorted(self._batches)
        self.summary.exit_code = exit_code(self.summary)

    @property
    def waiting(self) -> int:
        """Return how many files are at work or wait."""
        return len(self._waiting) + len(self._again)

    def works_on(self, path: str) -> bool:
        """Tell whether a file of this path is at work or waits."""
        return any(one.file.path == path for one in self._waiting.values()) or any(
            one.path == path for one in self._again
        )

    def take(self, files: Sequence[InputFile]) -> None:
        """Take further files, for a run that has no end of its own (`look`, `rest`)."""
        self.estimate.files += len(files)
        self._add(files)

    def look(self) -> None:
        """Show what has ended since the last look; keep the workers alive."""
        self.stack.check()
        self._look()
        if self._again:
            self._submit_again()
            self.submission.begin_anew()

    def rest(self) -> None:
        """Close the batch of the files that have ended, once none waits; those that come later get one of their own."""
        self.submission.seal()
        self.submission.settle()
        self.submission.begin_anew()
        self.summary.batches = sorted({*self.summary.batches, *self._own_batches})
        self._batches.clear()
        self._own_batches.clear()
        self.estimate = Estimate()

    def _submit(self) -> None:
        """Insert the jobs in chunks, and show in between what has ended already."""
        limit = FIRST_CHUNK_FILES
        while self._unsubmitted:
            chunk = _chunk(self._unsubmitted, limit)
            self._add(chunk)
            del self._unsubmitted[-len(chunk) :]
            limit = CHUNK_FILES
            self._look()
            self._check_limits()
        self.submission.seal()

    def _submit_again(self) -> None:
        """Submit files whose jobs belonged to another command, which has given them up."""
        self.submission.begin_anew()
        files, self._again = self._again, []
        self._add(files)
        self.submission.seal()

    def _add(self, files: Sequence[InputFile]) -> None:
        """Submit some files, and note what became of each."""
        for one in self.submission.add(files):
            self._accepted(one)
        if self.submission.batch_id and self.submission.batch_id not in self._own_batches:
            self._own_batches.append(self.submission.batch_id)

    def _accepted(self, one: Accepted) -> None:
        """Note a file: it waits, or there is nothing to wait for."""
        name, path = display_name(one.file.name), self._told_path(one.file)
        if one.outcome == "refused" and one.error is not None:
            self._report(FileReport(name, FAILED, path, one.job_id, error=error_json(one.error)))
        elif one.outcome == "left_out":
            self._report(FileReport(name, SKIPPED, path, reason="archived"))
        elif one.outcome == "done":
            self._note_archive(one)
            self._report(FileReport(name, DONE, path, one.job_id, outputs=one.outputs))
        elif one.job_id in self._waiting:  # a second input with the same content and the same place: one job does both
            self._report(FileReport(name, DONE, path, one.job_id))
        else:
            self._waiting[one.job_id] = one
            self._batches.add(one.batch_id)
            self.estimate.expect(one.job_id, one.file.name, one.size)

    def _look(self) -> None:
        """Show what has ended since the last look, and what is at work."""
        if not self._batches:
            return
        database = self.submission.database
        batch_ids = sorted(self._batches)
        now = time.monotonic()
        since = self._cursor
        if now - self._reconciled > RECONCILE_EVERY_S:
            self._reconciled = now
            self._warn_of_waits(batch_ids)
            if len(self._waiting) <= CHUNK_FILES:
                since = 0.0
        for job in queries.finished_jobs(database, batch_ids, since, only=self._waiting):
            self._cursor = max(self._cursor, job.finished_at)
            self._ended(job)
        self.estimate.active(queries.active_steps(database, batch_ids))
        self.reporter.progress(self.estimate.snapshot())

    def _ended(self, job: Finished) -> None:
        """Note a job that has ended."""
        one = self._waiting.pop(job.id)
        succeeded = job.state == JobState.SUCCEEDED
        self.estimate.finished(job.id, job.audio_s, succeeded=succeeded)
        if job.state == JobState.CANCELLED and one.batch_id not in self._own_batches and not self._is_leaving:
            self._again.append(one.file)  # another command, whose job it was, has been interrupted
            return
        state = SUCCEEDED if succeeded else CANCELLED if job.state == JobState.CANCELLED else FAILED
        if succeeded:
            self._note_archive(one)
        self._report(
            FileReport(
                display_name(one.file.name),
                state,
                self._told_path(one.file),
                job.id,
                audio_s=job.audio_s,
                outputs=job.outputs,
                error=self._told_error(one.file, job.error)
                or (error_json(Internal(f"The job {job.id} has {job.state}")) if state == FAILED else None),
                warnings=job.warnings if succeeded else (),
            )
        )

    def _report(self, report: FileReport) -> None:
        """Count a file, and show it."""
        self.estimate.files_done += 1
        self.summary.note(report)
        self.reporter.file(report)

    def _told_path(self, file: InputFile) -> str:
        """Return the path to tell of: that of our copy of standard input is nobody's business, and some have none."""
        is_hidden = bool(self.hidden) and file.path.startswith(self.hidden)
        return "" if is_hidden or not file.path.startswith("/") else file.path

    def _told_error(self, file: InputFile, error: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return an error to tell of, without the path of our copy of standard input."""
        if error is None or self._told_path(file):
            return error
        return {**error, "message": str(error["message"]).replace(f"{file.path}: ", "")}

    def _note_archive(self, one: Accepted) -> None:
        """Add a file to the archive; where that fails, its transcript is there all the same."""
        if self.archive is None:
            return
        try:
            self.archive.add(one.sha256, one.file.name)
        except OSError as error:
            self._warn_once(ARCHIVE_UNWRITABLE, f"The archive cannot be written: {error.strerror}")

    def _warn_of_waits(self, batch_ids: Sequence[str]) -> None:
        """Say why work waits, once for each reason as long as it lasts."""
        waits = queries.waiting_errors(self.submission.database, batch_ids)
        for code, message in waits.items():
            self._warn_once(code, f"{message}; it is tried again")
        paused = pause(self.stack)
        if paused:
            self._warn_once(paused.code, paused.message)
        self._told &= {*waits, ARCHIVE_UNWRITABLE, *(CODES if paused else [])}

    def _warn_once(self, code: str, message: str) -> None:
        """Show a warning that was not shown before."""
        if code not in self._told:
            self._told.add(code)
            self.reporter.warn(code, message)

    def _check_limits(self) -> None:
        """Give up where the user wants it.

        Raises:
            GivingUp: a limit is reached.
        """
        most = self.limits.max_failures
        if most is not None and self.summary.counts[FAILED] >= most and (self._waiting or self._unsubmitted):
            raise GivingUp("too_many_failures")
        if self.limits.deadline is not None and time.monotonic() > self.limits.deadline:
            raise GivingUp("timed_out")

    def _leave(self, ended: str) -> None:
        """Cancel what has not been done, see what still ends, and count the rest; a second Ctrl-C leaves at once."""
        self.summary.ended = ended
        self._is_leaving = True
        self.reporter.warn(ended, "Stopping: what is at work is dropped, what is done stays")
        self._cancel()
        deadline = time.monotonic() + CANCEL_WAIT_S
        while time.monotonic() < deadline:
            self._look()
            if not any(one.batch_id in self._own_batches for one in self._waiting.values()):
                break
            time.sleep(POLL_S)
        left = [one.file for one in self._waiting.values()]
        for file in (*left, *self._again, *reversed(self._unsubmitted)):
            self._report(FileReport(display_name(file.name), CANCELLED, self._told_path(file)))

    def _cancel(self) -> None:
        """Cancel the jobs of our own batches, one of which an interruption may have kept us from noting."""
        self.submission.seal()
        for batch_id in {*self._own_batches, self.submission.batch_id} - {""}:
            with contextlib.suppress(NoSuchRecord):  # the interruption came before its first jobs were committed
                cancel_batch(self.submission.database, batch_id)


def exit_code(summary: Summary) -> int:
    """Return the exit code of docs/cli.md."""
    fixed = {"interrupted": EXIT_INTERRUPTED, "terminated": EXIT_TERMINATED, "timed_out": EXIT_TEMPORARY}
    if summary.ended in fixed:
        return fixed[summary.ended]
    if not summary.counts[FAILED] and not summary.counts[CANCELLED]:
        return 0
    return EXIT_SOME_FAILED if summary.counts[SUCCEEDED] or summary.counts[DONE] else EXIT_ALL_FAILED


def _chunk(waiting: Sequence[InputFile], limit: int) -> list[InputFile]:
    """Return the next files from the end of `waiting`, not too many, nor too much to hash."""
    chunk: list[InputFile] = []
    size = 0
    while len(chunk) < min(limit, len(waiting)) and size < CHUNK_BYTES:
        chunk.append(waiting[-1 - len(chunk)])
        with contextlib.suppress(OSError):  # submission says what is wrong with it
            size += Path(chunk[-1].path).stat().st_size
    return chunk
