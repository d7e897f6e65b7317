"""Recognise the windows of a recording, group by group, with a checkpoint after each."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise

from voicejobs.audio.types import Pcm, Span, WindowResult
from voicejobs.engines.base import RecogniseOptions, Recogniser
from voicejobs.steps.plan import Speech
from voicejobs.steps.review import Window, inside, review

GROUP = 4
"""Windows of one call: enough for two engine processes, few enough to lose little when a worker dies."""
_SURE = 0.8
_ENOUGH = 2
_LANGUAGE_WINDOWS = 5


def _no_turn(samples: int) -> AbstractContextManager[None]:
    """Wait for nothing."""
    return nullcontext()


def _no_checkpoint(first: int, results: list[WindowResult]) -> None:
    """Keep nothing."""


@dataclass(frozen=True, slots=True)
class Work:
    """Say which windows to recognise.

    Args:
        windows: windows of the recording, or of one shard of it.
        speech: speech in the recording, where that is to count (see `review`).
        read: gives the samples of a window.
        doubt: look at the text beside the speech; False for an engine whose text has no likely length.
        first: index of the first window to do; those before it are done.
        group: windows that go to the recogniser together.
        checkpoint: called after each group with the index of its first window and its results; whatever it
            raises (a lost lease, a cancelled job) ends the work.
        turn: held while the audio of a group, so many samples, is in memory; entering may wait.
    """

    windows: Sequence[Span]
    read: Callable[[Span], Pcm]
    speech: Sequence[Speech] | None = None
    doubt: bool = True
    first: int = 0
    group: int = GROUP
    checkpoint: Callable[[int, list[WindowResult]], None] = _no_checkpoint
    turn: Callable[[int], AbstractContextManager[None]] = _no_turn


def recognise(work: Work, recogniser: Recogniser, options: RecogniseOptions) -> list[WindowResult]:
    """Return the result of each window from `work.first` on, times counted from the start of its window.

    Where `options.language` is None the language is told once, from the first windows, for all of them: a passage
    must not be translated or spelt differently because its own window was hard to tell. A recording of one window
    leaves that to the engine, in the same pass.
    """
    known: tuple[str, float] | None = None
    if options.language is None and len(work.windows) > 1 and work.first < len(work.windows):
        known = detect_language(language_windows(work.windows, work.speech), work.read, recogniser)
        options = replace(options, language=known[0])
    results: list[WindowResult] = []
    for start in range(work.first, len(work.windows), max(1, work.group)):
        group = work.windows[start : start + max(1, work.group)]
        with work.turn(sum(window.length_samples for window in group)):
            sounds = [work.read(window) for window in group]
            found = recogniser.recognise(sounds, options)
            if work.doubt:
                found = [
                    review(Window(sound, inside(window, work.speech)), heard, recogniser, options)
                    for window, sound, heard in zip(group, sounds, found, strict=True)
                ]
        if known is not None:
            found = [replace(one, language=known[0], language_probability=known[1]) for one in found]
        work.checkpoint(start, found)
        results += found
    return results


def language_windows(windows: Sequence[Span], speech: Sequence[Speech] | None = None) -> list[Span]:
    """Return the windows from which to tell the language: spread over the recording, those with most speech."""
    parts = min(_LANGUAGE_WINDOWS, len(windows))
    borders = [len(windows) * part // parts for part in range(parts + 1)] if parts else []
    return [
        max(windows[first:last], key=lambda window: _speech_samples(window, speech))
        for first, last in pairwise(borders)
    ]


def _speech_samples(window: Span, speech: Sequence[Speech] | None) -> int:
    """Return how much speech a window has; its length where nobody measured."""
    found = inside(window, speech)
    return window.length_samples if found is None else sum(one.span.length_samples for one in found)


def detect_language(windows: Sequence[Span], read: Callable[[Span], Pcm], recogniser: Recogniser) -> tuple[str, float]:
    """Return the language of the recording and its probability.

    Each window votes with its probability, the mean of the winner over all that voted is the probability. The vote
    ends early when two windows agree and are sure: a jingle or a quotation at the beginning decides nothing alone.

    Args:
        windows: windows with speech, at least one.
        read: gives the samples of a window.
        recogniser: engine that tells languages apart.
    """
    votes: dict[str, float] = {}
    count = 0
    for window in windows:
        language, probability = recogniser.detect_language(read(window))
        votes[language] = votes.get(language, 0.0) + probability
        count += 1
        if count >= _ENOUGH and len(votes) == 1 and votes[language] >= _SURE * count:
            break
    best = max(votes, key=lambda code: votes[code])
    return best, votes[best] / count
