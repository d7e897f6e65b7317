"""How a text is planned: sentences, pieces, markup, and what cannot be said."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicejobs.errors import BadOption, BadText, EmptyText
from voicejobs.text import MARKUPS, TextPiece, decode_text, markup_of, plan_pieces, sentences, speakable

SENTENCES = [
    ("en", "Dr. Smith paid $3.50 at 3 p.m. yesterday. Bye.", ["Dr. Smith paid $3.50 at 3 p.m. yesterday.", "Bye."]),
    ("en", "J. R. R. Tolkien wrote it. Yes.", ["J. R. R. Tolkien wrote it.", "Yes."]),
    ("en", '"Really?" she asked. "Yes!"', ['"Really?" she asked.', '"Yes!"']),
    ("en", "He left... Then he came back.", ["He left...", "Then he came back."]),
    ("en", "I wonder... maybe not.", ["I wonder... maybe not."]),
    ("en", "See No. 5. The U.S. is big. He is in the U.S. The end.",
     ["See No. 5.", "The U.S. is big.", "He is in the U.S.", "The end."]),
    ("en", "No. That is wrong.", ["No.", "That is wrong."]),
    ("en", "Version 3.5 is out at example.com today. Good.", ["Version 3.5 is out at example.com today.", "Good."]),
    ("en", "1. First item\n2. Second item", ["1. First item", "2. Second item"]),
    ("en", "It was 1984. Then came 1985.", ["It was 1984.", "Then came 1985."]),
    ("en", "Title\n\nFirst paragraph\n\nSecond", ["Title", "First paragraph", "Second"]),
    ("en", "this is a line that was wrapped by some editor at\nsixty characters. Next.",
     ["this is a line that was wrapped by some editor at\nsixty characters.", "Next."]),
    ("en", "no capitals here. really none.", ["no capitals here.", "really none."]),
    ("de", "Am 3. Oktober kam z.B. Dr. Meier. Er blieb.", ["Am 3. Oktober kam z.B. Dr. Meier.", "Er blieb."]),
    ("zh", "你好。“真的吗？”他问！是的。3.5元。", ["你好。", "“真的吗？”", "他问！", "是的。", "3.5元。"]),
    ("ja", "「はい。」と言った。そうです。", ["「はい。」と言った。", "そうです。"]),
    ("hi", "नमस्ते। आप कैसे हैं? ठीक।", ["नमस्ते।", "आप कैसे हैं?", "ठीक।"]),
    ("ar", "كيف حالك؟ بخير.", ["كيف حالك؟", "بخير."]),
    ("en", "", []),
]  # fmt: skip


@pytest.mark.parametrize(("language", "text", "expected"), SENTENCES)
def test_sentences_end_where_readers_stop(language: str, text: str, expected: list[str]) -> None:
    """Abbreviations, decimals, initials, quotations and wrapped lines end no sentence; stops of all scripts do."""
    assert sentences(text, language) == expected


def _assert_covering(text: str, pieces: list[TextPiece]) -> None:
    """Check that the ranges cover every character that is not blank exactly once, in order."""
    place = 0
    for piece in pieces:
        assert piece.start_char >= place
        assert not text[place : piece.start_char].strip()
        assert piece.text == text[piece.start_char : piece.end_char]
        assert piece.spoken.strip()
        place = piece.end_char
    assert not text[place:].strip()


_PARTS = st.sampled_from(
    "Hello world. Dr. 5 $200,000 1234567 , ; 你好。 😂 <b> </b> <break\ttime='1s'/> &amp; **bold** ` # - > |a|b|"
    " \n \n\n [x](y) www.a.com … \u0301 \u200d 。 「 ) --- ``` A. x<y !".split(" ")
)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.tuples(_PARTS, st.sampled_from(["", " ", " ", "\n"])), min_size=1, max_size=60),
    st.integers(1, 80),
    st.sampled_from(MARKUPS),
    st.sampled_from(["en", "de", "zh", "xx"]),
)
def test_no_character_is_dropped_or_doubled(
    parts: list[tuple[str, str]], max_chars: int, markup: str, language: str
) -> None:
    """Whatever the text, its pieces cover every character that is not blank once, and are as short as asked."""
    text = "".join(part + blank for part, blank in parts)
    try:
        pieces = plan_pieces(text, language, max_chars, markup=markup)
    except EmptyText:
        return
    _assert_covering(text, pieces)
    assert all(len(piece.spoken) <= 40 * max(8, max_chars) for piece in pieces)
    assert pieces[-1].pause_after_s == 0


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs", "Cc"]), max_size=200))
def test_any_text_is_planned_or_refused(text: str) -> None:
    """Any text is covered by its pieces, or nothing in it can be said."""
    try:
        _assert_covering(text, plan_pieces(text, "en", 40))
    except EmptyText:
        assert not any(character.isascii() and character.isalnum() for character in text)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.from_regex(r"[a-z]{1,12}", fullmatch=True), min_size=1, max_size=100), st.integers(8, 60))
def test_no_word_is_dropped(words: list[str], max_chars: int) -> None:
    """The spoken texts of the pieces, put together, are the words of the text."""
    pieces = plan_pieces(" ".join(words), "xx", max_chars)
    assert "".join(piece.spoken.replace(" ", "") for piece in pieces) == "".join(words)


def test_long_sentences_are_cut_at_punctuation_first() -> None:
    """A sentence over the limit is cut after a comma, and waits a moment there."""
    text = "When the rain had stopped, the children went out to play, and nobody came home before dark."
    pieces = plan_pieces(text, "en", 60)
    assert [piece.text for piece in pieces] == [
        "When the rain had stopped, the children went out to play,",
        "and nobody came home before dark.",
    ]
    assert 0 < pieces[0].pause_after_s < 0.25


def test_a_word_of_ten_thousand_letters_is_cut_anywhere() -> None:
    """A word without end is cut into pieces of the limit, and none of its letters is lost."""
    pieces = plan_pieces("x" * 10_000, "en", 200)
    assert [len(piece.text) for piece in pieces] == [200] * 50


def test_four_hundred_words_without_punctuation_reach_the_end() -> None:
    """A text without a full stop is split, not cut off."""
    text = " ".join(f"word{number} goes here and then" for number in range(400))
    pieces = plan_pieces(text, "en")
    _assert_covering(text, pieces)
    assert "three hundred and ninety-nine" in pieces[-1].spoken
    assert max(len(piece.spoken) for piece in pieces) <= 480


def test_time_grows_with_the_length_alone() -> None:
    """Eight times the text takes nowhere near eight times as long for each character, whatever the text holds."""
    for unit in ("Hello, this is 5 km. ", "“a. b. ", "a.b.", "5-", "<a b='", "1,", "a b\n", "*a", "$", "[", "`a"):
        seconds = []
        for length in (4_000, 32_000):
            text = unit * (length // len(unit)) + " end"
            start = time.process_time()
            plan_pieces(text, "en", markup="markdown")
            seconds.append(time.process_time() - start)
        assert seconds[1] < 40 * max(seconds[0], 0.02), unit


def test_pauses_follow_sentences_paragraphs_and_breaks() -> None:
    """The silence after a piece is that of what ends there."""
    text = 'One. Two.\n\nThree <break time="1500ms"/> four. <break strength="x-strong"/>Five.'
    pieces = plan_pieces(text, "en", sentence_pause_s=0.2, paragraph_pause_s=0.7)
    assert [(piece.spoken, piece.pause_after_s) for piece in pieces] == [
        ("One.", 0.2), ("Two.", 0.7), ("Three", 1.5), ("four.", 1.2), ("Five.", 0.0),
    ]  # fmt: skip


def test_tags_are_not_read_out_and_comparisons_are() -> None:
    """Tags are obeyed or removed, entities become their characters, and what merely looks like a tag stays."""
    text = '<speak>Hello <break time="1s"/> world &amp; friends, 5 < 6 and <b>bold</b>.</speak>'
    pieces = plan_pieces(text, "en")
    assert [piece.spoken for piece in pieces] == ["Hello", "world and friends, five is less than six and bold."]
    assert pieces[0].pause_after_s == 1
    assert plan_pieces("List<Car> it", "en")[0].spoken == "List is less than Car is greater than it"
    assert plan_pieces("<speak>List<Car> it</speak>", "en", markup="ssml")[0].spoken == "List it"


def test_markdown_is_spoken_without_its_marks() -> None:
    """Headings, items, links, emphasis and code are spoken; marks, addresses and rules are not."""
    text = (
        "---\ntitle: x\n---\n# A *title*\n\nSome **bold** [link](http://x.y/z) and `code`,\nwrapped Here.\n\n"
        "- one\n* two\n1. three\n\n> quote\n\n***\n\n| a | b |\n|---|---|\n| c | d |\n\n"
        "```py\nprint(x)\n```\nsnake_case ![Alt](i.png)\n"
    )
    spoken = [piece.spoken for piece in plan_pieces(text, "en", markup="markdown")]
    assert spoken == [
        "A title", "Some bold link and code, wrapped Here.", "one", "two", "one. three", "quote", "a, b", "c, d",
        "print(x)", "snake case Alt",
    ]  # fmt: skip


def test_unknown_markup_is_refused() -> None:
    """A markup that nobody knows is an error that lists the known ones."""
    with pytest.raises(BadOption, match="'latex'"):
        plan_pieces("x", "en", markup="latex")


@pytest.mark.parametrize(
    ("text", "name", "markup"),
    [
        ("# x", "a.MD", "markdown"),
        ("<speak>x</speak>", "a.txt", "ssml"),
        ('<?xml version="1.0"?>\n<speak>x</speak>', "", "ssml"),
        ("# x", "a.txt", "plain"),
        ("a <speak> b", "", "plain"),
    ],
)
def test_markup_is_told_from_name_and_first_tag(text: str, name: str, markup: str) -> None:
    """Markdown is known by its ending, SSML by its root, and the rest is plain."""
    assert markup_of(text, name) == markup


@pytest.mark.parametrize("text", ["", "  \n ", "😂👍🏽👨‍👩‍👧", "...", "<b></b>", "***"])
def test_a_text_with_nothing_to_say_is_refused(text: str) -> None:
    """Blanks, emoji, punctuation and bare markup are an error, and no endless sound."""
    with pytest.raises(EmptyText) as caught:
        plan_pieces(text, "en", markup="markdown")
    assert caught.value.code == "empty_text"


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b", "\x01\x02\x03abc"])
def test_what_is_no_text_is_refused(text: str) -> None:
    """NUL, halves of characters and many controls are no text."""
    with pytest.raises(BadText):
        plan_pieces(text, "en")


def test_bytes_become_text_or_are_refused() -> None:
    """UTF-8 and UTF-16 with a mark are read; other bytes are refused with their place."""
    assert decode_text(b"\xef\xbb\xbfabc", "x") == "abc"
    assert decode_text("né".encode("utf-16"), "x") == "né"
    with pytest.raises(BadText, match=r"x.txt is not UTF-8 text: .* at byte 1"):
        decode_text(b"a\xff", "x.txt")
    with pytest.raises(BadText, match="NUL"):
        decode_text(b"\x7fELF\0\0", "x")


def test_other_scripts_are_named_and_left_out() -> None:
    """What no voice of the languages can say is taken out and named, and nothing else."""
    found = speakable("Hello 你好 5 Привет, ok", ["en"])
    assert found.skipped == ("你好", "Привет")
    assert found.text.split() == ["Hello", "5", ",", "ok"]
    assert speakable("Hello 你好", ["zh", "en"]).skipped == ()
    assert speakable("你好", []).text == "你好"
