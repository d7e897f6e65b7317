"""The errand of `voicejobs retell`: recordings go in as for `transcribe`, and sound comes out as of `speak`."""

from collections.abc import Mapping, Sequence
from typing import Any

from voicejobs.cli.errand import Desk
from voicejobs.cli.inputs import Search, Selection
from voicejobs.cli.recognising import Recognising
from voicejobs.cli.recognition_options import pipeline_options
from voicejobs.cli.speaking import formats_of, name_the_one
from voicejobs.cli.speech_options import retelling_steps
from voicejobs.models.parts import Progress
from voicejobs.pipelines.pipeline import TRANSCRIBE_SPEAK, Pipeline
from voicejobs.settings import Settings

_HIDDEN = frozenset(("target", "replace", "known"))


class Retelling(Recognising):
    """Turn recordings into others; see `Errand` for the methods."""

    command = "retell"

    def pipeline(self, flags: Mapping[str, Any]) -> Pipeline:
        """Return the pipeline."""
        return TRANSCRIBE_SPEAK

    def formats(self, flags: dict[str, Any]) -> list[str]:
        """Return the formats of sound, then those of captions; `-o talk.mp3` becomes a folder and a name."""
        return formats_of(flags)

    def options(
        self, settings: Settings, flags: dict[str, Any], formats: Sequence[str], tell: Progress, *, fetch: bool
    ) -> dict[str, dict[str, Any]]:
        """Return the options of the pipeline."""
        prepare, recognise = pipeline_options(settings, flags, [], tell, fetch=fetch)
        spoken = retelling_steps(settings, flags, formats, tell, fetch=fetch)
        return TRANSCRIBE_SPEAK.options({"prepare": prepare, "recognise": recognise, **spoken})

    def facts(self, options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return what is told at the start; engine and model are those that recognise."""
        join = {name: value for name, value in options["join"].items() if name not in _HIDDEN}
        recognise = options["recognise"]
        return {"engine": recognise["engine"], "model": recognise["model"], "options": {**options, "join": join}}

    def select(self, paths: Sequence[str], flags: Mapping[str, Any], search: Search, desk: Desk) -> Selection:
        """Return the recordings, the single one under the name that `-o` gives it."""
        selection = super().select(paths, flags, search, desk)
        name_the_one(selection, flags, self.kind)
        return selection
