import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from voicejobs.audio.types import Segment, Span, Transcript, WindowResult, Word
from voicejobs.steps.merge import Piece, language_of, merge


def heard(*texts: tuple[float, float, str], language: str | None = "en") -> WindowResult:
    """Return a result with one word for each segment."""
    return WindowResult(
        tuple(Segment(start, end, text, (Word(start, end, text),)) for start, end, text in texts), language, 0.8
    )


def test_times_count_from_the_start_of_the_recording() -> None:
    """Each segment and word moves by the start of its window, whatever the order of the shards."""
    pieces = [
        Piece([Span(480000, 640000)], [heard((0.5, 1.0, " three"))]),
        Piece(
            [Span(16000, 160000), Span(160000, 320000)],
            [heard((0.0, 1.0, " one")), heard((2.0, 3.0, " two"))],
        ),
    ]
    found = merge(pieces, 40.0)
    assert [(one.text, one.start_s, one.end_s) for one in found] == [
        (" one", 1.0, 2.0),
        (" two", 12.0, 13.0),
        (" three", 30.5, 31.0),
    ]
    assert [one.words[0].start_s for one in found] == [1.0, 12.0, 30.5]
    assert found[0].channel is None


def test_channels_are_interleaved_by_time_and_named_on_every_word() -> None:
    """A call of two speakers becomes one conversation."""
    window = [Span(0, 160000)]
    left = Piece(window, [heard((0.0, 2.0, " hello"), (6.0, 7.0, " fine"))], channel=0)
    right = Piece(window, [heard((3.0, 4.0, " hi"), (6.0, 8.0, " good"))], channel=1)
    found = merge([right, left], 10.0)
    assert [(one.text, one.channel) for one in found] == [(" hello", 0), (" hi", 1), (" fine", 0), (" good", 1)]
    assert [word.channel for one in found for word in one.words] == [0, 1, 0, 1]


times = st.floats(-1.0, 40.0)


spans_of_words = st.lists(st.tuples(times, times), max_size=8)


@given(
    windows=st.lists(st.lists(st.tuples(times, times, spans_of_words), max_size=4), max_size=4),
    channels=st.lists(st.integers(0, 1), min_size=4, max_size=4),
    duration_s=st.floats(0.0, 90.0),
)
def test_no_time_is_out_of_order_or_outside_the_recording(
    windows: list[list[tuple[float, float, list[tuple[float, float]]]]], channels: list[int], duration_s: float
) -> None:
    """Whatever an engine says, nothing ends before it starts or after the end, goes backwards, or leaves its segment.

    Words of a channel do not overlap either, and none is lost.
    """
    pieces = []
    for number, (segments, channel) in enumerate(zip(windows, channels, strict=False)):
        made = [
            Segment(start, end, "x", tuple(Word(first, last, "x") for first, last in spans))
            for start, end, spans in segments
        ]
        pieces.append(
            Piece([Span(number * 320000, number * 320000 + 480000)], [WindowResult(tuple(made))], channel=channel)
        )
    found = merge(pieces, duration_s)
    assert len(found) == sum(len(segments) for segments in windows)
    assert all(one.start_s <= two.start_s for one, two in pairwise(found))
    for channel in (0, 1):
        mine = [segment for segment in found if segment.channel == channel]
        words = [word for segment in mine for word in segment.words]
        both: tuple[Sequence[Segment | Word], ...] = (mine, words)
        for sequence in both:
            assert all(0 <= part.start_s <= part.end_s <= duration_s for part in sequence)
            assert all(one.end_s <= two.start_s for one, two in pairwise(sequence))
        for segment in mine:
            assert all(segment.start_s <= word.start_s <= word.end_s <= segment.end_s for word in segment.words)
    assert sum(len(one.words) for one in found) == sum(len(spans) for segments in windows for _, _, spans in segments)


def test_the_earlier_word_gives_way() -> None:
    """A word that an engine draws out over the next one ends where that begins, and so does its segment."""
    first = Segment(0.0, 5.0, " one", (Word(0.0, 5.0, " one"),))
    second = Segment(3.0, 6.0, " two", (Word(3.0, 4.0, " two"),))
    one, two = merge([Piece([Span(0, 160000)], [WindowResult((first, second))])], 10.0)
    assert (one.end_s, one.words[0].end_s, two.start_s, two.end_s) == (3.0, 3.0, 3.0, 4.0)


def test_the_language_is_that_of_most_windows_with_text() -> None:
    """An empty window has no say, and without any window there is no language."""
    spans = [Span(0, 10)] * 4
    results = [heard(language="ja"), heard(language="ja"), heard((0.0, 0.1, "a")), heard((0.0, 0.1, "b"))]
    assert language_of([Piece(spans, results)]) == ("en", 0.8)
    assert language_of([Piece(spans[:1], [heard(language="ja")])]) == ("ja", 0.8)
    assert language_of([]) == (None, None)
    assert language_of([Piece(spans[:1], [replace(heard(language="ja"), language_probability=None)])]) == ("ja", None)


def test_a_dumped_transcript_reads_back() -> None:
    """What `dump` writes is the JSON of `to_json`, and gives the same transcript again."""
    segments = (Segment(0.0, 1.0, " ein", words=(Word(0.0, 1.0, " ein", 0.5),), tokens=(1, 2)), Segment(1.0, 2.0, " ü"))
    for transcript in (Transcript(segments, "de", 2.0, warnings=("damaged_passages",)), Transcript((), None, 0.0)):
        data = json.loads(transcript.dump())
        assert data == transcript.to_json()
        assert Transcript.from_json(data) == transcript
