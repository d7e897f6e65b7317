"""Lengths of time as people write them."""

import re
from typing import Any

import click

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.IGNORECASE)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_CENTURY_S = 3.2e9


class Duration(click.ParamType[float]):
    """Read a length of time such as 30m, 12h, 2d or 2w, in seconds.

    Args:
        name: what an error calls it: an age, a duration.
        is_positive: whether none at all is refused.
    """

    def __init__(self, name: str = "duration", *, is_positive: bool = False) -> None:
        self.name = name
        self.is_positive = is_positive

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        if isinstance(value, float):
            return value
        match = _DURATION.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no {self.name}: write a number and s, m, h, d or w, such as 30d.", param, ctx)
        seconds = float(match[1]) * _SECONDS[match[2].lower()]
        if seconds > _CENTURY_S or (self.is_positive and not seconds):
            self.fail(f"{value!r} is too {'short' if not seconds else 'long'}.", param, ctx)
        return seconds
