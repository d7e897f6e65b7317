"""Formats with times that are no subtitles: rows, words of CTM, tiers of TextGrid, documents."""

import builtins
import csv
import io
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from praatio import textgrid  # type: ignore[import-untyped]

from tests.unit.formats.word_lists import letters, letters_of, spoken_words, transcripts
from voicejobs.audio.types import Segment, Transcript, Word
from voicejobs.errors import ExtraMissing
from voicejobs.formats import RenderOptions, chosen, render
from voicejobs.formats.clean import is_blank, one_line
from voicejobs.formats.moments import last_moment


def said(*segments: Segment, **more: Any) -> Transcript:
    """Return a transcript of these segments."""
    return Transcript(segments, "en", 10.0, **more)


def test_tsv_by_eye() -> None:
    """Whole milliseconds and the text with tabs as blanks, as whisper writes them."""
    content = render(said(Segment(0.0, 1.5, " A\ttab."), Segment(1.5004, 2.0, " Bye.")), "tsv")
    assert content == b"start\tend\ttext\n0\t1500\tA tab.\n1500\t2000\tBye.\n"


@given(transcripts)
@settings(deadline=None)
def test_rows_keep_the_text_and_the_recording(transcript: Transcript) -> None:
    """Each segment that says something has a row, `start <= end`, both inside the recording."""
    limit = last_moment(transcript)
    rows = [line.split("\t") for line in render(transcript, "tsv").decode().split("\n")[1:-1]]
    assert all(0 <= int(start) <= int(end) <= limit for start, end, _ in rows)
    texts = [text for segment in transcript.segments if not is_blank(text := one_line(segment.text))]
    assert [text for *_, text in rows] == texts
    assert len(list(csv.reader(io.StringIO(render(transcript, "csv").decode())))) == len(texts) + 1


@pytest.mark.parametrize("text", ["=1+1", "+49 30", "-5", "@me", " =A1", "\uff1d1", "\u3000=1"])
def test_no_cell_is_a_formula(text: str) -> None:
    """A quote stands before what a spreadsheet would take for a formula."""
    (_, row) = csv.reader(io.StringIO(render(said(Segment(0.0, 1.0, text)), "csv").decode()))
    assert row[3] == "'" + one_line(text)


def test_csv_names_channels() -> None:
    """Times are seconds, channels are named for people, and commas and quotes are quoted."""
    content = render(said(Segment(0.0, 1.25, ' "Yes", he said.', channel=1)), "csv").decode()
    assert content == 'start,end,channel,text\n0.000,1.250,Channel 2,"""Yes"", he said."\n'


def test_ctm_by_eye() -> None:
    """File, channel from 1, start, duration, word, confidence; ordered by channel and start; no field with a blank."""
    first = Segment(
        1.0, 2.0, " Hello\xa0you all", (Word(1.0, 1.5, " Hello\xa0you", 0.9), Word(1.5, 2.0, " all", 0.8)), channel=1
    )
    second = Segment(1.5, 2.5, " So.", (Word(1.5, 2.5, " So.", 0.5),), channel=0)
    lines = render(said(first, second, source_name="my talk"), "ctm").decode().splitlines()
    assert lines[0].startswith(";;")
    assert lines[1:] == [
        "my_talk 1 1.500 1.000 So. 0.500",
        "my_talk 2 1.000 0.500 Hello_you 0.900",
        "my_talk 2 1.500 0.500 all 0.800",
    ]


@given(transcripts)
@settings(deadline=None)
def test_ctm_has_every_word_in_order(transcript: Transcript) -> None:
    """Lines have five or six fields, starts never fall within a channel, and no word is lost."""
    rows = [line.split(" ") for line in render(transcript, "ctm").decode().split("\n")[1:-1]]
    assert {len(row) for row in rows} <= {5, 6}
    keys = [(int(row[1]), float(row[2])) for row in rows]
    assert keys == sorted(keys)
    assert all(float(row[2]) + float(row[3]) <= last_moment(transcript) / 1000 + 1e-6 for row in rows)
    written = "".join(row[4] for row in sorted(rows, key=lambda row: int(row[1])))
    own = sorted(transcript.segments, key=lambda segment: segment.channel or 0)
    if len({segment.channel for segment in own} & {None, 0}) < 2:
        assert written.replace("_", "") == letters_of(Transcript(tuple(own), None, 1.0)).replace("_", "")


def read_grid(content: bytes, folder: Path) -> Any:
    """Return a TextGrid as praatio reads it, which complains of what is wrong with it."""
    path = folder / "x.TextGrid"
    path.write_bytes(content)
    return textgrid.openTextgrid(str(path), includeEmptyIntervals=True, reportingMode="error")


@given(transcripts)
@settings(deadline=None)
def test_textgrid_is_gapless(tmp_path_factory: pytest.TempPathFactory, transcript: Transcript) -> None:
    """Praatio reads each tier: its intervals touch, are longer than nothing and reach from 0 to the end."""
    grid = read_grid(render(transcript, "textgrid"), tmp_path_factory.mktemp("grid"))
    limit = last_moment(transcript) / 1000
    assert grid.maxTimestamp == pytest.approx(limit)
    channels = {segment.channel for segment in transcript.segments} or {None}
    assert len(grid.tierNames) == 2 * len(channels)
    for name in grid.tierNames:
        entries = grid.getTier(name).entries
        assert (entries[0].start, entries[-1].end) == (0, pytest.approx(limit))
        for entry, following in pairwise(entries):
            assert entry.start < entry.end == following.start


@given(spoken_words())
@settings(deadline=None)
def test_textgrid_has_the_words_at_their_times(tmp_path_factory: pytest.TempPathFactory, words: list[Word]) -> None:
    """The labels of the tier `words` are the words, each where it was spoken."""
    segment = Segment(words[0].start_s, words[-1].end_s, "".join(word.text for word in words), tuple(words))
    content = render(Transcript((segment,), "en", words[-1].end_s + 1), "textgrid")
    entries = [one for one in read_grid(content, tmp_path_factory.mktemp("grid")).getTier("words").entries if one.label]
    assert [letters(entry.label) for entry in entries] == [letters(word.text) for word in words]
    assert [entry.start for entry in entries] == pytest.approx([word.start_s for word in words])


def test_textgrid_doubles_quotes(tmp_path: Path) -> None:
    """A quote in a text does not end its string."""
    content = render(said(Segment(0.0, 1.0, ' "Yes" he said.', channel=0)), "textgrid")
    assert b'text = """Yes"" he said."\n' in content
    assert read_grid(content, tmp_path).tierNames == ("segments - Channel 1", "words - Channel 1")


def test_docx_by_python_docx() -> None:
    """A heading, then a paragraph for each passage with its time and channel; what XML cannot hold is replaced."""
    from docx import Document

    transcript = said(
        Segment(0.0, 1.0, " Hello\x0b \ud800\uffff.", channel=0), Segment(3661.0, 3662.0, " Bye.", channel=1),
        source_name="my talk",
    )  # fmt: skip
    content = render(Transcript(transcript.segments, "en", 4000.0, source_name="my talk"), "docx")
    paragraphs = [paragraph.text for paragraph in Document(io.BytesIO(content)).paragraphs]
    assert paragraphs == ["my talk", "[0:00:00] Channel 1: Hello \ufffd\ufffd.", "[1:01:01] Channel 2: Bye."]
    unlabelled = render(transcript, "docx", RenderOptions(channel_labels=False))
    assert Document(io.BytesIO(unlabelled)).paragraphs[1].text == "[0:00:00] Hello \ufffd\ufffd."


@given(transcripts)
@settings(deadline=None, max_examples=20)
def test_docx_takes_any_text(transcript: Transcript) -> None:
    """Nothing that an engine says breaks the document, and its bytes depend on the transcript alone."""
    assert render(transcript, "docx") == render(transcript, "docx")


def test_docx_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install, and choosing the format fails before any work is done."""
    imported = builtins.__import__

    def without_docx(name: str, *arguments: Any, **more: Any) -> Any:
        if name == "docx":
            raise ImportError(name)
        return imported(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without_docx)
    with pytest.raises(ExtraMissing, match="python-docx") as caught:
        chosen(["txt,docx"])
    assert "voicejobs[docx]" in caught.value.hint
    assert chosen(["all"])


def test_paragraphs() -> None:
    """Passages join until a long pause after a sentence, another channel, or a sentence end once they are long."""
    parts = (
        Segment(0.0, 1.0, " This is"), Segment(1.0, 2.0, " one."), Segment(2.5, 3.0, " More."),
        Segment(6.0, 7.0, " New"), Segment(9.5, 9.9, " one."),
    )  # fmt: skip
    options = RenderOptions(paragraphs=True)
    assert render(said(*parts), "txt", options) == b"This is one. More.\n\nNew one.\n"
    talk = said(
        Segment(0.0, 1.0, "你好。", channel=0),
        Segment(1.0, 2.0, "再见。", channel=0),
        Segment(2.0, 3.0, "好", channel=1),
    )
    assert render(talk, "txt", options).decode() == "Channel 1: 你好。再见。\n\nChannel 2: 好\n"
    long = [Segment(number, number + 1, " Twelve more.") for number in range(100)]
    blocks = render(said(*long), "txt", options).decode().split("\n\n")
    assert len(blocks) == 3
    assert all(math.isclose(len(block), 610, abs_tol=20) for block in blocks[:2])
