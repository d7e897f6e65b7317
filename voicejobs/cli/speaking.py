"""The errand of `voicejobs speak`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from voicejobs.audio import encode
from voicejobs.cli.engine_choice import is_given
from voicejobs.cli.errand import Desk
from voicejobs.cli.inputs import TEXTS, Found, Kind, Search, Selection
from voicejobs.cli.outputs import STDOUT
from voicejobs.cli.speech_options import CAPTION_FORMATS, speech_steps, split_names
from voicejobs.cli.spool import name_of_stdin
from voicejobs.cli.texts import CAPTIONS, find_texts, text_of_stdin
from voicejobs.errors import BadOption, BadUsage, InputError, NotFound, NotSubtitles, Unreadable, VoicejobsError
from voicejobs.formats.subtitles import read_subtitles
from voicejobs.models.parts import Progress
from voicejobs.pipelines.pipeline import DUB, SPEAK, Pipeline
from voicejobs.settings import Settings
from voicejobs.steps.lines import CHARS_PER_SECOND
from voicejobs.store.paths import display_name
from voicejobs.submit import InputFile
from voicejobs.text import decode_text, require_sayable

DEFAULT_FORMAT = "wav"
_STEM = "output_stem"
"""Among the flags: the name of the one output, where `-o` names a file."""


class Speaking:
    """Turn texts into sound; see `Errand` for the methods."""

    command = "speak"
    kind = TEXTS
    none_found = ("no texts were found there", "Name files, folders that hold texts, or give the text itself.")

    def pipeline(self, flags: Mapping[str, Any]) -> Pipeline:
        """Return the pipeline: that of subtitles that keep their times, or that of texts."""
        return DUB if flags["keep_times"] else SPEAK

    def formats(self, flags: dict[str, Any]) -> list[str]:
        """Return the formats of sound, then those of captions; `-o talk.mp3` becomes a folder and a name."""
        return formats_of(flags)

    def names(self, flags: Mapping[str, Any]) -> tuple[str, str]:
        """Return model and language."""
        return flags["model"], flags["language"] or ""

    def options(
        self, settings: Settings, flags: dict[str, Any], formats: Sequence[str], tell: Progress, *, fetch: bool
    ) -> dict[str, dict[str, Any]]:
        """Return the options of the pipeline."""
        steps = speech_steps(settings, flags, formats, tell, fetch=fetch)
        pipeline = self.pipeline(flags)
        first = pipeline.nodes[0].name
        plan = steps.pop("plan")
        if pipeline is SPEAK:
            plan["markup"] = flags["markup"]
        elif flags["markup"] != "auto" and is_given("markup"):
            raise click.UsageError("--keep-times is for subtitles, and --markup for texts: leave one of them out.")
        return pipeline.options({first: plan, **steps})

    def facts(self, options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return what is told at the start."""
        synthesise = options["synthesise"]
        hidden = {"target", "replace", "known"}
        told = {
            name: {key: value for key, value in values.items() if key not in hidden} for name, values in options.items()
        }
        return {"engine": synthesise["engine"], "model": synthesise["model"], "options": told}

    def warnings(self, flags: Mapping[str, Any]) -> list[str]:
        """Return nothing: what an engine cannot do it refuses."""
        return []

    def select(self, paths: Sequence[str], flags: Mapping[str, Any], search: Search, desk: Desk) -> Selection:
        """Return the texts, the single one under the name that `-o` gives it."""
        selection = find_texts(paths, search)
        name_the_one(selection, flags, self.kind)
        if flags["keep_times"]:
            selection.found = [_only_captions(one) for one in selection.found]
        return selection

    def spooled(self, flags: Mapping[str, Any], settings: Settings, desk: Desk) -> Callable[[], Found]:
        """Return what reads the text on standard input."""
        name = name_of_stdin(flags["stdin_name"])

        def stdin() -> Found:
            if sys.stdin is None or sys.stdin.isatty():
                raise BadOption(
                    "Standard input is a terminal", hint="`-` reads a text from a pipe: echo Hello | voicejobs speak -"
                )
            return text_of_stdin(sys.stdin.buffer.read(), name)

        return stdin

    def measure(self, settings: Settings, files: Sequence[InputFile]) -> list[float | VoicejobsError | None]:
        """Return how long it takes to read the texts aloud, near enough."""
        return [_length(file) for file in files]

    def pace(self, options: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return what the speed depends on."""
        same = {name: options["synthesise"][name] for name in ("engine", "model", "device")}
        return {"node": "synthesise", "first": "synthesise", **same}


def formats_of(flags: dict[str, Any]) -> list[str]:
    """Return the formats of sound, then those of captions; `-o talk.mp3` becomes a folder and a name.

    Raises:
        BadOption, BadUsage: a format does not exist, or options do not go together.
    """
    target: Path = flags["output_dir"]
    ending = target.suffix[1:].lower()
    if _STEM not in flags and target != STDOUT and ending in encode.FORMATS and not target.is_dir():
        flags[_STEM], flags["output_dir"] = target.stem, target.parent
        if flags["formats"] and split_names(flags["formats"]) != [ending]:
            raise BadUsage(f"-o {target} and -f {','.join(flags['formats'])} contradict each other")
        flags["formats"] = (ending,)
    sounds = split_names(flags["formats"]) or [DEFAULT_FORMAT]
    for name in sounds:
        encode.demand_format(name)
    captions = split_names(flags["captions"])
    unknown = next((name for name in captions if name not in CAPTION_FORMATS), None)
    if unknown is not None:
        raise BadOption(f"{unknown!r} is no format of captions", hint=f"The formats are {', '.join(CAPTION_FORMATS)}.")
    if target == STDOUT and not flags["dry_run"] and sys.stdout.isatty():
        raise BadOption("-o - would write sound to the terminal", hint="Name a file with -o, or pipe it to a player.")
    return [*sounds, *captions]


def name_the_one(selection: Selection, flags: Mapping[str, Any], kind: Kind) -> None:
    """Give the one input the name that `-o` gives its output, where that names a file.

    Raises:
        BadOption: there are several.
    """
    stem = flags.get(_STEM)
    if stem is not None:
        if len(selection.found) > 1:
            raise BadOption(
                f"-o names one file, and {len(selection.found)} {kind.noun}s were found",
                hint="Name a folder with -o, and the format with -f.",
            )
        selection.found = [_renamed(one, stem) for one in selection.found]


def _renamed(found: Found, stem: str) -> Found:
    """Return an input whose output has another name than it has itself."""
    return replace(found, relative=f"{stem}.txt", shown=found.shown or found.relative)


def _only_captions(found: Found) -> Found:
    """Return an input, refused if it cannot have times."""
    if found.error is not None or (found.text is None and found.path.lower().endswith(CAPTIONS)):
        return found
    name = display_name(found.shown or found.relative)
    return replace(
        found, error=NotSubtitles(f"{name} has no times", hint="--keep-times takes SRT and WebVTT files alone.")
    )


def _length(file: InputFile) -> float | VoicejobsError | None:
    """Return the length of a text in seconds of speech, or what is wrong with it."""
    name = display_name(file.name)
    try:
        text = file.text
        if text is None:
            data = Path(file.path).read_bytes()
            if file.path.lower().endswith(CAPTIONS):
                text = "\n".join(line for cue in read_subtitles(data, name).cues for line in cue.lines)
            else:
                text = decode_text(data, name)
        return len(require_sayable(text, name)) / CHARS_PER_SECOND
    except InputError as error:
        return error
    except FileNotFoundError:
        return NotFound(f"{name} is not there")
    except OSError as error:
        return Unreadable(f"{name} cannot be read: {error.strerror}")
