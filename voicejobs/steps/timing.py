"""Draw times that reach into silence back to the speech: recognisers let words and segments last through pauses."""

from collections.abc import Sequence
from dataclasses import replace

from voicejobs.audio.types import Segment, Word
from voicejobs.steps.plan import Speech
from voicejobs.units import samples_to_seconds

_LONG_WORD_S = 1.0
"""Longer words hold a pause; shorter ones are left alone, for the detector is no finer than that."""
_BEFORE_S = 0.1
_AFTER_S = 0.2
"""What is left on both sides: detectors miss soft beginnings and ends."""

_Times = tuple[float, float]


def tightened(segment: Segment, speech: Sequence[Speech] | None) -> Segment:
    """Return the segment with its times, and those of its long words, drawn back to the speech in them.

    Args:
        segment: times as those of `speech`.
        speech: speech in the window, in order; None where nobody measured.
    """
    if not speech:
        return segment
    spans = [(samples_to_seconds(one.span.start_samples), samples_to_seconds(one.span.end_samples)) for one in speech]
    words = tuple(_tightened_word(word, spans) for word in segment.words)
    inside = _overlapping(segment.start_s, segment.end_s, spans)
    if words or not inside:
        return replace(segment, words=words)
    start_s, end_s = _within(segment.start_s, segment.end_s, (inside[0][0], inside[-1][1]))
    return replace(segment, start_s=start_s, end_s=end_s)


def _tightened_word(word: Word, spans: Sequence[_Times]) -> Word:
    """Return a long word with the times of the stretch of speech that it shares most with."""
    inside = _overlapping(word.start_s, word.end_s, spans)
    if word.end_s - word.start_s <= _LONG_WORD_S or not inside:
        return word
    best = max(inside, key=lambda span: min(span[1], word.end_s) - max(span[0], word.start_s))
    start_s, end_s = _within(word.start_s, word.end_s, best)
    return replace(word, start_s=start_s, end_s=end_s)


def _overlapping(start_s: float, end_s: float, spans: Sequence[_Times]) -> list[_Times]:
    """Return the spans that share time with an interval."""
    return [span for span in spans if span[0] < end_s and span[1] > start_s]


def _within(start_s: float, end_s: float, span: _Times) -> _Times:
    """Return the interval cut to a span and a little around it."""
    return max(start_s, span[0] - _BEFORE_S), min(end_s, span[1] + _AFTER_S)
