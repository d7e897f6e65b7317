"""Plan a text into pieces for a synthesiser: sentences, and where those are too long, parts of them."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

from voicejobs.errors import EmptyText
from voicejobs.text.check import is_sayable, require_text
from voicejobs.text.markup import FILLER, Break, Masked, mask
from voicejobs.text.reading import read_out
from voicejobs.text.sentences import sentence_spans

DEFAULT_MAX_CHARS = 240
SENTENCE_PAUSE_S = 0.25
PARAGRAPH_PAUSE_S = 0.6
CLAUSE_PAUSE_S = 0.1
_MIN_CHARS = 8
_SPOKEN_FACTOR = 2
_CLAUSE = re.compile(r"[;:,–—)\]](?=\s)|[，、；：]|(?<=\s)[–—-](?=\s)")
_BLANK = re.compile(r"\s+")
_JOINED = frozenset(("Mn", "Me", "Mc", "Cf", "Sk"))


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Hold a piece of a text that is spoken in one go.

    Args:
        text: as written, markup included.
        spoken: as it is read out.
        pause_after_s: silence after it, in seconds; 0 for the last one.
        start_char: place of its first character in the whole text.
        end_char: place after its last one.
    """

    text: str
    spoken: str
    pause_after_s: float
    start_char: int
    end_char: int


@dataclass(frozen=True, slots=True)
class _Part:
    """Name a part of the text, and the pause after it."""

    start: int
    end: int
    pause_s: float


def plan_pieces(
    text: str,
    language: str,
    max_chars: int = DEFAULT_MAX_CHARS,
    *,
    sentence_pause_s: float = SENTENCE_PAUSE_S,
    paragraph_pause_s: float = PARAGRAPH_PAUSE_S,
    markup: str = "plain",
) -> list[TextPiece]:
    """Return the pieces of a text, in order; together they cover every character that is not blank, once.

    Sentences are pieces. Those longer than `max_chars` are cut after punctuation inside them, else at blanks, else
    anywhere; what is read out is at most twice as long, save for a single word that cannot be cut. What cannot be
    said, such as markup or emoji, belongs to the piece before it. Time grows with the length of the text.

    Args:
        text: the whole text.
        language: code of its language, `en-GB` as well as `en`.
        max_chars: length of a piece as written, at most; markup within it counts.
        sentence_pause_s: silence after a sentence, in seconds.
        paragraph_pause_s: silence after a paragraph, in seconds.
        markup: `plain`, `markdown` or `ssml`.

    Raises:
        BadText: it is no text.
        BadOption: there is no such markup.
        EmptyText: there is nothing in it that can be said.
    """
    masked = mask(require_text(text), markup)
    limit = max(_MIN_CHARS, max_chars)
    pauses = _Pauses(masked, sentence_pause_s, paragraph_pause_s, joins_lines=markup == "markdown")
    pieces: list[TextPiece] = []
    for part in _joined(masked.text, pauses.parts(language)):
        for short in _cut(masked.text, part, limit):
            pieces += _spoken(text, masked.text, short, language, _SPOKEN_FACTOR * limit)
    return _covering(text, pieces)


class _Pauses:
    """Find the sentences of a text, and how long the silence after each is."""

    def __init__(self, masked: Masked, sentence_s: float, paragraph_s: float, *, joins_lines: bool) -> None:
        self._masked = masked
        self._sentence_s = sentence_s
        self._paragraph_s = paragraph_s
        self._joins_lines = joins_lines

    def parts(self, language: str) -> Iterator[_Part]:
        """Yield the sentences."""
        breaks = self._masked.breaks
        cuts = [(one.place, one.is_paragraph) for one in breaks]
        spans = sentence_spans(self._masked.text, language, cuts, joins_lines=self._joins_lines)
        asked = 0
        for number, span in enumerate(spans):
            next_start = spans[number + 1].start if number + 1 < len(spans) else len(self._masked.text)
            pause_s = self._paragraph_s if span.ends_paragraph else self._sentence_s
            wanted: list[Break] = []
            while asked < len(breaks) and breaks[asked].place <= next_start:
                if breaks[asked].place >= span.end:
                    wanted.append(breaks[asked])
                asked += 1
            given = [one.pause_s for one in wanted if one.pause_s is not None]
            yield _Part(span.start, span.end, max(given) if given else pause_s)


def _joined(masked: str, parts: Iterator[_Part]) -> Iterator[_Part]:
    """Yield the parts in which something can be said; the pause of one without it goes to the part before."""
    waiting: _Part | None = None
    for part in parts:
        if is_sayable(masked[part.start : part.end].replace(FILLER, "")):
            if waiting is not None:
                yield waiting
            waiting = part
        elif waiting is not None:
            waiting = replace(waiting, pause_s=max(waiting.pause_s, part.pause_s))
    if waiting is not None:
        yield waiting


def _cut(masked: str, part: _Part, limit: int) -> Iterator[_Part]:
    """Yield a part in pieces of at most `limit` characters."""
    start = part.start
    if part.end - start > limit:
        clauses = [found.end() for found in _CLAUSE.finditer(masked, start, part.end)]
        blanks = [found.start() for found in _BLANK.finditer(masked, start, part.end)]
        while part.end - start > limit:
            clause = _last(clauses, start + limit // 3, start + limit)
            end = clause or _last_good_blank(masked, blanks, start, start + limit) or _anywhere(masked, start, limit)
            yield _Part(start, end, CLAUSE_PAUSE_S if clause else 0.0)
            start = _after_blanks(masked, end, part.end)
    if start < part.end:
        yield _Part(start, part.end, part.pause_s)


def _after_blanks(masked: str, place: int, end: int) -> int:
    """Return the first place from `place` on where there is no blank, `end` at most."""
    found = _BLANK.match(masked, place, end)
    return found.end() if found else place


def _last(places: list[int], lowest: int, highest: int) -> int:
    """Return the last place above `lowest` and not above `highest`; 0 for none."""
    found = bisect_left(places, highest + 1) - 1
    return places[found] if found >= 0 and places[found] > lowest else 0


def _last_good_blank(masked: str, blanks: list[int], start: int, highest: int) -> int:
    """Return the last blank to cut at, one that does not part a number from what it counts if there is another."""
    found = bisect_left(blanks, highest + 1) - 1
    if found < 0 or blanks[found] <= start:
        return 0
    if masked[blanks[found] - 1].isdigit() and found > 0 and blanks[found - 1] > start:
        return blanks[found - 1]
    return blanks[found]


def _anywhere(masked: str, start: int, limit: int) -> int:
    """Return where a word without end is cut: not before a mark that belongs to the letter before it."""
    end = start + limit
    while end > start + 1 and (
        unicodedata.category(masked[end]) in _JOINED or masked[end - 1] == "\u200d" or masked[end] == FILLER
    ):
        end -= 1
    return end if end > start + 1 else start + limit


def _spoken(text: str, masked: str, part: _Part, language: str, limit: int) -> Iterator[TextPiece]:
    """Yield a part as pieces whose spoken text is not much longer than the limit: numbers grow when read out."""
    waiting = [part]
    while waiting:
        one = waiting.pop()
        spoken = read_out(masked[one.start : one.end].replace(FILLER, ""), language)
        middle = _middle_blank(masked, one) if len(spoken) > limit else 0
        if middle:
            waiting += [
                _Part(_after_blanks(masked, middle, one.end), one.end, one.pause_s),
                _Part(one.start, middle, 0.0),
            ]
        else:
            yield TextPiece(text[one.start : one.end], spoken, one.pause_s, one.start, one.end)


def _middle_blank(masked: str, part: _Part) -> int:
    """Return the blank nearest to the middle; 0 where there is none."""
    middle = (part.start + part.end) // 2
    blanks = [found.start() for found in _BLANK.finditer(masked, part.start, part.end)]
    return min(blanks, key=lambda place: abs(place - middle), default=0)


def _covering(text: str, pieces: list[TextPiece]) -> list[TextPiece]:
    """Return the pieces that say something, stretched over what lies between them.

    Raises:
        EmptyText: there are none.
    """
    sayable: list[TextPiece] = []
    for piece in pieces:
        if is_sayable(piece.spoken):
            sayable.append(piece)
        elif sayable:
            sayable[-1] = replace(sayable[-1], pause_after_s=max(sayable[-1].pause_after_s, piece.pause_after_s))
    if not sayable:
        raise EmptyText(f"The text {'holds nothing that can be said' if text.strip() else 'is empty'}")
    covering: list[TextPiece] = []
    for number, piece in enumerate(sayable):
        is_last = number + 1 == len(sayable)
        start = piece.start_char if number else 0
        end = len(text) if is_last else sayable[number + 1].start_char
        part = text[start:end]
        first, last = start + len(part) - len(part.lstrip()), start + len(part.rstrip())
        pause_s = 0.0 if is_last else piece.pause_after_s
        covering.append(TextPiece(text[first:last], piece.spoken, pause_s, first, last))
    return covering
