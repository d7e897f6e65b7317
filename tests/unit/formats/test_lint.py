"""What `lint` finds, and that it finds nothing hard in what we write."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.formats.word_lists import spoken_words, transcripts
from voicejobs.audio.types import Segment, Transcript, Word
from voicejobs.errors import NotSubtitles
from voicejobs.formats import RenderOptions, render
from voicejobs.formats.lint import CATEGORIES, lint
from voicejobs.formats.profiles import Profile, profile_of
from voicejobs.formats.subtitles import read_subtitles

HARD = {"syntax", "empty", "order", "overlap", "too-many-lines", "too-long"}
"""What never happens in a file of ours; a line can be too long for one word, and speech too fast to be read."""


def srt(*cues: str) -> bytes:
    """Return an SRT file of cues given as times and text."""
    return "\n\n".join(f"{number}\n{cue}" for number, cue in enumerate(cues, start=1)).encode() + b"\n"


def found(content: bytes, profile: Profile | None = None) -> list[tuple[str, int, int | None]]:
    """Return category, line and cue of what is wrong."""
    return [(one.category, one.line, one.cue) for one in lint(read_subtitles(content, "x"), profile or Profile())]


@pytest.mark.parametrize(
    ("cue", "category"),
    [
        ("00:00:00,000 --> 00:00:02,000\none\ntwo\nthree", "too-many-lines"),
        ("00:00:00,000 --> 00:00:05,000\n" + "x" * 43, "line-length"),
        ("00:00:00,000 --> 00:00:05,000\n" + "\u4eca" * 22, "line-length"),
        ("00:00:00,000 --> 00:00:01,000\n" + "x" * 21, "reading-speed"),
        ("00:00:00,000 --> 00:00:00,800\nHi.", "too-short"),
        ("00:00:02,000 --> 00:00:02,000\nHi.", "too-short"),
        ("00:00:00,000 --> 00:00:07,100\nHi.", "too-long"),
        ("00:00:00,000 --> 00:00:02,000", "empty"),
        ("00:00:00,000 --> 00:00:02,000\n<i>\u200b</i>", "empty"),
    ],
)
def test_a_cue_by_itself(cue: str, category: str) -> None:
    """Each category is found, at the line of the times of the cue."""
    content = srt("00:00:00,000 --> 00:00:02,000\nFine.") + b"\n" + srt(cue.replace("00:00:0", "00:01:0"))
    assert found(content) == [(category, 6, 2)]


@pytest.mark.parametrize(
    ("times", "category"),
    [
        ("00:00:04,000 --> 00:00:06,000", "order"),
        ("00:00:06,900 --> 00:00:09,000", "overlap"),
        ("00:00:07,050 --> 00:00:09,000", "gap"),
        ("00:00:07,083 --> 00:00:09,000", None),
        ("00:00:07,084 --> 00:00:09,000", None),
    ],
)
def test_two_cues(times: str, category: str | None) -> None:
    """Order, overlap and gap are found at the later cue; frames rounded down by a millisecond are no fault."""
    content = srt("00:00:05,000 --> 00:00:07,000\nFirst.", f"{times}\nSecond.")
    assert found(content) == ([] if category is None else [(category, 6, 2)])


def test_lines_outside_of_cues() -> None:
    """Broken times, text after a blank line and an arrow in a text are named with their lines."""
    content = b"1\n00:00:00,000 -> 00:00:02,000\nHi.\n\n2\n00:00:03,000 --> 00:00:05,000\nOne\n\nlost\n"
    assert found(content) == [("syntax", 1, None), ("syntax", 9, None)]
    arrow = b"1\n00:00:00,000 --> 00:00:02,000\nHi --> ho.\n"
    assert found(arrow) == [("syntax", 3, None)]


def test_vtt_is_read_too() -> None:
    """Headers, notes, styles, identifiers, settings, short times, markup and entities are no fault."""
    content = (
        "\ufeffWEBVTT - a title\nKind: captions\n\nNOTE all is\nwell\n\nSTYLE\n::cue {}\n\nname\n"
        "00:01.000 --> 00:03.000 align:start\n<v Ann>Tom &amp; Jerry</v>\n\n00:00:04.000 --> 00:00:06.000\n"
        + "&lt;"
        * 42
    )
    assert found(content.encode()) == [("reading-speed", 14, 2)]
    assert found(b"WEBVTT\n") == []
    assert found(b"") == []
    assert found(content.replace("\n", "\r\n").encode()) == [("reading-speed", 14, 2)]


@pytest.mark.parametrize("content", [b"\xff\xfe1\x00", b"just text", b'{"segments": []}'])
def test_what_is_no_subtitles_is_refused(content: bytes) -> None:
    """The error names the file."""
    with pytest.raises(NotSubtitles, match=r"talk\.srt"):
        read_subtitles(content, "talk.srt")


def test_languages_and_profiles_have_limits_of_their_own() -> None:
    """A line of 14 full-width characters is too long in Japanese only; BBC's lines are shorter than Netflix's."""
    wide = srt("00:00:00,000 --> 00:00:07,000\n" + "\u3042" * 14)
    japanese, chinese = (profile_of(RenderOptions(), language) for language in ("ja-JP", "zh"))
    assert found(wide, japanese) == [("line-length", 2, 1)]
    assert found(wide, chinese) == []
    line = srt("00:00:00,000 --> 00:00:05,000\n" + "x" * 40)
    assert found(line, profile_of(RenderOptions(subtitle_profile="bbc"), "en")) == [("line-length", 2, 1)]
    assert profile_of(RenderOptions(subtitle_profile="plain"), "en") is None


@given(transcripts, st.sampled_from(["srt", "vtt"]), st.sampled_from(["netflix", "bbc"]))
@settings(deadline=None)
def test_our_files_have_no_hard_faults(transcript: Transcript, name: str, profile: str) -> None:
    """Whatever was said, nothing overlaps, is empty, out of order, too long, or has too many lines."""
    spacious = Transcript(transcript.segments, transcript.language, 100.0)
    options = RenderOptions(subtitle_profile=profile)
    rules = profile_of(options, transcript.language)
    assert rules is not None
    categories = {one.category for one in lint(read_subtitles(render(spacious, name, options), "x"), rules)}
    assert categories <= set(CATEGORIES) - HARD


@given(spoken_words())
@settings(deadline=None)
def test_calm_speech_has_no_faults(words: list[Word]) -> None:
    """Words that take their time, with pauses between phrases, make subtitles without any fault at all."""
    calm = [
        Word(number * 1.0 + number // 5, number * 1.0 + number // 5 + 0.9, word.text)
        for number, word in enumerate(words)
    ]
    segment = Segment(0.0, calm[-1].end_s, "".join(word.text for word in calm), tuple(calm))
    transcript = Transcript((segment,), "en", calm[-1].end_s + 3)
    assert found(render(transcript, "srt")) == []
