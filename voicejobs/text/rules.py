"""A rule of reading: a pattern, and what is said for what it finds."""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Rule(NamedTuple):
    """Replace what `pattern` finds by what `words` makes of it."""

    pattern: re.Pattern[str]
    words: Callable[[re.Match[str]], str]


def rule(pattern: str, words: Callable[[re.Match[str]], str], flags: int = 0) -> Rule:
    """Return a rule of a pattern that is not compiled yet."""
    return Rule(re.compile(pattern, flags), words)


def alternatives(texts: Iterable[str]) -> str:
    """Return a pattern for one of several texts, the longest first."""
    return "|".join(re.escape(text) for text in sorted(texts, key=lambda text: (-len(text), text)))
