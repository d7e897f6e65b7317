"""The files: what other programs read back from them."""

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import srt  # type: ignore[import-untyped]
import webvtt
from hypothesis import given, settings
from hypothesis import strategies as st

from voicejobs.audio.types import Segment, Transcript, Word
from voicejobs.errors import BadOption
from voicejobs.formats import ALL, FORMATS, RenderOptions, chosen, extension, needs_words, render
from voicejobs.formats.clean import is_blank, one_line
from voicejobs.formats.cues import cues_of
from voicejobs.formats.srt import srt_text
from voicejobs.formats.subtitles import read_subtitles
from voicejobs.formats.timestamps import srt_time, vtt_time

CASES = Path(__file__).parents[4] / "shared" / "cases"

awkward = st.sampled_from(
    [
        "-->",
        "--->",
        "<i>",
        "<",
        "</b>",
        "{\\an8}",
        "&amp;",
        "&",
        "a < b",
        "\n\n2\n",
        "\x00",
        "\ud800",
        "WEBVTT",
        "NOTE x",
    ]
)
texts = st.lists(st.one_of(st.text(max_size=8), awkward), max_size=5).map("".join)
segments = st.builds(
    Segment, st.floats(-1, 40), st.floats(-1, 40), texts, channel=st.one_of(st.none(), st.integers(0, 3))
)
transcripts = st.builds(
    Transcript, st.lists(segments, max_size=8).map(tuple), st.just("en"), st.floats(0, 40), st.just(0.5)
)
UNLABELLED = RenderOptions(channel_labels=False)
PLAIN = RenderOptions(channel_labels=False, subtitle_profile="plain")
PROFILES = st.sampled_from([UNLABELLED, PLAIN, RenderOptions(channel_labels=False, max_line_width=12)])


def transcript_of(*parts: Segment, duration_s: float = 10.0) -> Transcript:
    """Build a transcript of these segments."""
    return Transcript(segments=parts, language="en", duration_s=duration_s)


def milliseconds(clock: str) -> int:
    """Read `HH:MM:SS.mmm`."""
    hours, minutes, seconds = clock.split(":")
    return (int(hours) * 60 + int(minutes)) * 60_000 + round(float(seconds) * 1000)


@given(transcripts, PROFILES)
@settings(deadline=None)
def test_srt_reads_back(transcript: Transcript, options: RenderOptions) -> None:
    """The `srt` package finds each cue with its number, times and text."""
    content = render(transcript, "srt", options).decode()
    found = [(cue.index, cue.start.total_seconds(), cue.end.total_seconds(), cue.content) for cue in srt.parse(content)]
    expected = [
        (number, cue.start_ms / 1000, cue.end_ms / 1000, cue.text)
        for number, cue in enumerate(cues_of(transcript, options, srt_text), start=1)
    ]
    # The package strips what Unicode calls blank; we keep, for example, no-break spaces at the ends.
    assert [(*cue[:3], cue[3].strip()) for cue in found] == [(*cue[:3], cue[3].strip()) for cue in expected]


@given(transcripts, PROFILES, st.sampled_from(["srt", "vtt"]))
@settings(deadline=None)
def test_no_text_is_taken_for_markup(transcript: Transcript, options: RenderOptions, name: str) -> None:
    """Who leaves out what looks like a tag, or an override in braces, finds all that was said."""
    found = [cue.lines for cue in read_subtitles(render(transcript, name, options), "x").cues]
    cues = cues_of(transcript, options, srt_text if name == "srt" else one_line)
    assert found == [list(cue.lines) for cue in cues]


@given(transcripts, PROFILES)
@settings(deadline=None)
def test_vtt_reads_back(transcript: Transcript, options: RenderOptions) -> None:
    """The webvtt-py package finds each cue with its times, and its text behind the escapes."""
    content = render(transcript, "vtt", options).decode()
    found = [
        (milliseconds(cue.start), milliseconds(cue.end), cue.raw_text)
        for cue in webvtt.from_buffer(io.StringIO(content)).captions
    ]
    cues = cues_of(transcript, options)
    escaped = [cue.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").strip() for cue in cues]
    assert [text.strip() for *_, text in found] == escaped
    assert [times for *times, _ in found] == [[cue.start_ms, cue.end_ms] for cue in cues]


@given(transcripts, st.sampled_from(FORMATS))
@settings(deadline=None)
def test_files_are_utf8_and_the_same_each_time(transcript: Transcript, name: str) -> None:
    """Half characters do not stop the writing, and the bytes depend on the transcript alone."""
    content = render(transcript, name)
    if name != "docx":
        assert content.decode("utf-8")[:1] != "\ufeff"
    assert render(transcript, name) == content


@given(transcripts)
@settings(deadline=None)
def test_srt_holds_no_stray_arrow_or_blank_line(transcript: Transcript) -> None:
    """An arrow stands between times only, and a blank line between cues only."""
    content = render(transcript, "srt").decode()
    cues = cues_of(transcript, RenderOptions(), srt_text)
    assert content.count("-->") == len(cues)
    assert content.count("\n\n") == max(0, len(cues) - 1)
    assert len(content.split("\n")) == max(1, sum(3 + len(cue.lines) for cue in cues))


@given(transcripts)
@settings(deadline=None)
def test_txt_has_a_line_for_each_segment(transcript: Transcript) -> None:
    """Lines and spoken segments match one to one."""
    lines = render(transcript, "txt", PLAIN).decode().split("\n")[:-1]
    assert lines == [text for segment in transcript.segments if not is_blank(text := one_line(segment.text))]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("txt", b""),
        ("srt", b""),
        ("vtt", b"WEBVTT\n"),
        ("json", b'{\n  "text": "",\n  "segments": [],\n  "language": null\n}\n'),
        ("tsv", b"start\tend\ttext\n"),
        ("csv", b"start,end,channel,text\n"),
        ("ctm", b""),
    ],
)
def test_an_empty_transcript_gives_a_valid_file(name: str, content: bytes) -> None:
    """A silent recording has files too."""
    assert render(Transcript(segments=(), language=None, duration_s=30.0), name) == content


def test_times_past_a_hundred_hours() -> None:
    """Hours grow beyond two digits, and are there when there is none."""
    assert srt_time(100 * 3_600_000 + 61_001) == "100:01:01,001"
    assert vtt_time(999) == "00:00:00.999"


def test_srt_by_eye() -> None:
    """The usual case looks like the SRT files that everybody knows."""
    transcript = transcript_of(Segment(0.0, 1.5, " Hello -->\nthere."), Segment(2.0, 3.0, " Bye."))
    expected = "1\n00:00:00,000 --> 00:00:01,500\nHello -- > there.\n\n2\n00:00:02,000 --> 00:00:03,000\nBye.\n"
    assert render(transcript, "srt").decode() == expected
    options = RenderOptions(srt_bom=True, srt_crlf=True)
    assert render(transcript, "srt", options) == b"\xef\xbb\xbf" + expected.replace("\n", "\r\n").encode()


def test_channels_are_named() -> None:
    """Where channels were kept apart, people count them from 1 and JSON from 0."""
    word = Word(0.0, 1.0, " Hi.", channel=1)
    transcript = transcript_of(Segment(0.0, 1.0, " Hi.", words=(word,), channel=1))
    assert render(transcript, "txt") == b"Channel 2: Hi.\n"
    assert b"\nChannel 2: Hi.\n" in render(transcript, "srt")
    assert b"\n<v Channel 2>Hi.\n" in render(transcript, "vtt")
    segment = json.loads(render(transcript, "json"))["segments"][0]
    assert (segment["channel"], segment["words"][0]["channel"]) == (1, 1)
    cue = webvtt.from_buffer(io.StringIO(render(transcript, "vtt").decode()))[0]
    assert (cue.voice, cue.text) == ("Channel 2", "Hi.")


def test_json_has_whispers_keys() -> None:
    """The keys and their order are whisper's; the leading blank of words stays."""
    word = Word(0.5, 1.0, " so", 0.9)
    transcript = transcript_of(Segment(0.5, 1.0, " so", (word,), (50364, 370), 0.0, -0.25, 0.6, 0.01))
    document = json.loads(render(transcript, "json"))
    assert document == {
        "text": " so",
        "segments": [
            {
                "id": 0,
                "seek": 50,
                "start": 0.5,
                "end": 1.0,
                "text": " so",
                "tokens": [50364, 370],
                "temperature": 0.0,
                "avg_logprob": -0.25,
                "compression_ratio": 0.6,
                "no_speech_prob": 0.01,
                "words": [{"word": " so", "start": 0.5, "end": 1.0, "probability": 0.9}],
            }
        ],
        "language": "en",
    }
    assert list(document) == ["text", "segments", "language"]


def _numpy(value: Any) -> Any:
    """Return a value as engines that compute with numpy give it."""
    return np.float32(math.nan) if value is None else np.float32(value)


def test_case_segments_numbers() -> None:
    """Numbers of numpy become plain ones, and NaN becomes null."""
    path = CASES / "segments-numbers" / "segments.json"
    if not path.exists():
        pytest.skip("../shared/cases is not here")
    case = json.loads(path.read_text())
    parts = [
        Segment(
            _numpy(part["start"]),
            _numpy(part["end"]),
            part["text"],
            tuple(
                Word(_numpy(word["start"]), _numpy(word["end"]), word["word"], _numpy(word["probability"]))
                for word in part["words"]
            ),
            tokens=(np.int64(7),),  # type: ignore[arg-type]
            avg_logprob=_numpy(part["avg_logprob"]),
        )
        for part in case["segments"]
    ]
    segment = json.loads(render(transcript_of(*parts, duration_s=case["duration"]), "json"))["segments"][0]
    assert (segment["start"], segment["end"], segment["avg_logprob"], segment["tokens"]) == (0.0, 1.0, None, [7])
    assert segment["words"] == [{"word": " x", "start": 0.0, "end": 0.0, "probability": 0.5}]


@pytest.mark.parametrize("function", [extension, lambda name: render(transcript_of(), name), needs_words])
def test_an_unknown_format_names_the_known_ones(function: Any) -> None:
    """The hint lists what there is."""
    with pytest.raises(BadOption, match="'odt' is no output format") as caught:
        function("odt")
    assert caught.value.hint == f"The formats are {', '.join(FORMATS)}, and all."


def test_extensions() -> None:
    """No two formats share the name of a file, so that all of them can be asked for at once."""
    endings = [extension(name) for name in FORMATS]
    assert len(set(endings)) == len(FORMATS)
    assert extension("json") == ".json"
    assert extension("textgrid") == ".TextGrid"


def test_formats_are_chosen_by_name() -> None:
    """Commas and repetition both work, each format comes once, and `all` means those that need no extra."""
    assert chosen(["srt,vtt", "SRT", " txt "]) == ["srt", "vtt", "txt"]
    assert chosen(["all"]) == list(ALL)
    assert set(FORMATS) - set(ALL) == {"docx"}
    for given_names in ([""], ["srt,odt"]):
        with pytest.raises(BadOption):
            chosen(given_names)


def test_which_formats_want_words() -> None:
    """Subtitles do, unless a segment is to be a cue."""
    assert [name for name in FORMATS if needs_words(name)] == ["srt", "vtt", "native", "ctm", "textgrid"]
    assert not needs_words("srt", PLAIN)
