"""Which engine with which model: checked before the work, and fetched for it."""

from typing import Final

import click
from click.core import ParameterSource

from voicejobs.engines.base import EngineKind, EngineSpec
from voicejobs.engines.configured import model_of_settings
from voicejobs.engines.registry import engine_class
from voicejobs.errors import BadOption
from voicejobs.models.catalogue import require_engine
from voicejobs.models.installed import chosen
from voicejobs.models.parts import Progress
from voicejobs.models.pull import ensure
from voicejobs.settings import Settings

_REFUSALS: Final = {
    "recogniser": ("does not recognise speech", "Take whisper, or leave it out."),
    "synthesiser": ("does not speak", "Take piper, or leave it out."),
}


def engine_and_model(
    settings: Settings, engine: str, model: str, *, kind: EngineKind, tell: Progress, fetch: bool
) -> tuple[str, str]:
    """Return the name and the hash of the model that an engine is to load; empty where it needs none.

    Args:
        settings: where models live.
        engine: name of the engine.
        model: what `--model` says.
        kind: what the engine must do.
        tell: called with what the fetching of a model has to say.
        fetch: fetch the model where it is missing, and name it by the hash of the files; otherwise by the catalogue.

    Raises:
        BadOption, UnknownEngine, UnknownModel, ModelUnavailable, ModelCorrupt, DiskFull: see there.
    """
    facts = engine_class(engine).facts(EngineSpec(engine, model.partition("@")[0]))
    if facts.kind != kind:
        what, hint = _REFUSALS[kind]
        raise BadOption(f"The engine {engine!r} {what}", hint=hint)
    if facts.needs_model:
        require_engine(model.partition("@")[0], engine)
        entry = chosen(model, settings)
        return entry.name, ensure(entry, settings, tell).sha256 if fetch else entry.sha256
    if facts.names_model:
        return (model if is_given("model") else model_of_settings(engine, settings)), ""
    return "", ""


def is_given(name: str) -> bool:
    """Tell whether an option has another value than its default: by the command line, a variable or a file."""
    context = click.get_current_context(silent=True)
    return context is None or context.get_parameter_source(name) is not ParameterSource.DEFAULT
