"""Words into cues of few short lines, by dynamic programming.

Pieces of text are first cut where a cue never goes on: at a long pause. Inside such a unit every legal way to part it
into cues, and cues into lines, has a cost; the cheapest way is taken. How far a cue can reach is bounded by what fits
on its lines, so that the work grows with the length of the recording and no faster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from voicejobs.formats.breaks import Breaks, ends_sentence
from voicejobs.formats.pieces import Piece, joined
from voicejobs.formats.profiles import Profile
from voicejobs.formats.widths import measure

PAUSE_MS = 700
"""A pause as long as this always ends a cue."""

MOST_PIECES = 100
"""A cue never has more, however long its lines may be."""

_A_CUE = 3.0
_SENTENCE_INSIDE = 4.0
_TOO_SHORT = 8.0
_TOO_FAST_CHAR = 0.12
_MOST_EXCESS = 2.0
_LINE_BREAK = 0.8
_UNBALANCED = 3.0
_TOP_HEAVY = 0.3


@dataclass(frozen=True, slots=True)
class Draft:
    """Hold a cue before its times are put right: when its words are spoken, and its lines."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]


def lay_out(pieces: Sequence[Piece], profile: Profile, breaks: Breaks, label_columns: int, end_ms: int) -> list[Draft]:
    """Return the cues of the pieces of one channel, in order.

    Args:
        pieces: text that stands in one place each.
        profile: the limits.
        breaks: judge of the places between pieces.
        label_columns: width of what is written before the first line of each cue.
        end_ms: end of the recording.
    """
    drafts: list[Draft] = []
    for first, last in _units(pieces):
        after_ms = pieces[last].span[0] if last < len(pieces) else end_ms
        unit = _Unit(pieces[first:last], profile, breaks, label_columns, after_ms)
        drafts.extend(unit.drafts())
    return drafts


def _units(pieces: Sequence[Piece]) -> Iterator[tuple[int, int]]:
    """Yield where units begin and end: a cue never holds a pause."""
    first = 0
    for index in range(1, len(pieces) + 1):
        if index == len(pieces) or pieces[index].span[0] - pieces[index - 1].span[1] >= PAUSE_MS:
            yield first, index
            first = index


class _Unit:
    """Find the cheapest cues of one unit.

    Lines and cues are ranges of pieces, `[first, last)`. `_columns[last] - _columns[first]` is the width of a line,
    with the blank before its first piece, which is taken off again.
    """

    def __init__(
        self, pieces: Sequence[Piece], profile: Profile, breaks: Breaks, label_columns: int, after_ms: int
    ) -> None:
        self._pieces = pieces
        self._profile = profile
        self._label = label_columns
        self._starts = [piece.span[0] for piece in pieces] + [after_ms]
        self._ends = [piece.span[1] for piece in pieces]
        self._breaks = [0.0, *breaks.costs(pieces)]
        self._blanks = [int(piece.is_spaced) for piece in pieces]
        self._columns, self._chars, self._sentences, self._words = [0], [0], [0], [0]
        for piece, blank in zip(pieces, self._blanks, strict=True):
            columns, chars = measure(piece.text)
            self._columns.append(self._columns[-1] + blank + columns)
            self._chars.append(self._chars[-1] + blank + chars)
            self._sentences.append(self._sentences[-1] + ends_sentence(piece.text))
            self._words.append(self._words[-1] + piece.is_word)

    def drafts(self) -> list[Draft]:
        """Return the cues of the cheapest way."""
        count = len(self._pieces)
        best = [0.0] + [float("inf")] * count
        came_from = [0] * (count + 1)
        for first in range(count):
            base = best[first]
            for last, cost in self._reaches(first):
                if base + cost < best[last]:
                    # Costs are never negative, so that the way over the lines is looked at only where it can win.
                    whole = base + cost + self._lines_cost(first, last)
                    if whole < best[last]:
                        best[last], came_from[last] = whole, first
        cuts = [count]
        while cuts[-1]:
            cuts.append(came_from[cuts[-1]])
        cuts.reverse()
        return [self._draft(first, last) for first, last in pairwise(cuts)]

    def _reaches(self, first: int) -> Iterator[tuple[int, float]]:
        """Yield the ends that a cue from `first` on can have, and its cost but for that of its lines."""
        line_first, lines = first, 1
        start = self._starts[first]
        for last in range(first + 1, min(len(self._pieces), first + MOST_PIECES) + 1):
            spoken = self._ends[last - 1] - start
            if not self._fits(line_first, last, first):
                line_first, lines = last - 1, lines + 1
            if last > first + 1 and (lines > self._profile.lines or spoken > self._profile.longest_ms):
                return
            chars = self._chars[last] - self._chars[first] - self._blanks[first]
            inside = self._sentences[last - 1] - self._sentences[first]
            cost = _A_CUE + self._breaks[last] + _SENTENCE_INSIDE * inside
            yield last, cost + self._reading_cost(spoken, self._starts[last] - start, chars + self._label)

    def _reading_cost(self, spoken_ms: int, room_ms: int, chars: int) -> float:
        """Return what it costs that a cue is shown too shortly, as the next one begins `room_ms` after it."""
        profile = self._profile
        needed = max(profile.shortest_ms, chars * 1000 / profile.chars_per_second)
        shown = max(1.0, min(max(spoken_ms, needed), room_ms - profile.gap_ms, profile.longest_ms))
        if shown >= needed:
            return 0.0
        cost = 0.0
        if shown < profile.shortest_ms:
            cost = _TOO_SHORT * (profile.shortest_ms - shown) / profile.shortest_ms
        excess = chars * 1000 / profile.chars_per_second / shown - 1
        return cost + _TOO_FAST_CHAR * chars * min(excess, _MOST_EXCESS) if excess > 0 else cost

    def _fits(self, first: int, last: int, cue_first: int) -> bool:
        """Tell whether pieces fit on a line; one that cannot be parted always does."""
        if last - first == 1:
            return True
        words = self._words[last] - self._words[first] + (not self._pieces[first].is_word)
        if self._profile.line_words is not None and words > self._profile.line_words:
            return False
        return self._width(first, last, cue_first) <= self._profile.line_columns

    def _width(self, first: int, last: int, cue_first: int) -> int:
        """Return the columns of a line; the label stands on the first of its cue."""
        width = self._columns[last] - self._columns[first] - self._blanks[first]
        return width + self._label if first == cue_first else width

    def _lines_cost(self, first: int, last: int) -> float:
        """Return the cost of the best lines of a cue; one line costs nothing."""
        return 0.0 if self._fits(first, last, first) else self._lines(first, last)[0]

    def _lines(self, first: int, last: int) -> tuple[float, tuple[int, ...]]:
        """Return the cost of the best way to part a cue into as few lines as it takes, and where these begin."""
        count = self._fewest_lines(first, last)
        even = self._width(first, last, first) / count
        ways: dict[int, tuple[float, tuple[int, ...]]] = {first: (0.0, (first,))}
        for _ in range(count - 1):
            longer: dict[int, tuple[float, tuple[int, ...]]] = {}
            for begin, (cost, begins) in ways.items():
                for end in range(begin + 1, last):
                    if not self._fits(begin, end, first):
                        break
                    whole = cost + self._line_cost(begin, end, first, even) + _LINE_BREAK * self._breaks[end]
                    if end not in longer or whole < longer[end][0]:
                        longer[end] = (whole, (*begins, end))
            ways = longer
        return min(
            (cost + self._line_cost(begin, last, first, even), begins)
            for begin, (cost, begins) in ways.items()
            if self._fits(begin, last, first)
        )

    def _line_cost(self, first: int, last: int, cue_first: int, even: float) -> float:
        """Return what it costs that a line is not as long as the others; upper lines had better be the shorter."""
        difference = (self._width(first, last, cue_first) - even) / self._profile.line_columns
        return _UNBALANCED * difference * difference + (_TOP_HEAVY if difference > 0 and first == cue_first else 0.0)

    def _fewest_lines(self, first: int, last: int) -> int:
        """Return the number of lines that a cue takes at least."""
        lines, begin = 1, first
        for end in range(first + 1, last + 1):
            if not self._fits(begin, end, first):
                lines, begin = lines + 1, end - 1
        return lines

    def _draft(self, first: int, last: int) -> Draft:
        """Return a cue with its best lines."""
        begins = self._lines(first, last)[1]
        lines = tuple(joined(self._pieces[begin:end]) for begin, end in zip(begins, (*begins[1:], last), strict=True))
        return Draft(self._starts[first], self._ends[last - 1], lines)
