"""Find engines by entry point, so that a third party adds one without touching voicejobs."""

import logging
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from voicejobs.engines.base import EngineClass
from voicejobs.errors import UnknownEngine

GROUP = "voicejobs.engines"
_log = logging.getLogger(__name__)


@cache
def _entries() -> dict[str, EntryPoint]:
    """Return the entry points by name; our own win over a third party that takes the same name."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        if entry.name in found and not entry.value.startswith("voicejobs."):
            _log.warning("engine name taken twice", extra={"engine": entry.name, "ignored": entry.value})
            continue
        found[entry.name] = entry
    return found


@cache
def engine_class(name: str) -> EngineClass:
    """Return the class of the engine called `name`; the module is imported on the first call.

    Raises:
        UnknownEngine: no entry point has the name, or what it names cannot be imported.
    """
    entry = _entries().get(name)
    if entry is None:
        raise UnknownEngine(
            f"no engine is called {name!r}",
            hint=f"Known engines: {', '.join(sorted(_entries()))}.",
            known=sorted(_entries()),
        )
    try:
        found = entry.load()
    except Exception as error:  # whatever a third party's module raises while it is imported
        raise UnknownEngine(
            f"engine {name!r} ({entry.value}) cannot be imported: {error}",
            hint="Install or repair the package that provides it.",
        ) from error
    if not (callable(getattr(found, "facts", None)) and callable(getattr(found, "load", None))):
        raise UnknownEngine(f"engine {name!r} ({entry.value}) has no facts() and load()", hint="See docs/engines.md.")
    return cast("EngineClass", found)


def list_engines() -> list[str]:
    """Return the names of all engines in order, without importing any."""
    return sorted(_entries())


def refresh() -> None:
    """Forget what was found, after packages were added to this process."""
    _entries.cache_clear()
    engine_class.cache_clear()
