"""Which engine with which model: checked before the work, and fetched for it."""

import click
from click.core import ParameterSource

from voicejobs import choices
from voicejobs.engines.base import EngineKind
from voicejobs.models.catalogue import ModelEntry
from voicejobs.models.parts import Progress
from voicejobs.models.pull import ensure
from voicejobs.settings import Settings


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
    given = model if is_given("model") else ""
    bring = fetching(settings, tell) if fetch else None
    return choices.model_choice(settings, engine, given, kind=kind, default=model, fetch=bring)


def fetching(settings: Settings, tell: Progress) -> choices.Fetch:
    """Return what fetches a model where it is missing, and names it by the hash of its files."""

    def fetch(entry: ModelEntry) -> str:
        return ensure(entry, settings, tell).sha256

    return fetch


def is_given(name: str) -> bool:
    """Tell whether an option has another value than its default: by the command line, a variable or a file."""
    context = click.get_current_context(silent=True)
    return context is None or context.get_parameter_source(name) is not ParameterSource.DEFAULT
