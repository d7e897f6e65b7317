"""The options of speaking itself, and the step options that they make."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

from voicejobs.audio import encode
from voicejobs.choices import Fetch, demand_prompt, language_of, language_tag, model_choice
from voicejobs.cli import option_types as read
from voicejobs.cli.completers import complete_languages, complete_models
from voicejobs.cli.engine_choice import engine_and_model, fetching
from voicejobs.cli.subtitle_options import render_flags
from voicejobs.formats.options import PROFILES
from voicejobs.models.parts import Progress
from voicejobs.settings import Settings
from voicejobs.text import MARKUPS

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

CAPTION_FORMATS = ("srt", "vtt", "json")
_PIPER_MODEL = "en_US-joe-medium"

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--engine", default="piper", show_default=True, is_eager=True, help="Engine that speaks."),
    click.option(
        "-m",
        "--model",
        default=_PIPER_MODEL,
        show_default=True,
        shell_complete=complete_models,
        help="Model of the catalogue, or NAME@REVISION; fetched where missing.",
    ),
    click.option(
        "-l",
        "--language",
        shell_complete=complete_languages,
        metavar="LANGUAGE",
        default=None,
        help="Language of the text, e.g. en, en-GB or de; that of the model if left out.",
    ),
    click.option(
        "--markup",
        type=click.Choice(["auto", *MARKUPS]),
        default="auto",
        show_default=True,
        help="How the text is marked up; auto tells by the file's ending, and SSML by its first tag.",
    ),
    click.option(
        "--keep-times",
        is_flag=True,
        help="Speak each subtitle of SRT and WebVTT files at its time, faster where there is no room.",
    ),
    click.option(
        "--device",
        type=read.device,
        metavar="DEVICE",
        default="auto",
        show_default=True,
        help="auto, cpu, cuda or cuda:N.",
    ),
)  # fmt: skip
"""What `speak` alone says so."""

_COMMON: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--voice",
        default="",
        metavar="NAME",
        help="Voice of the model; its first one if left out. `voicejobs voices list` shows them.",
    ),
    click.option(
        "--speed", type=read.FloatRange(0.25, 4), default=1.0, show_default=True, help="2 is twice as fast."
    ),
    click.option(
        "--seed", type=click.IntRange(0, 2**31 - 1), default=None, help="Another reading of the same text, by number."
    ),
    click.option(
        "--sample-rate",
        type=click.IntRange(encode.MIN_RATE_HZ, encode.MAX_RATE_HZ),
        default=None,
        metavar="HZ",
        help="Samples in a second of sound; those of the voice if left out.",
    ),
    click.option(
        "--captions",
        multiple=True,
        metavar="FORMAT",
        help=f"Write what is said when beside the sound: {', '.join(CAPTION_FORMATS)}; repeat, or separate by commas.",
    ),
    click.option(
        "--subtitle-profile",
        type=click.Choice(PROFILES),
        default="netflix",
        show_default=True,
        help="Rules for captions as srt and vtt; plain makes each piece that is spoken in one go a cue.",
    ),
    click.option(
        "--max-stretch",
        type=read.FloatRange(1, 2),
        default=1.25,
        show_default=True,
        metavar="FACTOR",
        help="With --keep-times: how much shorter sound is made at most, its pitch kept, where speed is not enough.",
    ),
    click.option(
        "--verify",
        is_flag=True,
        help="Recognise what was spoken, speak again what is not understood, and tell of what stays so.",
    ),
    click.option(
        "--verify-model",
        default="base",
        show_default=True,
        shell_complete=complete_models,
        metavar="NAME",
        help="Whisper model that listens for --verify.",
    ),
    click.option(
        "--mode", default="", metavar="NAME", help="How the voice is chosen, for engines with several ways."
    ),
    click.option("--instruct", default="", metavar="TEXT", help="How to speak, in words, for engines that take it."),
    click.option(
        "--prompt-audio",
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        metavar="FILE",
        help="Recording of the voice to speak with, 30 s at most, for engines that take one; only with consent.",
    ),
    click.option("--prompt-text", default="", metavar="TEXT", help="What is said in the recording, word by word."),
    click.option(
        "--sentence-pause", type=read.FloatRange(0, 60), default=0.25, show_default=True, metavar="SECONDS",
        help="Silence after a sentence.",
    ),
    click.option(
        "--paragraph-pause", type=read.FloatRange(0, 60), default=0.6, show_default=True, metavar="SECONDS",
        help="Silence after a paragraph.",
    ),
)  # fmt: skip
"""What every command that speaks has."""

_RETOLD: tuple[Callable[[Any], Any], ...] = (
    click.option("--voice-engine", default="piper", show_default=True, is_eager=True, help="Engine that speaks."),
    click.option(
        "--voice-model",
        default="",
        shell_complete=complete_models,
        help="Its model, NAME or NAME@REVISION; en_US-joe-medium for piper.",
    ),
    click.option(
        "--voice-language",
        shell_complete=complete_languages,
        metavar="LANGUAGE",
        default=None,
        help="Language in which the text is read out; that of the recording if left out.",
    ),
    click.option(
        "--replace",
        nargs=2,
        multiple=True,
        metavar="OLD NEW",
        help="Say NEW where OLD was heard; repeat for more, applied in their order.",
    ),
    click.option(
        "--keep-times",
        is_flag=True,
        help="Begin each passage when it began in the recording, faster where there is no room.",
    ),
)
"""What a command has that recognises first: its engine and its model are others."""


def speech_options(command: _Decorated) -> _Decorated:
    """Add the options of speaking to a click command."""
    return reduce(lambda decorated, option: option(decorated), reversed((*_OPTIONS, *_COMMON)), command)


def retelling_options(command: _Decorated) -> _Decorated:
    """Add the options of speaking to a click command that has those of recognising."""
    return reduce(lambda decorated, option: option(decorated), reversed((*_RETOLD, *_COMMON)), command)


def speech_steps(
    settings: Settings, flags: Mapping[str, Any], formats: Sequence[str], tell: Progress, *, fetch: bool
) -> dict[str, dict[str, Any]]:
    """Return options of the nodes `plan`, `synthesise` and `join`, the first under the name `plan`.

    Args:
        settings: where models live.
        flags: values of the options above, by name.
        formats: of sound and of captions.
        tell: called with what the fetching of a model has to say.
        fetch: fetch the model where it is missing.

    Raises:
        BadOption, UnknownEngine, UnknownModel, ModelUnavailable, ModelCorrupt, DiskFull: see there.
    """
    engine = flags["engine"]
    model, sha256 = engine_and_model(settings, engine, flags["model"], kind="synthesiser", tell=tell, fetch=fetch)
    voiced = {"engine": engine, "model": model, "model_sha256": sha256}
    plan = {"language": language_tag(flags["language"] or "") or language_of(model), **_pauses(flags)}
    return {"plan": plan, **_spoken(settings, flags, formats, voiced, fetching(settings, tell) if fetch else None)}


def retelling_steps(
    settings: Settings, flags: Mapping[str, Any], formats: Sequence[str], tell: Progress, *, fetch: bool
) -> dict[str, dict[str, Any]]:
    """Return options of the nodes `retell`, `synthesise` and `join`; arguments and errors as above."""
    bring = fetching(settings, tell) if fetch else None
    engine = flags["voice_engine"]
    model, sha256 = model_choice(
        settings, engine, flags["voice_model"], kind="synthesiser", default=_PIPER_MODEL, fetch=bring
    )
    voiced = {"engine": engine, "model": model, "model_sha256": sha256}
    retell = {
        # What was translated is English, whatever was spoken.
        "language": language_tag(flags["voice_language"] or "") or ("en" if flags["task"] == "translate" else None),
        "replace": [list(pair) for pair in flags["replace"]],
        "keep_times": flags["keep_times"],
        **_pauses(flags),
    }
    return {"retell": retell, **_spoken(settings, flags, formats, voiced, bring)}


def _pauses(flags: Mapping[str, Any]) -> dict[str, float]:
    """Return the pauses of a text."""
    return {"sentence_pause_s": flags["sentence_pause"], "paragraph_pause_s": flags["paragraph_pause"]}


def _spoken(
    settings: Settings,
    flags: Mapping[str, Any],
    formats: Sequence[str],
    voiced: Mapping[str, str],
    bring: Fetch | None,
) -> dict[str, dict[str, Any]]:
    """Return options of the nodes `synthesise` and `join`; `voiced` has engine and model, `bring` fetches models."""
    return {
        "synthesise": {
            **voiced,
            "device": flags["device"],
            "voice": flags["voice"],
            "speed": flags["speed"],
            "seed": flags["seed"],
            "mode": flags["mode"],
            "instruct": flags["instruct"],
            "max_stretch": flags["max_stretch"],
            **_prompt(settings, flags, voiced["engine"], keep=bring is not None),
            "verify": _listening(settings, flags, bring) if flags["verify"] else {},
        },
        "join": {
            "formats": [name for name in formats if name in encode.FORMATS],
            "captions": [name for name in formats if name not in encode.FORMATS],
            "sample_rate_hz": flags["sample_rate"] or 0,
            "render": render_flags(flags),
        },
    }


def _prompt(settings: Settings, flags: Mapping[str, Any], engine: str, *, keep: bool) -> dict[str, Any]:
    """Return the recording of the voice to speak with; it is kept, or only looked at.

    Raises:
        BadOption, InputError: the engine takes none, or this one is none.
    """
    path: Path | None = flags["prompt_audio"]
    demand_prompt(engine, {"prompt_audio": str(path or ""), "prompt_text": flags["prompt_text"]})
    if path is None:
        return {}
    from voicejobs.cli.prompts import prompt_option  # noqa: PLC0415 - few want it, and it needs numpy

    return {"prompt_audio": prompt_option(settings, path, keep=keep), "prompt_text": flags["prompt_text"]}


def _listening(settings: Settings, flags: Mapping[str, Any], bring: Fetch | None) -> dict[str, Any]:
    """Return who listens to what was spoken."""
    model, sha256 = model_choice(settings, "whisper", flags["verify_model"], kind="recogniser", fetch=bring)
    return {"engine": "whisper", "model": model, "model_sha256": sha256}


def split_names(values: Sequence[str]) -> list[str]:
    """Return the names in values that may hold several, parted by commas; each once."""
    names = (name.strip().lower() for value in values for name in value.split(","))
    return list(dict.fromkeys(name for name in names if name))
