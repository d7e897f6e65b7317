"""What a run tells about itself, for whoever shows it: lines, bars, events and summary files say the same things."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from voicejobs.errors import VoicejobsError
from voicejobs.store.paths import display_name, encode_path

SUCCEEDED, DONE, FAILED, CANCELLED, SKIPPED = "succeeded", "done", "failed", "cancelled", "skipped"
"""What becomes of a file: `done` is one whose outputs were there from an earlier run."""
PLANNED = "planned"
NO_SPEECH = "no_speech"


@dataclass(frozen=True, slots=True)
class FileReport:
    """Tell what became of a file, or what would.

    Args:
        name: how people know it, fit for a terminal.
        state: one of the words above.
        path: absolute path of the input; empty for standard input.
        job: id of its job, where it has one.
        audio_s: length of the recording in seconds.
        outputs: its files: format and path, and of written ones hash and size.
        error: why it failed, as `VoicejobsError.to_json` has it.
        reason: why it was skipped, one of `inputs.REASONS`.
        warnings: codes of what its reader should know.
    """

    name: str
    state: str
    path: str = ""
    job: str = ""
    audio_s: float | None = None
    outputs: Sequence[Mapping[str, Any]] = ()
    error: Mapping[str, Any] | None = None
    reason: str = ""
    warnings: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; what does not apply is left out."""
        values: dict[str, Any] = {"name": self.name, "state": self.state}
        if self.path:
            values |= encode_path(self.path)
        if self.job:
            values["job"] = self.job
        if self.audio_s is not None:
            values["audio_s"] = round(self.audio_s, 3)
        if self.state in {SUCCEEDED, DONE, PLANNED}:
            values["outputs"] = [dict(output) for output in self.outputs]
        if self.error is not None:
            values["error"] = dict(self.error)
        if self.reason:
            values["reason"] = self.reason
        if self.warnings:
            values["warnings"] = list(self.warnings)
        return values


@dataclass(frozen=True, slots=True)
class ActiveFile:
    """Tell how far a file at work is; None where that is unknown."""

    job: str
    name: str
    step: str
    done_s: float
    total_s: float | None
    speed: float | None = None
    eta_s: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Tell how far a run is, weighted by seconds of audio; None where that is unknown."""

    files: int
    files_done: int
    audio_done_s: float
    audio_total_s: float | None
    is_estimate: bool
    speed: float | None
    eta_s: float | None
    active: Sequence[ActiveFile] = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "files": self.files,
            "files_done": self.files_done,
            "audio_done_s": round(self.audio_done_s, 3),
            "audio_total_s": _rounded(self.audio_total_s),
            "audio_total_is_estimate": self.is_estimate,
            "speed": _rounded(self.speed),
            "eta_s": _rounded(self.eta_s),
            "active": [
                {
                    "job": one.job,
                    "name": one.name,
                    "step": one.step,
                    "done_s": round(one.done_s, 3),
                    "total_s": _rounded(one.total_s),
                    "speed": _rounded(one.speed),
                    "eta_s": _rounded(one.eta_s),
                }
                for one in self.active
            ],
        }


@dataclass(slots=True)
class Summary:
    """Count what has become of the files of a run.

    Args:
        output_dir: where the outputs are; `-` for standard output.
        counts: files by state.
        warned: files by the code of a warning.
        audio_s: seconds of audio that were transcribed or spoken.
        elapsed_s: seconds that the run took.
        outputs: output files written.
        ended: `completed`, `interrupted`, `terminated`, `timed_out` or `too_many_failures`.
        exit_code: that of the command.
        batches: ids of the batches that hold its jobs.
        plan: what a dry run foresees, None for a real one.
        command: `transcribe`, `speak` or `retell`.
    """

    output_dir: str
    counts: Counter[str] = field(default_factory=Counter)
    warned: Counter[str] = field(default_factory=Counter)
    audio_s: float = 0.0
    elapsed_s: float = 0.0
    outputs: int = 0
    ended: str = "completed"
    exit_code: int = 0
    batches: Sequence[str] = ()
    plan: Mapping[str, Any] | None = None
    command: str = "transcribe"

    def note(self, report: FileReport) -> None:
        """Count a file."""
        self.counts[report.state] += 1
        self.warned.update(report.warnings)
        if report.state == SUCCEEDED:
            self.audio_s += report.audio_s or 0.0
            self.outputs += len(report.outputs)

    @property
    def speed(self) -> float | None:
        """Return the seconds of audio for each second of time."""
        return self.audio_s / self.elapsed_s if self.audio_s and self.elapsed_s else None

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        values: dict[str, Any] = {
            "exit_code": self.exit_code,
            "ended": self.ended,
            "files": {state: self.counts[state] for state in (SUCCEEDED, DONE, FAILED, CANCELLED, SKIPPED)},
            "warnings": dict(self.warned),
            "audio_s": round(self.audio_s, 3),
            "elapsed_s": round(self.elapsed_s, 3),
            "speed": _rounded(self.speed),
            "output_dir": display_name(self.output_dir),
            "batches": list(self.batches),
        }
        if self.plan is not None:
            values["plan"] = {**self.plan, "files": self.counts[PLANNED]}
        return values


class Reporter(Protocol):
    """Show a run; used as a context manager."""

    def __enter__(self) -> Self:
        """Begin to show."""
        ...

    def __exit__(self, *failure: object) -> None:
        """Leave the screen as it was."""
        ...

    def start(self, facts: Mapping[str, Any]) -> None:
        """Tell what is going to be done; `files` is the number of inputs."""
        ...

    def file(self, report: FileReport) -> None:
        """Tell what became of a file."""
        ...

    def progress(self, snapshot: Snapshot) -> None:
        """Tell how far the run is."""
        ...

    def warn(self, code: str, message: str) -> None:
        """Tell what users should know, and nothing failed by."""
        ...

    def fail(self, error: VoicejobsError) -> None:
        """Tell what ends the whole run; whoever runs the command says it on standard error."""
        ...

    def summary(self, summary: Summary) -> None:
        """Tell how it went."""
        ...


class Several:
    """Pass everything on to several reporters."""

    def __init__(self, *reporters: Reporter) -> None:
        self._reporters = reporters

    def __enter__(self) -> Self:
        for one in self._reporters:
            one.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        for one in reversed(self._reporters):
            one.__exit__(*failure)

    def start(self, facts: Mapping[str, Any]) -> None:
        """Pass it on."""
        for one in self._reporters:
            one.start(facts)

    def file(self, report: FileReport) -> None:
        """Pass it on."""
        for one in self._reporters:
            one.file(report)

    def progress(self, snapshot: Snapshot) -> None:
        """Pass it on."""
        for one in self._reporters:
            one.progress(snapshot)

    def warn(self, code: str, message: str) -> None:
        """Pass it on."""
        for one in self._reporters:
            one.warn(code, message)

    def fail(self, error: VoicejobsError) -> None:
        """Pass it on."""
        for one in self._reporters:
            one.fail(error)

    def summary(self, summary: Summary) -> None:
        """Pass it on."""
        for one in self._reporters:
            one.summary(summary)


def error_json(error: VoicejobsError) -> dict[str, Any]:
    """Return an error as JSON values that any stream takes."""
    values = error.to_json()
    return {**values, "message": display_name(values["message"]), "hint": display_name(values["hint"])}


def _rounded(value: float | None) -> float | None:
    """Return a number with three digits, None for None."""
    return None if value is None else round(value, 3)
