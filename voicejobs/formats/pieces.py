"""Segments as words with times, whether the engine timed the words or not.

The text is always that of the segment. Where the words of the engine spell the same text they bring their times;
elsewhere the time of the segment is shared out by the width of its words.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest

from voicejobs.audio.types import Segment, Word
from voicejobs.formats.clean import is_blank, one_line
from voicejobs.formats.json_values import rounded_s
from voicejobs.formats.moments import Span, steady
from voicejobs.formats.widths import can_part, has_unspaced, measure, unbroken

Clean = Callable[[str], str]
Times = tuple[float | None, float | None]

CHARS_SPOKEN_PER_SECOND = 15.0
"""Guess for a segment whose length the engine does not say."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Hold text that stands in one place: a word, or the smallest part of one in scripts without blanks.

    Args:
        text: visible, without blanks at its ends.
        span: when it is spoken, in milliseconds.
        is_spaced: whether a blank parts it from the piece before it.
        is_word: whether the engine's word starts here.
        probability: what the engine says of its word.
    """

    text: str
    span: Span
    is_spaced: bool
    is_word: bool = True
    probability: float | None = None


def words_of(segments: Sequence[Segment], limit: int, clean: Clean = one_line) -> list[Piece]:
    """Return the words of segments of one channel, in order, their times within `limit` ms.

    A word is what the engine calls one (and, where it gave none, what blanks part); one without a blank before it
    joins the word before, unless the script has no blanks between words.
    """
    parts: list[_Part] = []
    for segment, following in zip_longest(segments, segments[1:]):
        for part in _parts(segment, following, clean):
            _append(parts, part)
    spans = steady([part.times for part in parts], limit)
    return [
        Piece(part.text, span, part.is_spaced, probability=part.probability)
        for part, span in zip(parts, spans, strict=True)
    ]


def breakable(words: Sequence[Piece]) -> list[Piece]:
    """Return the pieces of words between which a line may end; most words are one."""
    pieces: list[Piece] = []
    for word in words:
        texts = unbroken(word.text)
        if len(texts) == 1:
            pieces.append(word)
            continue
        for number, (text, (start, end)) in enumerate(zip(texts, _shares(texts, word.span), strict=True)):
            span = (int(start or 0), int(end or 0))
            pieces.append(Piece(text, span, word.is_spaced and not number, is_word=not number))
    return pieces


def joined(pieces: Sequence[Piece]) -> str:
    """Return the text of pieces on one line."""
    return "".join(f" {piece.text}" if piece.is_spaced else piece.text for piece in pieces).strip(" ")


@dataclass(slots=True)
class _Part:
    """Hold a word before its times are put in order."""

    text: str
    times: Times
    is_spaced: bool
    probability: float | None = None


def _append(parts: list[_Part], part: _Part) -> None:
    """Add a word, or join it to the one before where nothing may part them."""
    if not parts or part.is_spaced or can_part(parts[-1].text, part.text):
        parts.append(part)
        return
    last = parts[-1]
    last.text += part.text
    last.times = (last.times[0], part.times[1])
    if part.probability is not None:
        last.probability = part.probability if last.probability is None else min(last.probability, part.probability)


def _parts(segment: Segment, following: Segment | None, clean: Clean) -> list[_Part]:
    """Return the words of one segment; what cannot be seen stays with its neighbour."""
    text = clean(segment.text)
    if is_blank(text):
        return []
    spoken = _framed(spelled(text, segment.words, clean), segment) or [(text, _whole(segment, text, following), None)]
    is_spaced = not starts_free(segment.text, text)
    parts: list[_Part] = []
    unseen = ""
    for piece, times, probability in spoken:
        chunks = piece.split(" ")
        for number, (chunk, share) in enumerate(zip(chunks, _shares(chunks, times), strict=True)):
            is_spaced = is_spaced or number > 0
            if is_blank(chunk):
                unseen += chunk
                continue
            parts.append(_Part(unseen + chunk, share, is_spaced, probability))
            unseen, is_spaced = "", False
    parts[-1].text += unseen
    return parts


def starts_free(text: str, cleaned: str) -> bool:
    """Tell whether a segment needs no blank after the one before, as in scripts that have none."""
    return not text[:1].isspace() and has_unspaced(cleaned[:1])


Spoken = tuple[str, Times, float | None]


def spelled(text: str, words: Sequence[Word], clean: Clean) -> list[Spoken]:
    """Return the text cut at its words, each with the blanks before it; nothing if they do not spell the text."""
    squeezed = [(word, "".join(clean(word.text).split())) for word in words]
    if "".join(letters for _, letters in squeezed) != "".join(text.split()):
        return []
    spoken: list[Spoken] = []
    place = 0
    for word, letters in squeezed:
        end, left = place, len(letters)
        while left:
            left -= not text[end].isspace()
            end += 1
        if letters:
            spoken.append((text[place:end], (word.start_s, word.end_s), _finite(word.probability)))
        place = end
    last, times, probability = spoken[-1]
    spoken[-1] = (last + text[place:], times, probability)
    return spoken


def _framed(spoken: list[Spoken], segment: Segment) -> list[Spoken]:
    """Return words of which the first begins and the last ends with the segment, where the engine does not say."""
    if spoken:
        text, (start_s, end_s), probability = spoken[0]
        spoken[0] = (text, (start_s if _is_number(start_s) else segment.start_s, end_s), probability)
        text, (start_s, end_s), probability = spoken[-1]
        spoken[-1] = (text, (start_s, end_s if _is_number(end_s) else segment.end_s), probability)
    return spoken


def _whole(segment: Segment, text: str, following: Segment | None) -> Times:
    """Return the times of a segment; one without a length gets what its text takes to say, until the next begins."""
    start_s, end_s = rounded_s(segment.start_s), rounded_s(segment.end_s)
    if start_s is None or (end_s is not None and end_s > start_s):
        return start_s, end_s
    guess_s = start_s + len(text) / CHARS_SPOKEN_PER_SECOND
    if following is not None and _is_number(following.start_s) and following.start_s > start_s:
        guess_s = min(guess_s, following.start_s)
    return start_s, guess_s


def _shares(texts: Sequence[str], times: Times) -> list[Times]:
    """Return the times of parts of what was said in `times`, by their widths."""
    start_s, end_s = rounded_s(times[0]), rounded_s(times[1])
    if len(texts) == 1 or start_s is None or end_s is None:
        return [times] * len(texts)
    ends = list(accumulate(max(1, measure(text)[0]) if text else 0 for text in texts))
    step_s = (end_s - start_s) / max(1, ends[-1])
    return [(start_s + begin * step_s, start_s + end * step_s) for begin, end in zip([0, *ends], ends, strict=False)]


def _finite(probability: float | None) -> float | None:
    """Return a probability, None for one that is none."""
    return float(probability) if probability is not None and math.isfinite(probability) else None


def _is_number(seconds: float | None) -> bool:
    """Tell whether the engine gave a time."""
    return seconds is not None and math.isfinite(seconds)
