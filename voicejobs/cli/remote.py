"""What commands with `--server` have in common: which service they talk to, and how its times and errors are shown."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from voicejobs.cli.globals import current
from voicejobs.client.service import Service
from voicejobs.settings import Settings

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

HERE = "none"
"""Stands for no service: the database that the settings name, although they name a service too."""
FINAL = frozenset(("succeeded", "failed", "cancelled", "expired"))
BATCH_FINAL = frozenset(("completed", "failed", "expired", "cancelled"))
PAGE = 100
LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


def server_option(command: _Decorated) -> _Decorated:
    """Add `--server` to a click command."""
    return click.option(
        "--server",
        metavar="URL",
        help="Do it at this voicejobs service, not here; VOICEJOBS_SERVER_KEY or its _FILE holds the key.",
    )(command)


def remote_settings(settings: Settings, server: str | None, *, by_setting: bool = True) -> Settings | None:
    """Return the settings for a service, or None where the command works on the database.

    Args:
        settings: those of the command.
        server: what `--server` says.
        by_setting: whether VOICEJOBS_SERVER_URL alone is enough.
    """
    if server == HERE or not (server or (by_setting and settings.server_url)):
        return None
    found = replace(settings, server_url=server) if server else settings
    host = urlsplit(found.server_url).hostname or ""
    if found.server_key and found.server_url.startswith("http://") and host not in LOOPBACK and not current().quiet:
        click.echo(f"warning: the key goes to {host} in plain text: use https://", err=True)
    return found


def given_flags(flags: Iterable[str]) -> frozenset[str]:
    """Return which of the options of the command that runs were given, on its line or by the configuration."""
    context = click.get_current_context()
    return frozenset(name for name in flags if context.get_parameter_source(name) is not ParameterSource.DEFAULT)


def records(service: Service, path: str, limit: int, **params: Any) -> list[dict[str, Any]]:
    """Return the first `limit` records of a list; the service gives a hundred at once."""
    found: list[dict[str, Any]] = []
    for record in service.pages(path, limit=min(PAGE, limit), **params):
        found.append(record)
        if len(found) >= limit:
            break
    return found


def seconds_of(moment: str | None) -> float | None:
    """Return a time of the service as Unix seconds."""
    return None if moment is None else datetime.fromisoformat(moment).timestamp()


def audio_s(job: Mapping[str, Any]) -> float | None:
    """Return how long the recording of a job is, where that is known."""
    usage = job.get("usage") or {}
    progress = job.get("progress") or {}
    found = usage.get("seconds", progress.get("total_s"))
    return None if found is None else float(found)


def name_of(job: Mapping[str, Any]) -> str:
    """Return how people know the input of a job: the path that was submitted, where it was too long for a name."""
    return str((job.get("metadata") or {}).get("path") or (job.get("source") or {}).get("name") or job["id"])


def counts_of(batch: Mapping[str, Any]) -> dict[str, int]:
    """Return how many jobs of a batch are in which state, those that there are; OpenAI's word for one is ours again."""
    told = {
        ("succeeded" if name == "completed" else name): int(count) for name, count in batch["request_counts"].items()
    }
    return {name: count for name, count in told.items() if count and name != "total"}
