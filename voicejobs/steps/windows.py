"""From speech probabilities to spans of speech, and from spans to the windows that a recogniser decodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Span
from voicejobs.units import SAMPLE_RATE_HZ, seconds_to_samples


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """Say what counts as speech and how windows are cut; all times in seconds.

    Args:
        threshold: probability at which speech begins.
        release: probability below which it ends; lower than `threshold`, so that soft syllables stay inside.
        min_speech_s: shorter bursts are clicks; the shortest spoken digits last 0.3 s.
        min_silence_s: shorter pauses do not end a span.
        pad_s: sound kept on both sides of a window: detectors miss soft beginnings and ends.
        edge_s: a window that would begin within this of the beginning of the recording begins there, likewise at
            the end: the silence costs nothing, and recognisers were trained on recordings as they are.
        max_window_s: what a recogniser decodes at once.
        max_gap_s: a longer silence is never inside a window, for recognisers invent text in it.
        good_pause_s: a pause of this length is as good a place to cut as any longer one.
    """

    threshold: float = 0.45
    release: float = 0.2
    min_speech_s: float = 0.09
    min_silence_s: float = 0.1
    pad_s: float = 0.4
    edge_s: float = 2.0
    max_window_s: float = 30.0
    max_gap_s: float = 4.0
    good_pause_s: float = 0.6


DEFAULT = WindowOptions()
MAX_WINDOW_SAMPLES = 30 * SAMPLE_RATE_HZ
"""The longest window that any recogniser takes."""
_BAD_CUT = 0.4
"""Windows that a cut without any pause is worth: two thirds of the windows may not be saved by three bad cuts."""


def speech_spans(
    probabilities: NDArray[np.float32], samples: int, frame_samples: int, options: WindowOptions = DEFAULT
) -> list[Span]:
    """Return the spans of speech, ordered and disjoint, none longer than a window may be.

    Speech that runs on for longer is cut where its probability is lowest, and the two spans touch there.

    Args:
        probabilities: speech probability of each frame, float32, shape (frames,).
        samples: length of the recording; the last frame may reach past it.
        frame_samples: samples of one frame.
        options: thresholds.
    """
    frames = _speech_frames(probabilities, frame_samples, options)
    longest = int((options.max_window_s - 2 * options.pad_s) * SAMPLE_RATE_HZ) // frame_samples
    spans: list[Span] = []
    for start, end in frames:
        borders = [start, *_cuts(probabilities, start, end, longest), end]
        spans += [
            Span(left * frame_samples, min(right * frame_samples, samples))
            for left, right in pairwise(borders)
            if left * frame_samples < samples
        ]
    return spans


def whole_spans(
    probabilities: NDArray[np.float32], samples: int, frame_samples: int, options: WindowOptions = DEFAULT
) -> list[Span]:
    """Return spans that cover the whole recording and touch, cut where speech is least likely.

    Args:
        probabilities: speech probability of each frame, float32, shape (frames,).
        samples: length of the recording; the last frame may reach past it.
        frame_samples: samples of one frame.
        options: limits.
    """
    longest = max(1, int(options.max_window_s * SAMPLE_RATE_HZ) // frame_samples)
    frames = -(-samples // frame_samples)
    borders = [0, *_cuts(probabilities, 0, frames, longest), frames]
    ends = [min(border * frame_samples, samples) for border in borders]
    return [Span(start, end) for start, end in pairwise(ends) if end > start]


def plan_windows(spans: Sequence[Span], samples: int, options: WindowOptions = DEFAULT) -> list[Span]:
    """Return the windows that cover the spans: ordered, disjoint, inside the recording, none above the limit.

    As few windows as possible, since a window costs a recogniser the same whatever its length, unless a few more
    allow to cut in longer pauses. A window is one stretch of the recording, pauses up to `max_gap_s` included.

    Args:
        spans: speech, ordered and disjoint, each shorter than `max_window_s` less twice the padding.
        samples: length of the recording.
        options: limits.
    """
    windows: list[Span] = []
    for first, last in _group(spans, options):
        before = spans[first - 1].end_samples if first else None
        after = spans[last + 1].start_samples if last + 1 < len(spans) else None
        windows.append(_padded(Span(spans[first].start_samples, spans[last].end_samples), before, after, options))
    inside = [Span(max(0, window.start_samples), min(samples, window.end_samples)) for window in windows]
    if inside:
        inside[0] = _to_edge(inside[0], Span(0, inside[0].end_samples), options)
        inside[-1] = _to_edge(inside[-1], Span(inside[-1].start_samples, samples), options)
    return inside


def _speech_frames(
    probabilities: NDArray[np.float32], frame_samples: int, options: WindowOptions
) -> list[tuple[int, int]]:
    """Return `[start, end)` in frames of each span, by a threshold with hysteresis."""
    # Small integers: ten hours have a million frames, and each array here is as long.
    marks = np.full(len(probabilities), -1, np.int8)
    marks[probabilities < options.release] = 0
    marks[probabilities >= options.threshold] = 1
    # A frame between the thresholds goes on with what the last decided frame before it said, the first with silence.
    decided = np.arange(len(marks), dtype=np.int32)
    decided[marks < 0] = 0
    np.maximum.accumulate(decided, out=decided)
    speech = np.pad(np.maximum(marks[decided], 0), 1)
    edges = np.flatnonzero(speech[1:] != speech[:-1])
    pause = options.min_silence_s * SAMPLE_RATE_HZ / frame_samples
    shortest = options.min_speech_s * SAMPLE_RATE_HZ / frame_samples
    merged: list[tuple[int, int]] = []
    for start, end in edges.reshape(-1, 2).tolist():
        if merged and start - merged[-1][1] < pause:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return [(start, end) for start, end in merged if end - start >= shortest]


def _cuts(probabilities: NDArray[np.float32], start: int, end: int, longest: int) -> list[int]:
    """Return frames at which to cut `[start, end)` so that no part has more than `longest` frames."""
    cuts: list[int] = []
    while end - start > longest:
        # In the second half of what fits, so that parts are not needlessly short.
        low = start + longest // 2
        stretch = probabilities[low : start + longest]
        smooth = np.convolve(stretch, np.ones(3) / 3, mode="same")
        smooth[[0, -1]] = 1.0  # the borders of the stretch lack a neighbour
        start = low + int(np.argmin(smooth))
        cuts.append(start)
    return cuts


def _group(spans: Sequence[Span], options: WindowOptions) -> list[tuple[int, int]]:
    """Return first and last span of each window: the cheapest division, found by dynamic programming.

    A window costs 1, and a cut in a pause shorter than `good_pause_s` up to `_BAD_CUT` more.
    """
    limit = seconds_to_samples(options.max_window_s - 2 * options.pad_s)
    bridge = seconds_to_samples(options.max_gap_s)
    best: list[tuple[float, int]] = [(0.0, 0)]  # cost of the spans before this one, first span of their last window
    for last in range(len(spans)):
        choices: list[tuple[float, int]] = []
        first = last
        while True:
            choices.append((best[first][0] + 1.0 + _cut_cost(spans, first, options), first))
            if first == 0 or spans[first].start_samples - spans[first - 1].end_samples > bridge:
                break
            first -= 1
            if spans[last].end_samples - spans[first].start_samples > limit:
                break
        best.append(min(choices))
    groups: list[tuple[int, int]] = []
    end = len(spans)
    while end:
        first = best[end][1]
        groups.append((first, end - 1))
        end = first
    return groups[::-1]


def _cut_cost(spans: Sequence[Span], first: int, options: WindowOptions) -> float:
    """Return what it costs to begin a window with the span `first`."""
    if first == 0:
        return 0.0
    pause = spans[first].start_samples - spans[first - 1].end_samples
    return _BAD_CUT * max(0.0, 1.0 - pause / (options.good_pause_s * SAMPLE_RATE_HZ))


def _padded(window: Span, before: int | None, after: int | None, options: WindowOptions) -> Span:
    """Return the window with its padding, which goes no further than the middle of a pause."""
    pad = seconds_to_samples(options.pad_s)
    left = pad if before is None else min(pad, (window.start_samples - before) // 2)
    right = pad if after is None else min(pad, (after - window.end_samples) // 2)
    return Span(window.start_samples - left, window.end_samples + right)


def _to_edge(window: Span, wider: Span, options: WindowOptions) -> Span:
    """Return `wider`, which reaches an edge of the recording, if it adds little and is no longer than allowed."""
    added = wider.length_samples - window.length_samples
    longest = seconds_to_samples(options.max_window_s)
    near = added <= seconds_to_samples(options.edge_s)
    return wider if near and wider.length_samples <= longest else window
