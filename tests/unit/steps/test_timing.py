from hypothesis import given
from hypothesis import strategies as st

from voicejobs.audio.types import Segment, Span, Word
from voicejobs.steps.plan import Speech
from voicejobs.steps.timing import tightened


def speech(*stretches: tuple[float, float]) -> list[Speech]:
    """Return speech in the given seconds."""
    return [Speech(Span(int(start * 16000), int(end * 16000)), 0.9) for start, end in stretches]


def test_a_word_that_lasts_through_a_pause_is_drawn_back() -> None:
    """A pause before or after a word is not part of it; words of a usual length stay as they are."""
    words = (Word(0.0, 1.7, " No."), Word(1.7, 4.0, " and"), Word(4.0, 4.9, " then"))
    found = tightened(Segment(0.0, 4.9, " No. and then", words), speech((0.9, 1.4), (1.7, 2.1), (3.9, 4.2)))
    times = [(round(word.start_s, 2), round(word.end_s, 2)) for word in found.words]
    assert times == [(0.8, 1.6), (1.7, 2.3), (4.0, 4.9)]


def test_a_segment_without_words_begins_and_ends_with_its_speech() -> None:
    """Silence at the beginning of a window does not count, pauses inside do."""
    found = tightened(Segment(0.0, 10.0, " hello there"), speech((2.0, 3.0), (5.0, 6.0)))
    assert (found.start_s, found.end_s) == (1.9, 6.2)


def test_without_speech_times_stay() -> None:
    """Nothing measured, or nothing near: the engine is believed."""
    segment = Segment(0.0, 2.0, " hello", (Word(0.0, 2.0, " hello"),))
    assert tightened(segment, None) == segment
    assert tightened(segment, []) == segment
    assert tightened(segment, speech((5.0, 6.0))) == segment


spans = st.lists(st.integers(0, 300), max_size=8).map(lambda values: sorted(set(values)))


@given(borders=spans, start=st.floats(0, 30), length=st.floats(0, 10), with_word=st.booleans())
def test_times_only_shrink_and_stay_in_order(
    borders: list[int], start: float, length: float, *, with_word: bool
) -> None:
    """Whatever was heard, no time moves outwards, and none ends before it starts."""
    heard = speech(*((one / 10, two / 10) for one, two in zip(borders[::2], borders[1::2], strict=False)))
    end = start + length
    segment = Segment(start, end, " x", (Word(start, end, " x"),) if with_word else ())
    found = tightened(segment, heard)
    parts: list[Segment | Word] = [found, *found.words]
    for part in parts:
        assert start <= part.start_s <= part.end_s <= end
