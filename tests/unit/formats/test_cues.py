"""The times of cues of the profile `plain`, which makes each segment one."""

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from voicejobs.audio.types import Segment, Transcript
from voicejobs.formats.clean import is_blank, one_line
from voicejobs.formats.cues import Cue, cues_of
from voicejobs.formats.options import RenderOptions

CASES = Path(__file__).parents[4] / "shared" / "cases"

times = st.one_of(
    st.floats(-5, 40),
    st.integers(0, 40).map(float),
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0005, 9.9999, 9.99996]),
)
segments = st.builds(Segment, times, times, st.text(max_size=30))
durations = st.one_of(st.floats(0, 40), st.sampled_from([0.0, 0.0004, 0.003, 1.001, 10.0]))


def transcript_of(parts: list[Segment], duration_s: float) -> Transcript:
    """Build a transcript of these segments."""
    return Transcript(segments=tuple(parts), language="en", duration_s=duration_s)


def plain_cues(transcript: Transcript) -> list[Cue]:
    """Return a cue for each segment."""
    return cues_of(transcript, RenderOptions(subtitle_profile="plain"))


@given(st.lists(segments, max_size=12), durations)
@example([Segment(0.0, 1.0, "a"), Segment(0.0, 1.0, "b"), Segment(0.0, 1.0, "c")], 0.002)
@settings(deadline=None)
def test_cues_are_in_order_apart_and_inside(parts: list[Segment], duration_s: float) -> None:
    """Whatever the engine says, starts rise, ends follow starts, nothing overlaps or passes the recording."""
    cues = plain_cues(transcript_of(parts, duration_s))
    for cue in cues:
        assert 0 <= cue.start_ms < cue.end_ms
        assert cue.end_ms <= max(1, duration_s * 1000)
    for earlier, later in pairwise(cues):
        assert earlier.end_ms <= later.start_ms


@given(st.lists(segments, max_size=12), durations)
@settings(deadline=None)
def test_no_text_is_lost(parts: list[Segment], duration_s: float) -> None:
    """The cues hold the words of all segments in their order, and nothing else."""
    cues = plain_cues(transcript_of(parts, duration_s))
    said = [text for part in parts if not is_blank(text := one_line(part.text))]
    assert " ".join(line for cue in cues for line in cue.lines) == " ".join(said)


@given(st.lists(st.tuples(st.integers(200, 9000), st.integers(0, 3000)), min_size=1, max_size=20))
@settings(deadline=None)
def test_good_times_stay(lengths_and_gaps: list[tuple[int, int]]) -> None:
    """Segments in order, apart and 200 ms long or longer keep their times to the millisecond."""
    expected, now = [], 0
    for length, gap in lengths_and_gaps:
        expected.append((now, now + length))
        now += length + gap
    parts = [Segment(start / 1000, end / 1000, f"word {start}") for start, end in expected]
    cues = plain_cues(transcript_of(parts, now / 1000 + 1))
    assert [(cue.start_ms, cue.end_ms) for cue in cues] == expected


@pytest.mark.parametrize("end_s", [3.0, 2.5, math.nan])
def test_a_segment_without_length_can_be_read(end_s: float) -> None:
    """It gets 5/6 s, or what there is until the next one."""
    alone = plain_cues(transcript_of([Segment(3.0, end_s, "so")], 10.0))
    assert [(cue.start_ms, cue.end_ms) for cue in alone] == [(3000, 3833)]
    pressed = plain_cues(transcript_of([Segment(3.0, end_s, "so"), Segment(3.5, 4.0, "what")], 10.0))
    assert [(cue.start_ms, cue.end_ms) for cue in pressed] == [(3000, 3500), (3500, 4000)]


def test_an_overlap_trims_the_earlier() -> None:
    """The cue that began first gives way."""
    cues = plain_cues(transcript_of([Segment(0.0, 4.2, "one"), Segment(3.9, 6.0, "two")], 10.0))
    assert [(cue.start_ms, cue.end_ms) for cue in cues] == [(0, 3900), (3900, 6000)]


def test_more_cues_than_milliseconds_join() -> None:
    """Two milliseconds hold two cues; the third text joins the second."""
    cues = plain_cues(transcript_of([Segment(0.0, 1.0, text) for text in ("a", "b", "c")], 0.002))
    assert [(cue.start_ms, cue.end_ms, cue.text) for cue in cues] == [(0, 1, "a"), (1, 2, "b\nc")]


def test_blank_segments_make_no_cue() -> None:
    """Neither blanks nor control characters alone are worth a subtitle."""
    assert plain_cues(transcript_of([Segment(0.0, 1.0, " \n\x00")], 10.0)) == []


def test_case_segments_times() -> None:
    """The recorded case of broken times comes out in order, and whole."""
    path = CASES / "segments-times" / "segments.json"
    if not path.exists():
        pytest.skip("../shared/cases is not here")
    case = json.loads(path.read_text())
    parts = [Segment(part["start"], part["end"], part["text"]) for part in case["segments"]]
    cues = plain_cues(transcript_of(parts, case["duration"]))
    assert [(cue.start_ms, cue.end_ms, cue.text) for cue in cues] == [
        (0, 3900, "First line."),
        (3900, 4100, "No length."),
        (4100, 6000, "Starts before."),
        (7000, 7833, "Ends before it starts."),
        (8000, 9800, "Past the end."),
        (9800, 10_000, "Rounds to the same."),
    ]
