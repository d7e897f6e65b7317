"""What a shell is offered for the value of an option: names and ids that exist, looked up only when Tab is pressed."""

from contextlib import closing

import click

from voicejobs.cli.globals import current_settings
from voicejobs.errors import VoicejobsError
from voicejobs.settings import Settings

NEWEST = 50


def complete_models(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return names of models."""
    from voicejobs.models.catalogue import CATALOGUE, SHORT_REVISION, revisions  # noqa: PLC0415 - only at Tab, as below

    if "@" not in incomplete:
        return [name for name in CATALOGUE if name.startswith(incomplete)]
    name = incomplete.partition("@")[0]
    entries = revisions(name) if name in CATALOGUE else ()
    return [one for entry in entries if (one := f"{name}@{entry.revision[:SHORT_REVISION]}").startswith(incomplete)]


def complete_formats(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return names of output formats; of a list with commas the last one is completed."""
    from voicejobs.formats import FORMATS  # noqa: PLC0415

    before, comma, begun = incomplete.rpartition(",")
    taken = before.split(",")
    names = [name for name in (*FORMATS, *(() if comma else ("all",))) if name.startswith(begun) and name not in taken]
    return [f"{before}{comma}{name}" for name in names]


def complete_languages(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return codes of languages, and their English names."""
    from voicejobs.audio.languages import LANGUAGES  # noqa: PLC0415

    names = {*LANGUAGES, *LANGUAGES.values()}
    return sorted(name for name in names if name.startswith(incomplete.lower()))


def complete_jobs(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return ids of the newest jobs."""
    return _ids("jobs", incomplete)


def complete_batches(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return ids of the newest batches."""
    return _ids("batches", incomplete)


def _ids(table: str, incomplete: str) -> list[str]:
    """Return the newest ids that begin with what was typed; none where there is no database yet, or no answer."""
    try:
        settings = current_settings()
        if not _may_exist(settings):
            return []
        from voicejobs import queries  # noqa: PLC0415
        from voicejobs.store.database import Database  # noqa: PLC0415

        with closing(Database(settings.effective_database_url, pool_size=1)) as database:
            return queries.newest_ids(database, table, incomplete, NEWEST)
    except VoicejobsError:
        return []


def _may_exist(settings: Settings) -> bool:
    """Tell whether there may be a database: looking for ids must not make one."""
    return bool(settings.database_url) or (settings.state_dir / "voicejobs.db").exists()
