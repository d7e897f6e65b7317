"""Random transcripts: words in many scripts, with the times that engines really give and worse."""

import math

from hypothesis import strategies as st

from voicejobs.audio.types import Segment, Transcript, Word
from voicejobs.formats.clean import is_blank, one_line

plain_words = st.sampled_from(
    ["a", "I", "the", "of", "and", "Mr.", "no!", "really?", "yes.", "house,", "walked", "internationally", "don't", "3",
     "kilos", "São", "naïve", "straße", "e\u0301tude"]
)  # fmt: skip
wide_words = st.sampled_from(
    ["今日", "は", "、", "公園", "。", "「はい」", "ー", "っ", "我们", "\uff0c", "Whisper", "模型", "한국어", "ｶﾞ",
     "か\u3099", "สวัสดี", "เ", "ำ"]
)  # fmt: skip
strange_words = st.sampled_from(
    ["👨\u200d👩\u200d👧", "🇫🇷🇩🇪", "😀", "שלום", "مرحبا،", "\u200f", "\u200b", "\u0301", "\u200d",
     "-->", "<i>", "&amp;", "{\\an8}", "x" * 60, "https://example.org/" + "path/" * 30, "\ufffe", "\x00", "\ud83d",
     "WEBVTT", "1"]
)  # fmt: skip
texts = st.one_of(plain_words, plain_words, wide_words, strange_words, st.text(max_size=12))
leads = st.sampled_from([" ", " ", " ", "", "  ", "\n", "\u3000", "\xa0"])
times = st.one_of(
    st.floats(-5, 40), st.integers(0, 40).map(float), st.sampled_from([math.nan, math.inf, -math.inf, 9.9999, 1e12])
)
numbers = st.one_of(st.none(), st.floats(0, 1), st.just(math.nan))
nasty_words = st.builds(
    lambda lead, text, start, end, sure: Word(start, end, lead + text, sure), leads, texts, times, times, numbers
)


@st.composite
def spoken_words(draw: st.DrawFn, most: int = 40) -> list[Word]:
    """Return words that follow each other as in speech, with pauses, on whole milliseconds."""
    now = draw(st.integers(0, 3000))
    words = []
    for _ in range(draw(st.integers(1, most))):
        length, pause = draw(st.integers(20, 900)), draw(st.sampled_from([0, 0, 20, 90, 300, 699, 700, 2500]))
        text = draw(st.one_of(plain_words, plain_words, wide_words))
        words.append(Word(now / 1000, (now + length) / 1000, " " + text, 0.5))
        now += length + pause
    return words


@st.composite
def segments_of(draw: st.DrawFn) -> Segment:
    """Return a segment with the words that spell it, some of them, or none; some on a channel of their own."""
    words = draw(st.one_of(st.lists(nasty_words, max_size=20), spoken_words(20)))
    text = "".join(word.text for word in words)
    kept = draw(st.sampled_from([words, words, words[1:], []]))
    channel = draw(st.sampled_from([None, None, 0, 1]))
    return Segment(draw(times), draw(times), text, tuple(kept), channel=channel)


transcripts = st.builds(
    Transcript,
    st.lists(segments_of(), max_size=6).map(tuple),
    st.sampled_from([None, "en", "de", "fr", "ja", "zh", "ko", "th", "he"]),
    st.one_of(st.floats(0.2, 40), st.sampled_from([0.0, 0.0004, 0.003, 10.0, 3600.0, math.nan])),
)


def letters(text: str) -> str:
    """Return a text without blanks: what must be the same in words and in cues."""
    return "".join(one_line(text).split())


def letters_of(transcript: Transcript) -> str:
    """Return what is said in a transcript."""
    return "".join(letters(segment.text) for segment in transcript.segments if not is_blank(one_line(segment.text)))
