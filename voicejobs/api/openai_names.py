"""Names of models and voices as OpenAI's clients send them, and what they stand for here.

A name is an alias of the settings, a model of the catalogue, an engine that needs none, or `ENGINE/MODEL`. Nothing else
is a model: no path, no address, and no name that some hub would know.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from voicejobs.engines.base import EngineSpec
from voicejobs.engines.configured import with_settings
from voicejobs.engines.registry import engine_class, list_engines
from voicejobs.errors import BadOption, ModelNotFound, UnknownEngine
from voicejobs.models.catalogue import CATALOGUE, ModelEntry
from voicejobs.settings import Settings

Kind = Literal["recogniser", "synthesiser"]

OPENAI_VOICES: Final = frozenset({
    "alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse",
})  # fmt: skip
"""Voices that programs for OpenAI name; each stands for the first voice of the model, unless the settings say more."""

_ELSEWHERE: Final = frozenset({"openai_voice", "remote_voice"})
"""Engines whose server may know the voices of OpenAI itself."""


@dataclass(frozen=True, slots=True)
class Named:
    """Hold what a name of a model stands for.

    Args:
        name: what requests write.
        kind: what it does.
        engine: name of the engine.
        model: name of its model; empty where it needs none.
        entry: of the catalogue, where it has one.
        alias_of: the name behind an alias.
    """

    name: str
    kind: Kind
    engine: str
    model: str
    entry: ModelEntry | None = None
    alias_of: str = ""


def pairs_of(text: str, setting: str) -> dict[str, str]:
    """Return `NAME=VALUE,NAME=VALUE` as a mapping.

    Raises:
        BadOption: the setting has another form.
    """
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, mark, value = (one.strip() for one in part.partition("="))
        if not (name and mark and value):
            raise BadOption(f"{setting}: {part!r} is not NAME=VALUE", hint="docs/settings.md shows the form.")
        found[name] = value
    return found


def aliases_of(settings: Settings) -> dict[str, str]:
    """Return the aliases of models."""
    return pairs_of(settings.api_aliases, "VOICEJOBS_API_ALIASES")


def named(settings: Settings, name: str, kind: Kind | None = None) -> Named:
    """Return what a name of a model stands for.

    Args:
        settings: the aliases, and which servers there are.
        name: as the request has it.
        kind: what it must do; None for anything.

    Raises:
        ModelNotFound: it stands for nothing that does this.
    """
    alias_of = aliases_of(settings).get(name, "")
    found = _plain(settings, alias_of or name)
    if found is None or (kind is not None and found.kind != kind):
        does = {None: "", "recogniser": " that recognises speech", "synthesiser": " that speaks"}[kind]
        raise ModelNotFound(f"There is no model {name!r}{does}", param="model")
    return Named(name, found.kind, found.engine, found.model, found.entry, alias_of)


def all_named(settings: Settings) -> Iterator[Named]:
    """Yield what requests may name: aliases, models of the catalogue, and engines that are set up and need none."""
    for alias, target in aliases_of(settings).items():
        found = _plain(settings, target)
        if found is not None:
            yield Named(alias, found.kind, found.engine, found.model, found.entry, target)
    for name in CATALOGUE:
        found = _plain(settings, name)
        if found is not None:
            yield found
    for engine in list_engines():
        found = _plain(settings, engine)
        if found is not None and found.name not in CATALOGUE:
            yield found


def _plain(settings: Settings, name: str) -> Named | None:
    """Return what a name stands for that is no alias."""
    entry = CATALOGUE.get(name)
    if entry is not None:
        kind = _kind_of(settings, entry.engine, name)
        return None if kind is None else Named(name, kind, entry.engine, name, entry)
    engine, mark, model = name.partition("/")
    if engine not in list_engines() or (mark and not model):
        return None
    kind = _kind_of(settings, engine, model)
    if kind is None:
        return None
    facts = engine_class(engine).facts(EngineSpec(engine, model))
    if facts.needs_model:
        known = CATALOGUE.get(model)
        return Named(name, kind, engine, model, known) if known is not None and known.engine == engine else None
    return Named(name, kind, engine, model) if facts.names_model or not model else None


def _kind_of(settings: Settings, engine: str, model: str) -> Kind | None:
    """Return what an engine does; None for a detector, and for a client of a server that is not set up."""
    try:
        kind = engine_class(engine).facts(EngineSpec(engine, model)).kind
    except UnknownEngine:
        return None
    if kind == "vad" or dict(with_settings(EngineSpec(engine), settings).params).get("url") == "":
        return None
    return kind


def voice_of(settings: Settings, model: Named, voice: str) -> str:
    """Return the voice of a model that a request means; empty for its first one."""
    given: Mapping[str, str] = pairs_of(settings.api_voices, "VOICEJOBS_API_VOICES")
    if voice in given:
        return given[voice]
    if voice in OPENAI_VOICES and model.engine not in _ELSEWHERE:
        return ""
    return voice
