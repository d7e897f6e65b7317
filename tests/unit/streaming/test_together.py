"""What was heard in a joined window goes back to its segments."""

from voicejobs.audio.types import Segment, Span, Word
from voicejobs.streaming.together import Part, shares


def parts(*windows_s: tuple[int, int]) -> list[Part]:
    """Return parts with these windows in seconds."""
    return [
        Part(number, Span(start_s * 16_000, end_s * 16_000), []) for number, (start_s, end_s) in enumerate(windows_s, 1)
    ]


def test_words_go_to_the_segment_in_whose_time_they_are() -> None:
    """A sentence that reaches over a pause is shared out by words, each piece with its own text and times."""
    words = (Word(0.5, 1.0, " one"), Word(1.2, 1.8, " two"), Word(4.1, 4.5, " three"))
    sentence = Segment(0.5, 4.5, " one two three", words, tokens=(1, 2, 3), avg_logprob=-0.2)
    first, second = shares([sentence], parts((0, 2), (4, 6)))
    assert [(one.text, one.start_s, one.end_s, one.avg_logprob) for one in first] == [(" one two", 0.5, 1.8, -0.2)]
    assert [(one.text, one.start_s, one.end_s) for one in second] == [(" three", 4.1, 4.5)]


def test_segments_without_words_go_as_a_whole() -> None:
    """Without word times the middle of a segment decides."""
    found = shares([Segment(0.5, 1.5, " one"), Segment(3.0, 5.0, " two")], parts((0, 2), (4, 6), (8, 9)))
    assert [[one.text for one in share] for share in found] == [[" one"], [" two"], []]
