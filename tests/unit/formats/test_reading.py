"""JSON that is written and read back, by us and by the schema."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.formats.word_lists import transcripts
from voicejobs.audio.types import Segment, Transcript, Word
from voicejobs.errors import NotTranscript
from voicejobs.formats import FORMATS, RenderOptions, render
from voicejobs.formats.native import schema_text
from voicejobs.formats.reading import read_transcript

ROOT = Path(__file__).parents[3]
CASES = ROOT.parent / "shared" / "cases"
VALIDATOR = jsonschema.Draft202012Validator(json.loads(schema_text()))
TEXTS = [name for name in FORMATS if name != "docx"]


def spoken(**more: Any) -> Transcript:
    """Return a transcript with all that an engine can say."""
    words = (Word(0.5, 0.9, " So,", 0.9), Word(0.9, 1.4, " what", 0.5), Word(1.4, 1.5, "?", None))
    first = Segment(0.5, 1.5, " So, what?", words, (7, 8), 0.2, -0.25, 1.1, 0.01)
    second = Segment(2.0, 3.0, " No words.", avg_logprob=-0.5)
    known: dict[str, Any] = {"language": "en", "duration_s": 4.125, "language_probability": 0.75, "engine": "fake"}
    made = {"model": "m", "model_sha256": "a" * 64, "source_sha256": "b" * 64, "options": {"task": "transcribe"}}
    return Transcript((first, second), **{**known, **made, "warnings": ("damaged_passages",), **more})


@given(transcripts)
@settings(deadline=None)
def test_native_matches_its_schema(transcript: Transcript) -> None:
    """Whatever an engine gives, the published schema takes what we write."""
    VALIDATOR.validate(json.loads(render(transcript, "native")))


def test_the_schema_says_no() -> None:
    """A schema that takes everything would prove nothing."""
    document = json.loads(render(spoken(), "native"))
    for wrong in ({"schema": "voicejobs.transcript/2"}, {"segments": None}, {"channels": ["left"]}):
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate({**document, **wrong})


def test_the_published_schema_is_the_one_of_the_package() -> None:
    """docs/schemas holds the same bytes, and they are a valid schema."""
    assert (ROOT / "docs" / "schemas" / "transcript-1.json").read_text(encoding="utf-8") == schema_text()
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_text()))


def test_native_tells_what_made_it() -> None:
    """Media, engine, model, options and warnings are there beside whisper's keys."""
    document = json.loads(render(spoken(), "native"))
    assert (document["schema"], document["text"]) == ("voicejobs.transcript/1", "So, what? No words.")
    assert document["media"] == {"duration": 4.125, "sha256": "b" * 64}
    assert (document["engine"], document["model"], document["model_sha256"]) == ("fake", "m", "a" * 64)
    assert (document["language_probability"], document["warnings"]) == (0.75, ["damaged_passages"])
    assert document["segments"][0]["words"][0] == {"word": " So,", "start": 0.5, "end": 0.9, "probability": 0.9}
    whisper = json.loads(render(spoken(), "json"))["segments"]
    assert all(item.items() >= known.items() for item, known in zip(document["segments"], whisper, strict=True))


def test_verbose_json_has_the_shape_of_openai() -> None:
    """The language is an English word, the words stand in one list without blanks, and the duration is used up."""
    document = json.loads(render(spoken(), "verbose_json"))
    assert list(document) == [
        "task", "language", "language_code", "duration", "text", "segments", "words", "usage",
    ]  # fmt: skip
    assert (document["task"], document["language"], document["language_code"]) == ("transcribe", "english", "en")
    assert document["usage"] == {"type": "duration", "seconds": 4.125}
    assert document["words"][0] == {"word": "So,", "start": 0.5, "end": 0.9}
    assert list(document["segments"][0]) == [
        "id", "seek", "start", "end", "text", "tokens", "temperature", "avg_logprob", "compression_ratio",
        "no_speech_prob",
    ]  # fmt: skip


@given(transcripts)
@settings(deadline=None)
def test_native_reads_back_whole(transcript: Transcript) -> None:
    """What is read renders to the same bytes, in native and in every other format that shows what JSON can hold."""
    written = render(transcript, "native")
    found = read_transcript(written, "x.json")
    if math.isfinite(transcript.duration_s):  # else the end of the last segment counts as the end
        assert render(found, "native") == written
        options = RenderOptions(subtitle_profile="bbc")
        for name in ("txt", "srt", "vtt", "json", "tsv", "csv", "ctm", "textgrid"):
            assert render(found, name, options) == render(transcript, name, options), name


@pytest.mark.parametrize("name", ["json", "verbose_json"])
def test_other_json_renders_the_same_subtitles(name: str) -> None:
    """Whisper's JSON and OpenAI's hold enough for the same cues, with words where they had words."""
    transcript = replace(spoken(), duration_s=3.0)
    found = read_transcript(render(transcript, name), "x.json")
    assert found.language == "en"
    assert found.duration_s == pytest.approx(3.0)
    assert [word.text for segment in found.segments for word in segment.words] == [" So,", " what", "?"]
    assert render(found, "srt") == render(transcript, "srt")


def test_json_of_others_is_read() -> None:
    """Keys that are missing are unknown; words may have no times, and `score` for their probability."""
    document = {
        "segments": [{"start": 0, "end": 2, "text": "Hello you", "words": [{"word": "Hello", "start": 0, "end": 1,
                      "score": 0.5}, {"word": "you"}]}],
    }  # fmt: skip
    found = read_transcript(json.dumps(document).encode(), "x.json")
    assert found.segments[0].words[0].probability == 0.5
    assert render(found, "srt") == b"1\n00:00:00,000 --> 00:00:02,000\nHello you\n"
    assert read_transcript(b'\xef\xbb\xbf{"segments": []}', "x.json").duration_s == 0


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff\xfe\x00", b"[]", b"1", b"{}", b'{"segments": {}}', b'{"segments": [1]}', b'{"segments": [{}]}',
        b'{"segments": [{"text": "a", "start": "0"}]}', b'{"segments": [{"text": "a", "start": true}]}',
        b'{"segments": [{"text": "a", "words": {"a": 1}}]}', b'{"segments": [{"text": "a", "words": [{}]}]}',
        b'{"segments": [{"text": "a", "channel": -1}]}', b'{"segments": [{"text": "a", "tokens": ["b"]}]}',
        b'{"schema": "voicejobs.transcript/9", "segments": []}', b"[" * 100_000, b'{"segments": [{"text": 5}]}',
        b'{"segments": [], "warnings": 3}', b'{"segments": [], "engine": 3}', b'{"segments": [], "words": 3}',
        b'{"segments": [], "media": {"sha256": []}, "schema": "voicejobs.transcript/1"}',
        b'{"schema": [], "segments": []}',
    ],
)  # fmt: skip
def test_what_is_no_transcript_is_refused(data: bytes) -> None:
    """The error names the file, whatever is wrong with it."""
    with pytest.raises(NotTranscript, match=r"talk\.json"):
        read_transcript(data, "talk.json")


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["segments", "words", "text", "start", "end", "schema", "language", "duration", "tokens"]),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=12,
)


@given(st.one_of(json_values, st.builds(lambda items: {"segments": items}, st.lists(json_values, max_size=3))))
@settings(deadline=None, max_examples=150)
def test_any_json_is_read_or_refused(document: Any) -> None:
    """No JSON at all makes the reader or the writers fall over."""
    try:
        transcript = read_transcript(json.dumps(document).encode(), "x.json")
    except NotTranscript:
        return
    for name in TEXTS:
        render(transcript, name)


def _numpy(value: Any) -> Any:
    """Return a value as engines that compute with numpy give it."""
    return np.float32(math.nan) if value is None else np.float32(value)


@pytest.mark.parametrize("name", ["json", "verbose_json", "native"])
def test_case_segments_numbers(name: str) -> None:
    """Numbers of numpy become plain ones and NaN becomes null, in every JSON."""
    path = CASES / "segments-numbers" / "segments.json"
    if not path.exists():
        pytest.skip("../shared/cases is not here")
    case = json.loads(path.read_text())
    segments = tuple(
        Segment(
            _numpy(part["start"]),
            _numpy(part["end"]),
            part["text"],
            tuple(Word(_numpy(one["start"]), _numpy(one["end"]), one["word"], _numpy(None)) for one in part["words"]),
            avg_logprob=_numpy(part["avg_logprob"]),
        )
        for part in case["segments"]
    )
    content = render(Transcript(segments, "en", _numpy(case["duration"])), name)
    assert b"NaN" not in content
    document = json.loads(content)
    assert document["segments"][0]["avg_logprob"] is None
    if name == "native":
        VALIDATOR.validate(document)


@pytest.mark.parametrize("profile", ["netflix", "bbc", "plain"])
def test_case_segments_times(profile: str) -> None:
    """The recorded case of broken times loses no text in any profile, and its cues keep their order."""
    path = CASES / "segments-times" / "segments.json"
    if not path.exists():
        pytest.skip("../shared/cases is not here")
    transcript = replace(read_transcript(path.read_bytes(), "segments.json"))
    srt = render(transcript, "srt", RenderOptions(subtitle_profile=profile)).decode()
    for said in ("First line.", "No length.", "Starts before.", "Ends before it starts.", "Past the end."):
        assert said in srt.replace("\n", " ")
    times = [line.split(" --> ") for line in srt.splitlines() if " --> " in line]
    assert all(start < end <= "00:00:10,000" for start, end in times)
    assert times == sorted(times)
