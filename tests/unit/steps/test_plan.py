import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from voicejobs.audio.types import Span
from voicejobs.steps.plan import Plan, PlanOptions, Speech, plan
from voicejobs.steps.registry import PREPARE
from voicejobs.units import SAMPLE_RATE_HZ

FRAME = 512


def spoken(seconds: float, *stretches: tuple[float, float]) -> tuple[NDArray[np.float32], int]:
    """Return probabilities of a recording with speech in the given seconds, and its samples."""
    samples = int(seconds * SAMPLE_RATE_HZ)
    times = np.arange(-(-samples // FRAME)) * FRAME / SAMPLE_RATE_HZ
    inside = np.any([(times >= start) & (times < end) for start, end in stretches], axis=0)
    return np.where(inside, 0.97, 0.02).astype(np.float32), samples


def planned(seconds: float, *stretches: tuple[float, float], **options: object) -> Plan:
    """Return the plan of such a recording by the options of the step."""
    probabilities, samples = spoken(seconds, *stretches)
    return plan(probabilities, samples, FRAME, PlanOptions.from_step(PREPARE.options(options)))


def seconds_of(windows: list[Span]) -> list[tuple[float, float]]:
    """Return the windows in seconds, rounded."""
    return [(round(one.start_samples / 16000, 1), round(one.end_samples / 16000, 1)) for one in windows]


def test_the_defaults_of_the_step_are_those_of_the_windows() -> None:
    """A job without options is cut as the planner was measured with."""
    assert PlanOptions.from_step(PREPARE.options({})) == PlanOptions()


def test_windows_and_speech_stay_inside_the_clips() -> None:
    """Only the stretches that the user wants are recognised, and times still count from the start of the file."""
    found = planned(60.0, (2.0, 55.0), clips=[[10.0, 12.5], [40.0, None]])
    assert seconds_of(found.windows) == [(10.0, 12.5), (40.0, 55.4)]
    assert found.speech is not None
    assert all(
        any(window.start_samples <= one.span.start_samples < window.end_samples for window in found.windows)
        for one in found.speech
    )


def test_a_clip_behind_the_end_has_nothing_in_it() -> None:
    """A file that is shorter than the others of its batch gives an empty transcript, not an error."""
    assert planned(5.0, (1.0, 4.0), clips=[[60.0, None]]) == Plan([], [])
    assert planned(5.0, (1.0, 4.0), clips=[[3.0, 600.0]]).windows[-1].end_samples == 5 * SAMPLE_RATE_HZ


def test_without_the_filter_everything_is_recognised_and_cut_where_speech_is_least() -> None:
    """Silence is kept, no window is above the limit, and what was measured does not count against the text."""
    found = planned(100.0, (0.0, 20.0), (21.0, 45.0), (46.0, 100.0), vad_filter=False)
    assert found.speech is None
    assert found.windows[0].start_samples == 0
    assert found.windows[-1].end_samples == 100 * SAMPLE_RATE_HZ
    assert all(one.end_samples == two.start_samples for one, two in zip(found.windows, found.windows[1:], strict=False))
    assert all(one.length_samples <= 30 * SAMPLE_RATE_HZ for one in found.windows)
    assert 20.0 <= found.windows[0].end_samples / SAMPLE_RATE_HZ <= 21.1


@pytest.mark.parametrize(
    ("options", "windows"),
    [
        ({}, [(0.0, 20.0)]),
        ({"vad_max_window_s": 8.0}, [(4.6, 7.4), (11.6, 14.4)]),
        ({"vad_pad_ms": 100, "vad_max_window_s": 8.0}, [(4.9, 7.1), (11.9, 14.1)]),
        ({"vad_min_speech_ms": 3000}, []),
        ({"vad_threshold": 0.99}, []),
    ],
)
def test_each_setting_of_the_detector_reaches_the_windows(
    options: dict[str, object], windows: list[tuple[float, float]]
) -> None:
    """Length of windows, padding, shortest speech and threshold change what is planned."""
    if not options:
        assert planned(9.0, (1.9, 3.0), (4.0, 7.4)).windows == [Span(0, 9 * SAMPLE_RATE_HZ)]
        return
    assert seconds_of(planned(20.0, (5.0, 7.0), (12.0, 14.0), **options).windows) == windows


@given(
    probabilities=st.lists(st.floats(0, 1), max_size=3000),
    short_by=st.integers(0, 511),
    borders=st.lists(st.integers(0, 1200), max_size=6),
    vad_filter=st.booleans(),
)
def test_windows_are_ordered_disjoint_and_inside(
    probabilities: list[float], short_by: int, borders: list[int], *, vad_filter: bool
) -> None:
    """Whatever was heard and wanted, no sample is recognised twice, and none that was not wanted."""
    samples = max(0, len(probabilities) * FRAME - short_by)
    rising = sorted({border / 10 for border in borders})
    clips = tuple(zip(rising[::2], rising[1::2], strict=False))
    found = plan(np.asarray(probabilities, np.float32), samples, FRAME, PlanOptions(clips=clips, vad_filter=vad_filter))
    wanted = [(start, end) for start, end in clips] or [(0.0, 1e9)]
    end_before = 0
    for window in found.windows:
        assert end_before <= window.start_samples < window.end_samples <= samples
        assert window.length_samples <= 30 * SAMPLE_RATE_HZ + FRAME
        assert any(
            start * SAMPLE_RATE_HZ - 1 <= window.start_samples and window.end_samples <= end * SAMPLE_RATE_HZ + 1
            for start, end in wanted
        )
        end_before = window.end_samples


def test_speech_survives_json() -> None:
    """What one task writes the next one reads, to a thousandth."""
    one = Speech(Span(512, 1024), 0.8765)
    assert Speech.from_json(one.to_json()) == Speech(Span(512, 1024), 0.876)
