"""Patterns that users write for files: `*`, `?`, `[a-z]`, and `**` for any number of folders; and sizes."""

import fnmatch
import re
from collections.abc import Sequence

from voicejobs.errors import BadOption

_WILD = re.compile(r"[*?\[]")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
KIB = 1024


class Pattern:
    """Match a path below a folder, name by name; `**` stands for any number of folders, also none.

    Args:
        text: the pattern, with `/` between its parts.
        anywhere: whether a pattern of a single part matches at any depth.
    """

    def __init__(self, text: str, *, anywhere: bool = False) -> None:
        self.text = text
        parts = [part for part in text.split("/") if part not in {"", "."}]
        if anywhere and len(parts) == 1 and not text.startswith("/"):
            parts.insert(0, "**")
        self._parts = [None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts]

    def matches(self, relative: str) -> bool:
        """Tell whether the pattern matches the whole of a relative path."""
        return len(self._parts) in self._states_after(relative)

    def may_match_below(self, folder: str) -> bool:
        """Tell whether anything below a folder can match."""
        return any(state < len(self._parts) for state in self._states_after(folder))

    def _states_after(self, relative: str) -> set[int]:
        """Return how many parts of the pattern may be used up by a path."""
        states = self._with_skipped({0})
        for name in relative.split("/"):
            states = self._with_skipped({state for before in states for state in self._step(before, name)})
        return states

    def _step(self, state: int, name: str) -> Sequence[int]:
        """Return where one name leads from a state."""
        if state == len(self._parts):
            return ()
        part = self._parts[state]
        if part is None:
            return (state,)
        return (state + 1,) if part.match(name) else ()

    def _with_skipped(self, states: set[int]) -> set[int]:
        """Add the states in which a `**` stands for nothing."""
        for state in list(states):
            following = state
            while following < len(self._parts) and self._parts[following] is None:
                following += 1
                states.add(following)
        return states


def is_pattern(text: str) -> bool:
    """Tell whether a text has wildcards in it."""
    return _WILD.search(text) is not None


def split_pattern(text: str) -> tuple[str, str]:
    """Return the folder before the first part with wildcards, and the pattern below it."""
    parts = text.split("/")
    first = next(number for number, part in enumerate(parts) if is_pattern(part))
    base = "/".join(parts[:first])
    return base or ("/" if text.startswith("/") else "."), "/".join(parts[first:])


def spelled_ending(text: str) -> str:
    """Return the ending that a pattern names without wildcards, in lower case; empty for none."""
    name = text.rpartition("/")[2]
    ending = name.rpartition(".")[2] if "." in name else ""
    return "" if is_pattern(ending) else ending.lower()


def parse_size(text: str) -> int:
    """Return the bytes of `500`, `20k`, `1.5M`, `2GiB`: powers of 1024.

    Raises:
        BadOption: it is no size.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise BadOption(f"{text!r} is no size", hint="Write bytes, or a number with k, M or G: 20k, 1.5M.")
    return int(float(found[1]) * KIB ** _POWERS[found[2].lower()])
