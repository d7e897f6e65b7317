import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicejobs.audio.types import Segment
from voicejobs.errors import BadOption, EmptyText
from voicejobs.steps.lines import GAP_S, Line, LineOptions, lines_of, replaced, shards, timed_lines

OPTIONS = LineOptions(240, 0.25, 0.6)


def test_lines_come_back_from_their_json() -> None:
    """Whatever a line says, and nothing of it twice."""
    for line in (Line("12", "twelve", 0.3), Line("a", "a", 0.0, 1.5, 2.0)):
        assert Line.from_json(line.to_json()) == line
    assert set(Line("a", "a").to_json()) == {"text", "pause_after_s"}


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60))
def test_shards_hold_every_line_once(sizes: list[int]) -> None:
    """Lines keep their order; no shard is empty, nor longer than allowed unless it has one line."""
    lines = [Line(f"{number}", "x" * size) for number, size in enumerate(sizes)]
    parts = list(shards(lines, 250))
    assert [line for part in parts for line in part] == lines
    assert all(part and (len(part) == 1 or sum(len(line.spoken) for line in part) <= 250) for part in parts)


def test_timed_lines_share_the_room_of_their_segment() -> None:
    """Each begins with its segment; several lines of one follow each other; what says nothing is left out."""
    segments = [
        Segment(1.0, 2.0, "One sentence. And another one."),
        Segment(3.0, 3.5, " ... "),
        Segment(4.0, 6.0, "The last."),
    ]
    lines = timed_lines(segments, "en", OPTIONS)
    assert [line.text for line in lines] == ["One sentence.", "And another one.", "The last."]
    assert [line.starts_s for line in lines] == [1.0, None, 4.0]
    assert lines[0].pause_after_s == 0.25
    assert sum(line.room_s or 0.0 for line in lines[:2]) == pytest.approx(3.0 - GAP_S - 1.0 - 0.25)
    assert lines[2].room_s == pytest.approx(2.0)
    with pytest.raises(EmptyText):
        timed_lines(segments[1:2], "en", OPTIONS)


def test_a_table_changes_a_text_in_its_order() -> None:
    """The first of each pair gives way to the second; an empty one changes nothing."""
    assert replaced("a cat", [["cat", "dog"], ["dog", "cow"], ["", "x"]]) == "a cow"


def test_what_is_spoken_is_read_out_and_pauses_are_checked() -> None:
    """Numbers become words; a pause of an hour is refused."""
    (line,) = lines_of("It costs $5.", "en", OPTIONS)
    assert (line.text, line.spoken) == ("It costs $5.", "It costs five dollars.")
    with pytest.raises(BadOption, match="sentence_pause_s"):
        LineOptions.from_step({"max_chars": 240, "sentence_pause_s": 3600, "paragraph_pause_s": 0.6})
