"""Find the phrase that a recogniser writes over and over, and cut what cannot have been said."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from voicejobs.audio.types import Segment
from voicejobs.steps.evidence import is_wide, weight

_LONGEST_PHRASE = 24
"""Words of a phrase that is looked for; wide characters count as words."""
_FEWEST_TIMES = 4
_FEWEST_UNITS = 10
"""Units of all repetitions together: `no, no, no, no` is nothing to wonder about."""


@dataclass(frozen=True, slots=True)
class Loop:
    """Say what repeats: characters `[start, end)` of the text hold `times` times the same phrase.

    Args:
        starts: where each repetition begins, in characters of the joined text.
        end: where the last one ends.
        weight: how much there is to say in one.
    """

    starts: tuple[int, ...]
    end: int
    weight: float

    @property
    def times(self) -> int:
        """Return how often the phrase stands there."""
        return len(self.starts)


def find_loop(text: str) -> Loop | None:
    """Return the repetition that covers most of the text, None where nothing repeats often enough."""
    units = _units(text)
    names = [text[start:end].strip(_MARKS).lower() for start, end in units]
    best: tuple[int, int, int] | None = None  # units covered, first unit, units of the phrase
    for size in range(1, min(_LONGEST_PHRASE, len(units) // _FEWEST_TIMES) + 1):
        covered, first = _longest_run(names, size)
        if covered >= max(_FEWEST_TIMES * size, _FEWEST_UNITS) and (best is None or covered > best[0]):
            best = (covered, first, size)
    if best is None:
        return None
    covered, first, size = best
    starts = tuple(units[first + at][0] for at in range(0, covered, size))
    return Loop(starts, units[first + covered - 1][1], weight(text[starts[0] : starts[1]]))


def cut(segments: Sequence[Segment], start: int, end: int) -> tuple[Segment, ...]:
    """Return the segments without the characters `[start, end)` of their joined text, and without those left empty."""
    kept: list[Segment] = []
    offset = 0
    for segment in segments:
        first, last = (min(max(at - offset, 0), len(segment.text)) for at in (start, end))
        at = list(accumulate((len(word.text) for word in segment.words), initial=0))
        offset += len(segment.text)
        if first == last:
            kept.append(segment)
            continue
        text = segment.text[:first] + segment.text[last:]
        if text.strip(_MARKS):
            words = tuple(word for word, begin in zip(segment.words, at, strict=False) if not first <= begin < last)
            kept.append(replace(segment, text=text, words=words, tokens=()))
    return tuple(kept)


_MARKS = " \t\n.,;:!?\"'()[]-\u2026\u3002\u3001\uff0c\uff01\uff1f"


def _units(text: str) -> list[tuple[int, int]]:
    """Return start and end of each word, and of each wide character, blanks before it included."""
    found: list[tuple[int, int]] = []
    start = 0
    for at, letter in enumerate(text):
        if letter.isspace() and text[start:at].strip():
            found.append((start, at))
            start = at
        elif is_wide(letter) and letter.isalnum():
            found.append((start, at + 1))
            start = at + 1
    if text[start:].strip():
        found.append((start, len(text)))
    return found


def _longest_run(names: Sequence[str], size: int) -> tuple[int, int]:
    """Return how many units the longest repetition of a phrase of `size` units covers, and where it begins."""
    best, first, run = 0, 0, 0
    for at in range(size, len(names)):
        run = run + 1 if names[at] == names[at - size] else 0
        covered = (run // size + 1) * size if run >= size else 0
        if covered > best:
            best, first = covered, at - run + 1 - size
    return best, first
