"""Cues of the profiles: words unchanged, in order, apart, inside the recording and within the limits."""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.formats.word_lists import letters, letters_of, spoken_words, transcripts
from voicejobs.audio.types import Segment, Transcript, Word
from voicejobs.errors import BadOption
from voicejobs.formats import RenderOptions, render
from voicejobs.formats.clean import channel_label, is_blank, one_line
from voicejobs.formats.cues import cues_of
from voicejobs.formats.profiles import profile_of
from voicejobs.formats.widths import measure, unbroken

limits = st.builds(
    RenderOptions,
    channel_labels=st.booleans(),
    subtitle_profile=st.sampled_from(["netflix", "bbc"]),
    max_line_width=st.one_of(st.none(), st.integers(1, 60)),
    max_line_count=st.one_of(st.none(), st.integers(1, 4)),
    max_words_per_line=st.one_of(st.none(), st.integers(1, 6)),
    max_chars_per_second=st.one_of(st.none(), st.floats(1, 60)),
)


def said(words: Sequence[Word], language: str | None = "en", duration_s: float | None = None) -> Transcript:
    """Return a transcript of one segment."""
    text = "".join(word.text for word in words)
    segment = Segment(words[0].start_s, words[-1].end_s, text, tuple(words))
    return Transcript((segment,), language, words[-1].end_s + 5 if duration_s is None else duration_s)


def spoken(text: str, start_s: float = 0.0, step_s: float = 0.3) -> list[Word]:
    """Return the words of a text, one after the other."""
    return [
        Word(start_s + number * step_s, start_s + (number + 1) * step_s, f" {word}")
        for number, word in enumerate(text.split())
    ]


def is_unbreakable(line: str) -> bool:
    """Tell whether a line has no place at which it could be parted."""
    return " " not in line and len(unbroken(line)) == 1


@given(transcripts, limits)
@settings(max_examples=150, deadline=None)
def test_cues_keep_the_hard_rules(transcript: Transcript, options: RenderOptions) -> None:
    """Whatever is said when: starts rise, ends follow starts, nothing overlaps or passes the recording or is empty."""
    cues = cues_of(transcript, options)
    for cue in cues:
        assert 0 <= cue.start_ms < cue.end_ms
        assert cue.end_ms <= max(1, transcript.duration_s * 1000 if transcript.duration_s > 0 else 1)
        assert all(not is_blank(line) and line == one_line(line) for line in cue.lines)
    for earlier, later in pairwise(cues):
        assert earlier.start_ms < later.start_ms
        assert earlier.end_ms <= later.start_ms


@given(transcripts, limits)
@settings(max_examples=150, deadline=None)
def test_lines_keep_the_limits(transcript: Transcript, options: RenderOptions) -> None:
    """No cue has more lines, and no line more columns or words, than allowed, save one that cannot be parted."""
    transcript = replace(transcript, duration_s=100.0)  # room for a cue in each millisecond
    profile = profile_of(options, transcript.language)
    assert profile is not None
    for cue in cues_of(transcript, options):
        assert len(cue.lines) <= profile.lines
        for number, line in enumerate(cue.lines):
            shown = line
            if number == 0 and options.channel_labels and cue.channel is not None:
                shown = f"{channel_label(cue.channel)}: {line}"
            assert measure(shown)[0] <= profile.line_columns or is_unbreakable(line)
            if profile.line_words is not None and line.isascii():
                assert len(line.split()) <= profile.line_words


@given(transcripts, limits)
@settings(max_examples=150, deadline=None)
def test_the_words_are_those_of_the_transcript(transcript: Transcript, options: RenderOptions) -> None:
    """Blanks aside, the text of each channel's cues is that of its segments, in their order."""
    cues = cues_of(replace(transcript, duration_s=100.0), options)
    for channel in {segment.channel for segment in transcript.segments}:
        own = replace(transcript, segments=tuple(one for one in transcript.segments if one.channel == channel))
        assert letters("".join(line for cue in cues if cue.channel == channel for line in cue.lines)) == letters_of(own)


@given(spoken_words())
@settings(deadline=None)
def test_blanks_are_those_of_the_words(words: list[Word]) -> None:
    """Lines joined by blanks are the text of the words, where these have blanks between them."""
    text = one_line("".join(word.text for word in words))
    if text.isascii():
        assert " ".join(line for cue in cues_of(said(words), RenderOptions()) for line in cue.lines) == text


@given(transcripts, limits)
@settings(deadline=None)
def test_cues_are_the_same_each_time(transcript: Transcript, options: RenderOptions) -> None:
    """The choice depends on the transcript alone."""
    assert cues_of(transcript, options) == cues_of(transcript, options)


@given(spoken_words())
@settings(deadline=None)
def test_cues_begin_with_their_first_word(words: list[Word]) -> None:
    """The start of a cue is the onset of a word, unless cues would be closer than 200 ms."""
    transcript = said(words)
    starts = {round(word.start_s * 1000) for word in words}
    cues = cues_of(transcript, RenderOptions())
    if all(later.start_ms - earlier.start_ms > 200 for earlier, later in pairwise(cues)):
        assert {cue.start_ms for cue in cues} <= starts


@given(spoken_words())
@settings(deadline=None)
def test_a_pause_always_parts_cues(words: list[Word]) -> None:
    """No cue holds words with 0.7 s or more between them."""
    for cue in cues_of(said(words), RenderOptions()):
        inside = [word for word in words if cue.start_ms <= round(word.start_s * 1000) < cue.end_ms]
        pauses = [round((later.start_s - earlier.end_s) * 1000) for earlier, later in pairwise(inside)]
        assert all(pause < 700 for pause in pauses)


@given(spoken_words())
@settings(deadline=None)
def test_small_gaps_are_closed(words: list[Word]) -> None:
    """Between cues there are 84 ms or at least half a second, unless a cue would stay too long or become too short."""
    for earlier, later in pairwise(cues_of(said(words), RenderOptions())):
        gap = later.start_ms - earlier.end_ms
        is_special = earlier.end_ms - earlier.start_ms in range(7000, 7001) or later.start_ms - earlier.start_ms < 284
        assert gap == 84 or gap >= 500 or is_special


def test_lines_break_where_readers_expect() -> None:
    """After punctuation rather than after an article, and in as few lines as it takes."""
    words = spoken("So I went to the market yesterday, and I bought a big bag of the oranges.")
    (cue,) = cues_of(said(words, duration_s=60), RenderOptions())
    assert cue.lines == ("So I went to the market yesterday,", "and I bought a big bag of the oranges.")


def test_sentences_begin_cues() -> None:
    """A cue ends with its sentence, if that is long enough to be read."""
    words = spoken("This is the first sentence here. This is the second one here.")
    cues = cues_of(said(words, duration_s=60), RenderOptions())
    assert [cue.text for cue in cues] == ["This is the first sentence here.", "This is the second one here."]


def test_a_short_cue_is_shown_into_the_silence() -> None:
    """A word of 0.2 s stays for 5/6 s where nothing follows, and until 84 ms before the next where something does."""
    options = RenderOptions()
    alone = cues_of(said([Word(1.0, 1.2, " Yes.")], duration_s=10), options)
    assert [(cue.start_ms, cue.end_ms) for cue in alone] == [(1000, 1833)]
    pressed = cues_of(said([Word(1.0, 1.05, " Yes."), Word(1.75, 3.0, " So.")], duration_s=10), options)
    assert [(cue.start_ms, cue.end_ms) for cue in pressed] == [(1000, 1666), (1750, 3000)]


def test_words_per_line_are_words_per_cue() -> None:
    """As with whisper, `max_words_per_line` alone makes cues of so many words; with a line count, lines."""
    words = spoken("one two three four five six seven")
    alone = cues_of(said(words), RenderOptions(max_words_per_line=3))
    assert max(len(cue.text.split()) for cue in alone) <= 3
    assert all(len(cue.lines) == 1 for cue in alone)
    both = cues_of(said(words), RenderOptions(max_words_per_line=3, max_line_count=2))
    assert max(len(cue.lines) for cue in both) == 2


def test_wide_characters_take_two_columns() -> None:
    """A Chinese line has 16 characters at most, a Japanese 13, and none begins with a full stop or a small kana."""
    for language, most, text in (
        ("zh", 16, "我们今天来讨论一下人工智能的发展\uff0c特别是在语音识别方面的进步。效果非常好。"),
        ("ja", 13, "今日は天気がいいので、公園に行きました。ちょっとコーヒーを飲みながら、いろいろな話をしました。"),
    ):
        cues = cues_of(Transcript((Segment(0.0, 14.0, text),), language, 20.0), RenderOptions())
        lines = [line for cue in cues for line in cue.lines]
        assert "".join(lines) == text
        assert max(map(len, lines)) <= most
        assert not any(line[0] in "、。\uff0cょっー" for line in lines)


def test_graphemes_stay_whole() -> None:
    """A family, a flag and a letter with its accent are one character each, wherever the engine cuts its words."""
    family = "👨\u200d👩\u200d👧"
    words = [Word(0.0, 1.0, "👨\u200d"), Word(1.0, 2.0, "👩\u200d"), Word(2.0, 3.0, "👧"), Word(3.0, 4.0, "🇫🇷")]
    cues = cues_of(said(words), RenderOptions(max_line_width=2))
    assert [line for cue in cues for line in cue.lines] == [family, "🇫🇷"]


@pytest.mark.parametrize("text", ["a\u3000b", "\u3000a", "\u200b\u4eca\u200b\u65e5", "\u4eca\u3000\u3000\u65e5"])
def test_no_line_is_blank(text: str) -> None:
    """Wide blanks and invisible marks stay with their neighbours."""
    cues = cues_of(Transcript((Segment(0.0, 1.0, text),), "ja", 10.0), RenderOptions(max_line_width=1))
    assert not any(is_blank(line) for cue in cues for line in cue.lines)


def test_channels_do_not_mix_or_overlap() -> None:
    """Two who talk at once have cues of their own, which take turns."""
    left = Segment(0.0, 6.0, " I think that we should go now and not wait.", channel=0)
    right = Segment(2.0, 4.0, " No, please wait.", channel=1)
    cues = cues_of(Transcript((left, right), "en", 10.0), RenderOptions())
    assert {cue.channel for cue in cues} == {0, 1}
    assert all(earlier.end_ms <= later.start_ms for earlier, later in pairwise(cues))
    assert all(2000 <= cue.start_ms <= 3500 for cue in cues if cue.channel == 1)
    text = render(Transcript((left, right), "en", 10.0), "srt").decode()
    assert "\nChannel 2: No, please wait.\n" in text


def test_who_falls_into_a_word_waits_a_little() -> None:
    """A short answer at once comes a little late, that the line before it can be read, and never 1.5 s or more."""
    left = Segment(0.0, 4.0, " I think that we should go now and not wait.", channel=0)
    for start_s in (0.5, 1.8):
        right = Segment(start_s, start_s + 0.4, " Yes.", channel=1)
        first, second = cues_of(Transcript((left, right), "en", 10.0), RenderOptions())
        assert (first.channel, second.channel) == (0, 1)
        assert first.end_ms > 1900
        assert start_s * 1000 < second.start_ms <= start_s * 1000 + 1500


def test_segments_without_words_share_their_time() -> None:
    """Cues of a long segment begin where their words stand in it, by width."""
    text = (
        " This is a long sentence that takes two cues, since nobody can read all of it at once, so it is parted here."
    )
    cues = cues_of(Transcript((Segment(0.0, 10.0, text),), "en", 10.0), RenderOptions())
    assert len(cues) == 2
    assert 3000 < cues[1].start_ms < 7000


def test_words_that_do_not_spell_the_text_are_not_believed() -> None:
    """The text is that of the segment, whatever words an engine adds to it."""
    segment = Segment(0.0, 2.0, " Hello there.", (Word(0.0, 1.0, " Hello"),))
    (cue,) = cues_of(Transcript((segment,), "en", 5.0), RenderOptions())
    assert cue.text == "Hello there."


def test_one_wild_time_moves_no_other() -> None:
    """A word that an engine puts at the end of the recording does not drag the later ones along."""
    words = spoken("one two three four. five six seven eight.")
    words[2] = replace(words[2], start_s=900.0, end_s=901.0)
    cues = cues_of(said(words, duration_s=1000.0), RenderOptions())
    assert cues[-1].end_ms < 4000


@pytest.mark.parametrize("hours", [1, 100])
def test_times_past_hours(hours: int) -> None:
    """The clock goes on past one hour and past a hundred."""
    words = spoken("Late words.", start_s=hours * 3600 + 61.001)
    content = render(said(words), "srt").decode()
    assert f"\n{hours:02d}:01:01,001 --> {hours:02d}:01:0" in content
    assert f"\n{hours:02d}:01:01.001 --> " in render(said(words), "vtt").decode()


@pytest.mark.parametrize(
    "given",
    [
        {"subtitle_profile": "vhs"}, {"max_line_width": 0}, {"max_line_count": 1.5}, {"max_words_per_line": True},
        {"max_chars_per_second": 0.0}, {"srt_bom": "yes"}, {"subtitle_profile": "plain", "max_line_width": 30},
        {"font": "Comic Sans"},
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    """Values out of range, unknown names, and limits for a profile that has none."""
    with pytest.raises(BadOption):
        RenderOptions.from_json(given)


def test_options_are_spelled_one_way() -> None:
    """Defaults are left out, so that the same choice has the same key, and what is written is read back."""
    assert RenderOptions(srt_bom=False, subtitle_profile="netflix").to_json() == {}
    chosen = RenderOptions(subtitle_profile="bbc", max_line_width=30, paragraphs=True)
    assert RenderOptions.from_json(chosen.to_json()) == chosen


def test_ten_hours_take_seconds() -> None:
    """A hundred thousand words become cues in a few seconds."""
    words = spoken("The price was three dollars for a kilo, which is a good price. " * 4, step_s=0.36)

    def seconds(count: int) -> float:
        segments = []
        for number in range(count // len(words)):
            moved = [replace(one, start_s=one.start_s + number * 20, end_s=one.end_s + number * 20) for one in words]
            segments.append(Segment(number * 20, number * 20 + 19, "".join(one.text for one in moved), tuple(moved)))
        began = time.process_time()
        render(Transcript(tuple(segments), "en", 1e6), "srt")
        return time.process_time() - began

    assert seconds(100_000) < 15  # 3 s on the machine this was written on
