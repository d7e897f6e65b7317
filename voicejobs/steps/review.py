"""Look at what a recogniser wrote for a window, decode again where it is in doubt, drop what no sound supports."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from voicejobs.audio.types import Pcm, Segment, Span, WindowResult
from voicejobs.engines.base import RecogniseOptions, Recogniser
from voicejobs.steps import evidence, loops
from voicejobs.steps.plan import Speech
from voicejobs.steps.timing import tightened
from voicejobs.steps.windows import DEFAULT, plan_windows
from voicejobs.units import SAMPLE_RATE_HZ, samples_to_seconds

_PIECE_S = 15.0
"""Length of the pieces in which a window that loops is decoded again."""
_SHORT_PIECE_S = 6.0
"""The same for a window with too little text."""
_THIN_LETTERS_PER_S = 6.0
"""Slower than anybody speaks: passages were left out, or what repeats was written fewer times than it was said."""
_THIN_FROM_S = 6.0
"""Seconds of speech from which a lack of text is noticed."""
_RICHER = 1.4
_SAME_TIMES = 0.6
_GOOD_LOGPROB = -0.8
_GOOD_NO_SPEECH = 0.6
_LEVEL_S = 0.2


@dataclass(frozen=True, slots=True)
class Window:
    """Hold the sound of a window and the speech in it, in samples from its start; None where that is not to count."""

    samples: Pcm
    speech: Sequence[Speech] | None

    @property
    def speech_s(self) -> float:
        """Return the seconds of speech, all of it where nobody measured."""
        length_s = samples_to_seconds(len(self.samples))
        return length_s if self.speech is None else evidence.speech_s(self.speech, 0.0, length_s)


def inside(window: Span, speech: Sequence[Speech] | None) -> list[Speech] | None:
    """Return the speech of a recording, which is in order, that lies in a window, counted from the start of it."""
    if speech is None:
        return None
    found: list[Speech] = []
    for at in range(bisect_right(speech, window.start_samples, key=_end_of), len(speech)):
        span = speech[at].span
        if span.start_samples >= window.end_samples:
            break
        start = max(span.start_samples, window.start_samples) - window.start_samples
        found.append(
            Speech(Span(start, min(span.end_samples, window.end_samples) - window.start_samples), speech[at].peak)
        )
    return found


def _end_of(speech: Speech) -> int:
    """Return where a stretch of speech ends."""
    return speech.span.end_samples


def review(window: Window, heard: WindowResult, recogniser: Recogniser, options: RecogniseOptions) -> WindowResult:
    """Return what was heard in a window, without what was not said.

    Args:
        window: the sound.
        heard: what the recogniser wrote.
        recogniser: asked again where that is in doubt.
        options: those with which it was asked.
    """
    if not heard.segments:
        return heard
    options = replace(options, language=heard.language or options.language)
    heard = _without_prompt(window, heard, recogniser, options)
    loop = loops.find_loop(_text(heard))
    if loop is not None or _is_thin(window, heard):
        heard = _in_pieces(window, heard, loop, recogniser, options)
        heard = _trimmed(window, heard)
    kept = tuple(one for one in heard.segments if not evidence.is_unfounded(one, window.speech))
    segments = evidence.without_echoes(kept)
    return replace(heard, segments=tuple(tightened(segment, window.speech) for segment in segments))


def _without_prompt(
    window: Window, heard: WindowResult, recogniser: Recogniser, options: RecogniseOptions
) -> WindowResult:
    """Decode again without prompt where a passage repeats it: what was said is heard without it too."""
    prompts = [text for text in (options.initial_prompt, options.hotwords) if text.strip()]
    echoes = [one for one in heard.segments if any(evidence.may_repeat(one.text, prompt) for prompt in prompts)]
    if not echoes:
        return heard
    plain = replace(options, initial_prompt="", hotwords="")
    (again,) = recogniser.recognise([window.samples], plain)
    if all(evidence.is_heard_in(one.text, _text(again)) for one in echoes):
        return heard
    return replace(again, language=heard.language, language_probability=heard.language_probability)


def _is_thin(window: Window, heard: WindowResult) -> bool:
    """Tell whether there is far less text than so much speech must have."""
    if window.speech is None or window.speech_s < _THIN_FROM_S:
        return False
    if any(segment.avg_logprob is None for segment in heard.segments):
        return False  # nothing would tell whether a second text is better
    return evidence.weight(_text(heard)) < _THIN_LETTERS_PER_S * window.speech_s


def _in_pieces(
    window: Window, heard: WindowResult, loop: loops.Loop | None, recogniser: Recogniser, options: RecogniseOptions
) -> WindowResult:
    """Decode pieces of a window, cut in pauses, each by itself, and return what is better.

    A phrase that was said again and again is heard as often in the pieces; one that the recogniser fell into is not.
    What it wrote once for many times is heard each time, if the pieces are short.
    """
    pieces = _pieces(window, _SHORT_PIECE_S if loop is None else _PIECE_S)
    if len(pieces) <= 1:
        return heard
    found = recogniser.recognise([window.samples[one.start_samples : one.end_samples] for one in pieces], options)
    moved = [
        segment.shifted(samples_to_seconds(piece.start_samples))
        for piece, result in zip(pieces, found, strict=True)
        for segment in result.segments
        if not evidence.is_unfounded(segment, inside(piece, window.speech))
    ]
    anew = replace(heard, segments=tuple(moved))
    if loop is not None:
        again = loops.find_loop(_text(anew))
        return heard if again is not None and again.times >= _SAME_TIMES * loop.times else anew
    richer = evidence.weight(_text(anew)) >= _RICHER * evidence.weight(_text(heard))
    sure = not any(evidence.Confidence.of(one).is_below(_GOOD_LOGPROB, _GOOD_NO_SPEECH) for one in anew.segments)
    return anew if richer and sure else heard


def _pieces(window: Window, longest_s: float) -> list[Span]:
    """Return the pieces of a window: cut in pauses where those are known, else where it is softest."""
    samples = len(window.samples)
    if window.speech is not None:
        spans = [one.span for one in window.speech]
        return plan_windows(spans, samples, replace(DEFAULT, max_window_s=longest_s, max_gap_s=longest_s))
    if samples_to_seconds(samples) < longest_s:
        return [Span(0, samples)]
    middle = _quietest(window.samples)
    return [Span(0, middle), Span(middle, samples)]


def _trimmed(window: Window, heard: WindowResult) -> WindowResult:
    """Cut a phrase that stands there more often than anybody could say it in that time."""
    loop = loops.find_loop(_text(heard))
    if loop is None:
        return heard
    start_s, end_s = _times_of(heard.segments, loop)
    spoken_s = end_s - start_s if window.speech is None else evidence.speech_s(window.speech, start_s, end_s)
    most = max(1, int(evidence.most_letters(spoken_s) / max(loop.weight, 1.0)))
    if loop.times <= most:
        return heard
    return replace(heard, segments=loops.cut(heard.segments, loop.starts[most], loop.end))


def _times_of(segments: Sequence[Segment], loop: loops.Loop) -> tuple[float, float]:
    """Return when the first segment with a part of the loop begins, and when the last one ends."""
    found: list[Segment] = []
    offset = 0
    for segment in segments:
        if offset < loop.end and offset + len(segment.text) > loop.starts[0]:
            found.append(segment)
        offset += len(segment.text)
    return found[0].start_s, max(segment.end_s for segment in found)


def _quietest(samples: Pcm) -> int:
    """Return the sample in the middle third around which the sound is softest."""
    size = int(_LEVEL_S * SAMPLE_RATE_HZ)
    start, end = len(samples) // 3, 2 * len(samples) // 3
    power = np.square(samples[start:end].astype(np.float64))
    total = np.concatenate([np.zeros(1), np.cumsum(power)])
    sums = total[size:] - total[:-size]
    return start + int(np.argmin(sums)) + size // 2


def _text(heard: WindowResult) -> str:
    """Return the text of all segments."""
    return "".join(segment.text for segment in heard.segments)
