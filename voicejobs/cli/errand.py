"""What a run is for: the part of a command that differs between recognising and speaking."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from voicejobs.cli.inputs import Kind, Search, Selection
from voicejobs.cli.report import FileReport, Reporter, Summary
from voicejobs.models.parts import Progress
from voicejobs.pipelines.pipeline import Pipeline
from voicejobs.settings import Settings
from voicejobs.submit import InputFile


@dataclass(frozen=True, slots=True)
class Desk:
    """Hold what every part of a run needs: where to show things, what to count, and what to clean up."""

    reporter: Reporter
    summary: Summary
    cleanup: ExitStack

    def note(self, report: FileReport) -> None:
        """Count a file on which nothing is done, and show it."""
        self.summary.note(report)
        self.reporter.file(report)


class Errand(Protocol):
    """Say what is done with inputs, and find them.

    `flags` are the options of the command; those that every command of the kind has are read by the session.
    """

    command: str
    """Name of the command, which people also read in the label of a batch."""
    kind: Kind
    """What sort of inputs it takes."""
    none_found: tuple[str, str]
    """What is said where no input is found, and what to do then."""

    def pipeline(self, flags: Mapping[str, Any]) -> Pipeline:
        """Return what each input goes through."""
        ...

    def formats(self, flags: dict[str, Any]) -> list[str]:
        """Return the output formats; called first, it may settle other flags too.

        Raises:
            BadOption, click.UsageError: a format does not exist, or options do not go together.
        """
        ...

    def names(self, flags: Mapping[str, Any]) -> tuple[str, str]:
        """Return the model and the language that names of outputs may tell."""
        ...

    def options(
        self, settings: Settings, flags: dict[str, Any], formats: Sequence[str], tell: Progress, *, fetch: bool
    ) -> dict[str, dict[str, Any]]:
        """Return the full options of the pipeline; with `fetch`, the model is here afterwards, named by its hash."""
        ...

    def facts(self, options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return engine, model and the options that change outputs, for the start of a run."""
        ...

    def warnings(self, flags: Mapping[str, Any]) -> list[str]:
        """Return a sentence on each option that was given and has no effect."""
        ...

    def select(self, paths: Sequence[str], flags: Mapping[str, Any], search: Search, desk: Desk) -> Selection:
        """Return the inputs.

        Raises:
            BadOption: the arguments cannot be what they are.
        """
        ...

    def spooled(self, flags: Mapping[str, Any], settings: Settings, desk: Desk) -> Any:
        """Return a function that gives the input which `-` stands for."""
        ...

    def measure(self, settings: Settings, files: Sequence[InputFile]) -> list[Any]:
        """Return for each file how many seconds of sound it has or makes, None for unknown, or what is wrong with it.

        Raises:
            VoicejobsError: nothing can be measured.
        """
        ...

    def pace(self, options: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the options by which earlier runs are compared in speed."""
        ...
