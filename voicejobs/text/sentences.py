"""Where sentences end: by punctuation, by blank lines, and by what the language makes of a full stop.

One pass over the text, so that time grows with its length alone. Our own and not a library, because every
character must keep its place and no input may fail: docs/dependencies.md says which was tried.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from voicejobs.text.abbreviations import MAY_END, NEVER_END, ORDINAL_DOT, STARTERS
from voicejobs.text.markup import FILLER
from voicejobs.text.tags import base_language

_CLOSERS = "\"'”’»)\\]}」』）】》〉\\u300f*_" + FILLER
_END = re.compile(
    rf"(?P<wide>[。！？｡][。！？｡…]*[{_CLOSERS}]*)"
    rf"|(?P<mark>[.!?…؟۔।॥։።]+[{_CLOSERS}]*)(?=\s|$|[^\x00-\u2fff])"
    rf"|(?P<break>[ \t{FILLER}]*(?:\r\n|[\n\r\u2028\u2029\x0b\x0c\x85])\s*)"
)
_LINE_END = re.compile("\r\n|[\n\r\u2028\u2029\x0b\x0c\x85]")
_WORD_BEFORE = re.compile(r"[^\s(\[“\"'‘«]{1,24}$")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]", re.UNICODE)
_OPENERS = "\"'“‘«([{「『（¿¡" + FILLER
_JAPANESE_TAIL = frozenset("とっがのにはをで、，")
_BEFORE_NUMBERS = frozenset(("no", "nos", "art", "p"))
"""Abbreviations before a number, and words of their own elsewhere."""
_BEFORE_CHARS = 32
_AHEAD_CHARS = 24
_WRAP_CHARS = 40
_WRAP_SHARE = 0.6
_MAX_ORDINAL_DIGITS = 2


@dataclass(frozen=True, slots=True)
class Span:
    """Name a sentence by its first and its last character plus one; no blanks at its ends."""

    start: int
    end: int
    ends_paragraph: bool = False


def sentences(text: str, language: str) -> list[str]:
    """Return the sentences of a text as written, without the blanks around them."""
    return [text[span.start : span.end] for span in sentence_spans(text, language)]


def sentence_spans(
    text: str, language: str, cuts: Sequence[tuple[int, bool]] = (), *, joins_lines: bool = False
) -> list[Span]:
    """Return where the sentences of a text are; they cover all of it but blanks, in order.

    Args:
        text: may hold `FILLER` where markup is covered up.
        language: code of its language; of unknown ones the punctuation is read as that of English.
        cuts: further places, ascending, where a sentence ends, and whether a paragraph does.
        joins_lines: a single line break never ends a sentence, as in Markdown.
    """
    spans: list[Span] = []
    start = 0
    for end, is_paragraph in _merged(_ends(text, base_language(language), joins_lines=joins_lines), cuts, len(text)):
        first, last = _stripped(text, start, end)
        if first < last:
            spans.append(Span(first, last, is_paragraph))
        elif spans and is_paragraph:
            spans[-1] = Span(spans[-1].start, spans[-1].end, ends_paragraph=True)
        start = end
    return spans


def _merged(
    ends: Iterator[tuple[int, bool]], cuts: Sequence[tuple[int, bool]], length: int
) -> Iterator[tuple[int, bool]]:
    """Yield two ascending runs of ends as one, and the end of the text last."""
    waiting = iter(cuts)
    cut = next(waiting, None)
    for end in ends:
        while cut is not None and cut[0] < end[0]:
            yield cut
            cut = next(waiting, None)
        yield end
    while cut is not None:
        yield cut
        cut = next(waiting, None)
    yield length, True


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a range without the blanks at its ends."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), start + len(part.rstrip())


def _ends(text: str, language: str, *, joins_lines: bool) -> Iterator[tuple[int, bool]]:
    """Yield the places where sentences end, and whether paragraphs do."""
    reader = _Reader(text, language, joins_lines=joins_lines)
    for found in _END.finditer(text):
        if found["break"] is not None:
            if reader.breaks_at(found):
                yield found.end(), len(_LINE_END.findall(found[0])) > 1
        elif reader.is_end(found):
            yield found.end(), False


class _Reader:
    """Decide about one place after the other."""

    def __init__(self, text: str, language: str, *, joins_lines: bool) -> None:
        self._text = text
        self._language = language
        self._joins_lines = joins_lines
        self._has_capitals = any(character.isupper() for character in text)
        self._line_start = 0
        self._paragraph_end = -1
        self._longest_line = 0

    def is_end(self, found: re.Match[str]) -> bool:
        """Tell whether punctuation ends a sentence."""
        following = self._following(found.end())
        closes = found[0].rstrip(_CLOSERS.replace("\\", "")) != found[0].rstrip(FILLER + "*_")
        if found["wide"] is not None:
            return not (closes and following[:1] in _JAPANESE_TAIL and following[:1] != "")
        marks = found["mark"].rstrip(_CLOSERS.replace("\\", ""))
        goes_on = following[:1].islower() and self._has_capitals
        if marks != ".":
            return not (goes_on and (closes or "." in marks or "…" in marks))
        if goes_on or following[:1] in {",", ";", ":", "–", "—"}:
            return False
        return self._dot_ends(found.start(), following)

    def _dot_ends(self, place: int, following: str) -> bool:
        """Tell whether a full stop before a capital, a digit or nothing ends a sentence."""
        before = _WORD_BEFORE.search(self._text[max(0, place - _BEFORE_CHARS) : place].replace(FILLER, ""))
        word = before[0] if before else ""
        if not following or not word:
            return True
        low = word.lower()
        if low in never_end(self._language):
            return low in _BEFORE_NUMBERS and not following[:1].isdigit()
        if word.isdigit():
            return not self._is_ordinal(place - len(word), word)
        if low in may_end(self._language) or (_INITIALS.fullmatch(word) and word not in {"I", "a"}):
            first = re.match(r"[^\W\d_]+", following)
            return len(word) > 1 and first is not None and first[0] in STARTERS.get(self._language, STARTERS["en"])
        return True

    def _is_ordinal(self, place: int, digits: str) -> bool:
        """Tell whether digits with a full stop are an ordinal, or number an item at the start of a line."""
        if len(digits) > _MAX_ORDINAL_DIGITS:
            return False
        head = self._text[max(0, place - _BEFORE_CHARS) : place].replace(FILLER, "").rstrip(" \t")
        return self._language in ORDINAL_DOT or not head or head[-1] in "\n\r"

    def _following(self, place: int) -> str:
        """Return the next letters or digits, without what opens a quotation."""
        ahead = self._text[place : place + _AHEAD_CHARS].replace(FILLER, "").lstrip()
        return ahead.lstrip(_OPENERS) or ahead

    def breaks_at(self, found: re.Match[str]) -> bool:
        """Tell whether the end of a line ends a sentence: not where a paragraph was merely wrapped."""
        if len(_LINE_END.findall(found[0])) > 1:
            return True
        if self._joins_lines:
            return False
        following = self._following(found.end())
        if following[:1].islower():
            return False
        start = self._line_start
        self._line_start = found.end()
        length = found.start() - start
        return length < _WRAP_CHARS or length < _WRAP_SHARE * self._longest(start)

    def _longest(self, place: int) -> int:
        """Return the length of the longest line of the paragraph at `place`; each paragraph is looked at once."""
        if place >= self._paragraph_end:
            blank = self._text.find("\n\n", place)
            self._paragraph_end = blank if blank >= 0 else len(self._text)
            self._longest_line = max(
                (len(line) for line in self._text[place : self._paragraph_end].split("\n")), default=0
            )
        return self._longest_line


@lru_cache(maxsize=64)
def never_end(language: str) -> frozenset[str]:
    """Return abbreviations after whose full stop the sentence goes on."""
    return NEVER_END.get(language, frozenset()) | NEVER_END["any"]


@lru_cache(maxsize=64)
def may_end(language: str) -> frozenset[str]:
    """Return abbreviations whose full stop may end a sentence too."""
    return MAY_END.get(language, frozenset()) | MAY_END["any"]
