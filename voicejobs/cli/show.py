"""How commands print rows: tables for people, one JSON document for machines."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from voicejobs.store.paths import display_name


def print_json(kind: str, value: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps({"v": 1, kind: value}, ensure_ascii=False, indent=2))


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns of text, as wide as their widest cell; what would move the cursor of a terminal is escaped."""
    table = [list(titles), *[[display_name(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in table) for column in range(len(titles))]
    for row in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def when(seconds: float | None) -> str:
    """Return a time as local text, a dash for none."""
    return "-" if seconds is None else datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float | None) -> str:
    """Return seconds as H:MM:SS or M:SS, a dash for none."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def counts(by_state: Mapping[str, int]) -> str:
    """Return the number of jobs by state as text."""
    return ", ".join(f"{count} {state}" for state, count in sorted(by_state.items())) or "none"
