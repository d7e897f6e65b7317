"""How the values of recognition options are read; a wrong one is refused before any work.

Each function or class is the `type` of a click option. Values may come from a configuration file too, where numbers are
numbers.
"""

import os
import re
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any

import click

from voicejobs.engines.languages import language_code
from voicejobs.errors import BadOption

Stretch = tuple[float, float | None]
"""Start and end in seconds; None for the end of the recording."""

_TIME = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:[.,]\d+)?|[.,]\d+)s?")
_DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,3})?")
_SIXTY = 60.0


def seconds_of(text: str) -> float:
    """Return the seconds of `90`, `90.5`, `1:30` or `1:02:03.5`.

    Raises:
        ValueError: it is no time.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    hours, minutes, seconds = (float((part or "0").replace(",", ".")) for part in match.groups())
    if not isfinite(hours + minutes) or (match[2] and seconds >= _SIXTY) or (match[1] and minutes >= _SIXTY):
        raise ValueError(text)
    return (hours * _SIXTY + minutes) * _SIXTY + seconds


class OutputFolder(click.Path):
    """Read the name of a folder that outputs go to; `-`, which is standard output elsewhere, is refused."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if str(value) == "-":
            self.fail("'-' is standard output, and this command writes files. Name a folder.", param, ctx)
        return super().convert(value, param, ctx)


class ReadyFile(click.Path):
    """Read the name of a file that is to be written once a service is up; one that cannot be is found before that."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        path = super().convert(value, param, ctx)
        folder = Path(os.fsdecode(path)).absolute().parent
        if not folder.is_dir():
            self.fail(f"there is no folder {str(folder)!r}.", param, ctx)
        if not os.access(folder, os.W_OK | os.X_OK):
            self.fail(f"the folder {str(folder)!r} cannot be written.", param, ctx)
        return path


class FloatRange(click.FloatRange):
    """Read a number within a range; what is no number (`nan`) is within none, and without end (`inf`) is nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is no number.", param, ctx)
        return number


def language(value: Any) -> str:
    """Return the code of a language given by code or English name, or `auto`."""
    context = click.get_current_context(silent=True)
    engine = (context.params if context is not None else {}).get("engine") or "whisper"
    try:
        return language_code(str(value), strict=engine == "whisper") or "auto"
    except BadOption as error:
        raise click.BadParameter(f"{error.message}. {error.hint}") from None


def device(value: Any) -> str:
    """Return `auto`, `cpu` or `cuda:N`."""
    text = str(value).strip().lower()
    if not _DEVICE.fullmatch(text):
        raise click.BadParameter(f"{value!r} is none of auto, cpu, cuda, cuda:0, cuda:1 and so on.")
    return "cuda:0" if text == "cuda" else text


def time(value: Any) -> float:
    """Return a time from the start of the recording, in seconds."""
    try:
        return seconds_of(str(value))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no time: write seconds (90.5), or 1:30, or 1:02:03.5.") from None


def clip(value: Any) -> Stretch:
    """Return the stretch START-END; a side that is left out is the start or the end of the recording."""
    first, dash, last = str(value).strip().partition("-")
    try:
        start_s, end_s = seconds_of(first) if first else 0.0, seconds_of(last) if last else None
    except ValueError:
        raise click.BadParameter(f"{value!r} is no stretch: write START-END, as 90-120, 1:30-2:00 or 90-.") from None
    if not dash or not (first or last):
        raise click.BadParameter(f"{value!r} has no end: write START-END, or START- for all that follows.")
    if end_s is not None and end_s <= start_s:
        raise click.BadParameter(f"{value!r} ends before it begins.")
    return start_s, end_s


def clip_list(value: Any) -> tuple[Stretch, ...]:
    """Return the stretches of whisper's list `start,end,start,end`, whose last end may be left out.

    `0` alone, whisper's default, is the whole recording: nothing.
    """
    try:
        times = [seconds_of(text) for text in str(value).split(",") if text.strip()]
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of times: write start,end,start,end.") from None
    ends: list[float | None] = [*times[1::2], *([None] if len(times) % 2 else [])]
    found = tuple(zip(times[::2], ends, strict=True))
    if times != sorted(times) or any(start_s == end_s for start_s, end_s in found):
        raise click.BadParameter(f"the times of {value!r} do not rise.")
    return () if found == ((0.0, None),) else found


def numbers(low: float, high: float) -> Callable[[Any], tuple[float, ...]]:
    """Return a reader of numbers separated by commas, each within the range."""

    def read(value: Any) -> tuple[float, ...]:
        try:
            found = tuple(float(part) for part in _parts(value))
        except ValueError:
            raise click.BadParameter(f"{value!r} is no list of numbers separated by commas.") from None
        if not found or not all(low <= number <= high for number in found):
            raise click.BadParameter(f"{value!r} is not within {low:g} to {high:g}.")
        return found

    return read


def token_ids(value: Any) -> tuple[int, ...]:
    """Return the token ids of a list separated by commas, which may be empty; -1 stands for a set of symbols."""
    try:
        found = tuple(int(part) for part in _parts(value))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of whole numbers separated by commas.") from None
    if any(number < -1 for number in found):
        raise click.BadParameter(f"{value!r} has a number below -1.")
    return found


def number_or_none(low: float, high: float) -> Callable[[Any], float | str]:
    """Return a reader of a number within the range, or of `none`, which means that there is no limit."""

    def read(value: Any) -> float | str:
        if str(value).strip().lower() == "none":
            return "none"
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise click.BadParameter(f"{value!r} is neither a number nor none.") from None
        if not low <= number <= high:
            raise click.BadParameter(f"{value!r} is not within {low:g} to {high:g}.")
        return number

    return read


def _parts(value: Any) -> list[str]:
    """Return the items of a list that a user wrote, or that a configuration file holds."""
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return [text for item in items if (text := str(item).strip(" ()[]"))]
