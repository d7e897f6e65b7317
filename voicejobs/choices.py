"""Which engine with which model, and what follows from that: chosen alike for the command line and for servers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from voicejobs.engines.base import EngineKind, EngineSpec
from voicejobs.engines.configured import model_of_settings
from voicejobs.engines.languages import language_code
from voicejobs.engines.registry import engine_class
from voicejobs.errors import BadOption
from voicejobs.formats import RenderOptions, needs_words
from voicejobs.models.catalogue import ModelEntry, model_of, require_engine
from voicejobs.models.installed import chosen
from voicejobs.settings import Settings

DEFAULT_LANGUAGE: Final = "en"
"""Language of a text for which neither a user nor a model says one."""

Fetch = Callable[[ModelEntry], str]
"""Brings a model onto this machine and returns its hash; None takes the hash that the catalogue names."""

_REFUSALS: Final = {
    "recogniser": ("does not recognise speech", "Take whisper, or leave it out."),
    "synthesiser": ("does not speak", "Take piper, or leave it out."),
    "vad": ("does not detect speech", "Take silero, or leave it out."),
}


def model_choice(
    settings: Settings, engine: str, model: str, *, kind: EngineKind, default: str = "", fetch: Fetch | None = None
) -> tuple[str, str]:
    """Return the name and the hash of the model that an engine is to load; empty where it needs none.

    Args:
        settings: where models live, and which ones servers are asked for.
        engine: name of the engine.
        model: the model that was asked for; empty for the default.
        kind: what the engine must do.
        default: model of the catalogue where none was asked for.
        fetch: brings a model here.

    Raises:
        BadOption, UnknownEngine, UnknownModel: as their names say; and what `fetch` raises.
    """
    wanted = model or default
    facts = engine_class(engine).facts(EngineSpec(engine, wanted.partition("@")[0]))
    if facts.kind != kind:
        what, hint = _REFUSALS[kind]
        raise BadOption(f"The engine {engine!r} {what}", hint=hint)
    if facts.needs_model:
        require_engine(wanted.partition("@")[0], engine)
        entry = chosen(wanted, settings)
        return entry.name, fetch(entry) if fetch else entry.sha256
    if facts.names_model:
        return model or model_of_settings(engine, settings), ""
    return "", ""


def demand_prompt(engine: str, options: Mapping[str, Any]) -> None:
    """Refuse the recording of a voice for an engine that would not listen to it, and its words without it.

    Args:
        engine: name of an engine that speaks.
        options: those of the step `synthesise`, as far as they were given.

    Raises:
        BadOption: see there.
    """
    if not (options.get("prompt_audio") or options.get("prompt_text")):
        return
    if not engine_class(engine).facts(EngineSpec(engine)).takes_prompt:
        raise BadOption(
            f"The engine {engine!r} does not speak with the voice of a recording",
            hint="Take cosyvoice, or leave it out.",
        )
    if not options.get("prompt_audio"):
        raise BadOption("prompt_text tells what a recording says, and there is none", hint="Give prompt_audio too.")


def detector_hash(settings: Settings, engine: str, *, fetch: Fetch | None = None) -> str:
    """Return the hash of the model of a detector of speech; empty for one that needs none from the catalogue.

    Raises:
        BadOption: the engine does something else.
        UnknownEngine, UnknownModel: as their names say; and what `fetch` raises.
    """
    facts = engine_class(engine).facts(EngineSpec(engine))
    if facts.kind != "vad":
        what, hint = _REFUSALS["vad"]
        raise BadOption(f"The engine {engine!r} {what}", hint=hint)
    if not facts.needs_model:
        return ""
    entry = chosen(model_of(engine).name, settings)
    return fetch(entry) if fetch else entry.sha256


def wants_words(formats: Sequence[str], render: Mapping[str, Any]) -> bool:
    """Tell whether one of these formats is better with the times of words."""
    profile = render.get("subtitle_profile")
    options = RenderOptions(subtitle_profile=profile) if profile else RenderOptions()
    return any(needs_words(name, options) for name in formats)


def english_only(engine: str, model: str) -> bool:
    """Tell whether a model knows English alone."""
    return engine == "whisper" and model.partition("@")[0].endswith(".en")


def language_tag(text: str) -> str:
    """Return what a user calls a language as a code, with its region where one is named; empty for none and `auto`.

    Raises:
        BadOption: there is no such language.
    """
    code = language_code(text, strict=False)
    if code is None:
        return ""
    region = text.replace("_", "-").partition("-")[2].upper()
    return f"{code}-{region}" if len(region) == 2 and region.isalpha() else code  # noqa: PLR2004 - as in en-GB


def language_of(model: str) -> str:
    """Return the language that a Piper model tells by its name, `en_US-joe-medium`; English for others."""
    head, mark, _ = model.partition("-")
    language, _, region = head.partition("_")
    is_told = bool(mark) and language.isalpha() and len(language) in {2, 3} and len(region) == 2  # noqa: PLR2004
    return f"{language}-{region}" if is_told else DEFAULT_LANGUAGE
