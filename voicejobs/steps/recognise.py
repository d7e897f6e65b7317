"""Recognise the windows of a recording, group by group, with a checkpoint after each."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from voicejobs.audio.types import Pcm, Span, WindowResult
from voicejobs.engines.base import RecogniseOptions, Recogniser

GROUP = 4
"""Windows of one call: enough for two engine processes, few enough to lose little when a worker dies."""
_SURE = 0.5
_LANGUAGE_WINDOWS = 3


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
        read: gives the samples of a window.
        first: index of the first window to do; those before it are done.
        group: windows that go to the recogniser together.
        checkpoint: called after each group with the index of its first window and its results; whatever it
            raises (a lost lease, a cancelled job) ends the work.
        turn: held while the audio of a group, so many samples, is in memory; entering may wait.
    """

    windows: Sequence[Span]
    read: Callable[[Span], Pcm]
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
        known = detect_language(work.windows, work.read, recogniser)
        options = replace(options, language=known[0])
    results: list[WindowResult] = []
    for start in range(work.first, len(work.windows), max(1, work.group)):
        group = work.windows[start : start + max(1, work.group)]
        with work.turn(sum(window.length_samples for window in group)):
            found = recogniser.recognise([work.read(window) for window in group], options)
        if known is not None:
            found = [replace(one, language=known[0], language_probability=known[1]) for one in found]
        work.checkpoint(start, found)
        results += found
    return results


def detect_language(windows: Sequence[Span], read: Callable[[Span], Pcm], recogniser: Recogniser) -> tuple[str, float]:
    """Return the language of the recording and its probability: that of the first window that is sure, else the best.

    Args:
        windows: windows with speech, at least one.
        read: gives the samples of a window.
        recogniser: engine that tells languages apart.
    """
    best = ("", -1.0)
    for window in windows[:_LANGUAGE_WINDOWS]:
        found = recogniser.detect_language(read(window))
        best = max(best, found, key=lambda pair: pair[1])
        if best[1] >= _SURE:
            break
    return best
