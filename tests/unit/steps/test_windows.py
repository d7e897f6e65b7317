from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from voicejobs.audio.types import Span
from voicejobs.steps.windows import DEFAULT, WindowOptions, plan_windows, speech_spans

FRAME = 512
RATE_HZ = 16000
LIMIT = 30 * RATE_HZ


def probabilities(*stretches: tuple[float, float]) -> NDArray[np.float32]:
    """Return the probabilities of stretches given as (seconds, probability)."""
    parts = [np.full(round(seconds * RATE_HZ / FRAME), value, np.float32) for seconds, value in stretches]
    return np.concatenate(parts)


def plan(found: NDArray[np.float32], options: WindowOptions = DEFAULT) -> tuple[list[Span], list[Span]]:
    """Return spans and windows of a recording that ends with its last frame."""
    samples = found.size * FRAME
    spans = speech_spans(found, samples, FRAME, options)
    return spans, plan_windows(spans, samples, options)


def seconds(spans: list[Span]) -> list[tuple[float, float]]:
    """Return spans in seconds, to a tenth."""
    return [(round(span.start_samples / RATE_HZ, 1), round(span.end_samples / RATE_HZ, 1)) for span in spans]


stretch = st.tuples(st.sampled_from([0.05, 0.1, 0.3, 1.0, 3.0, 8.0, 20.0, 45.0]), st.floats(0, 1))


@given(st.lists(stretch, min_size=1, max_size=25), st.integers(0, FRAME - 1), st.integers(0, 2**31))
def test_windows_cover_all_speech_in_order_and_within_their_limits(
    stretches: list[tuple[float, float]], short_by: int, seed: int
) -> None:
    """Windows are ordered, disjoint, inside the recording, at most 30 s long, and hold every span whole."""
    noise = np.random.default_rng(seed)
    found = np.clip(probabilities(*stretches) + noise.normal(0, 0.1, probabilities(*stretches).size), 0, 1)
    samples = max(1, found.size * FRAME - short_by)
    spans = speech_spans(found.astype(np.float32), samples, FRAME)
    windows = plan_windows(spans, samples)
    for group in (spans, windows):
        assert all(one.end_samples <= two.start_samples for one, two in pairwise(group))
        assert all(0 <= one.start_samples < one.end_samples <= samples for one in group)
        assert all(one.length_samples <= LIMIT for one in group)
    for span in spans:
        holders = [
            window
            for window in windows
            if window.start_samples <= span.start_samples and span.end_samples <= window.end_samples
        ]
        assert len(holders) == 1


@given(st.lists(stretch, min_size=1, max_size=25))
def test_every_frame_above_the_threshold_is_inside_a_window_or_a_click(stretches: list[tuple[float, float]]) -> None:
    """Speech of at least the shortest length is never outside all windows."""
    found = probabilities(*stretches)
    _, windows = plan(found)
    inside = np.zeros(found.size, bool)
    for window in windows:
        inside[window.start_samples // FRAME : -(-window.end_samples // FRAME)] = True
    loud = np.flatnonzero(np.diff(found >= DEFAULT.threshold, prepend=False, append=False)).reshape(-1, 2)
    for start, end in loud:
        if (end - start) * FRAME >= DEFAULT.min_speech_s * RATE_HZ:
            assert inside[start:end].all()


def test_nothing_gives_no_windows() -> None:
    """Silence, a click and an empty recording have no windows."""
    assert plan(probabilities((30.0, 0.02))) == ([], [])
    assert plan(probabilities((1.0, 0.02), (0.064, 0.9), (1.0, 0.02))) == ([], [])
    assert plan(np.zeros(0, np.float32)) == ([], [])


def test_a_spoken_digit_is_kept_whole() -> None:
    """A recording of less than half a second with speech is one window over all of it."""
    _, windows = plan(probabilities((0.064, 0.3), (0.3, 0.9), (0.064, 0.1)))
    assert seconds(windows) == [(0.0, 0.4)]


def test_a_recording_that_fits_one_window_is_decoded_as_it_is() -> None:
    """Short silences at both ends stay; a long one goes, but for the padding."""
    _, windows = plan(probabilities((1.5, 0.0), (10.0, 0.9), (1.5, 0.0)))
    assert seconds(windows) == [(0.0, 13.0)]
    _, windows = plan(probabilities((40.0, 0.0), (5.0, 0.9), (8.0, 0.0)))
    assert seconds(windows) == [(39.6, 45.4)]


def test_cuts_lie_in_pauses_and_prefer_long_ones() -> None:
    """A cut goes into a pause of 0.7 s rather than the later one of 0.2 s."""
    _, windows = plan(probabilities((22.0, 0.9), (0.7, 0.0), (6.0, 0.9), (0.2, 0.0), (15.0, 0.9)))
    assert seconds(windows) == [(0.0, 22.4), (22.4, 43.9)]


def test_as_few_windows_as_possible() -> None:
    """Twelve sentences of 4 s with good pauses fit two windows and no fewer."""
    _, windows = plan(probabilities(*[(4.0, 0.9), (0.7, 0.0)] * 12))
    assert len(windows) == 2


def test_long_silences_are_not_bridged() -> None:
    """Speech on both sides of a minute of silence is two windows, with little of the silence in them."""
    _, windows = plan(probabilities((5.0, 0.9), (60.0, 0.0), (5.0, 0.9)))
    assert seconds(windows) == [(0.0, 5.4), (64.6, 70.0)]


def test_speech_without_a_pause_is_cut_where_it_is_least_certain() -> None:
    """Where no pause exists within 30 s the cut falls on the lowest probability."""
    found = probabilities((25.0, 0.9), (0.096, 0.5), (24.0, 0.9))
    spans, windows = plan(found)
    assert seconds(spans) == seconds(windows)
    assert seconds(windows)[0][1] == pytest.approx(25.05, abs=0.06)


def test_soft_frames_between_the_thresholds_stay_with_the_speech_before_them() -> None:
    """A fading end is speech, the same level out of nothing is not."""
    spans, _ = plan(probabilities((1.0, 0.3), (1.0, 0.9), (1.0, 0.3), (1.0, 0.1)))
    assert seconds(spans) == [(1.0, 3.0)]


def test_a_day_of_speech_is_planned_in_seconds() -> None:
    """Planning is linear in the length of the recording."""
    rng = np.random.default_rng(4)
    found = np.repeat(rng.random(24 * 3600 // 2).astype(np.float32), 62)
    _, windows = plan(found)
    assert windows
