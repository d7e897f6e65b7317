"""Answers of the OpenAI-compatible endpoints."""

import base64
import json
from typing import Any

import pytest

from voicejobs.api.openai_answers import Deltas, answer_body, answer_document, speech_events, transcript_events
from voicejobs.audio.types import Segment, Transcript, Word

HEARD = Transcript(
    (
        Segment(0.0, 1.5, " Good morning.", (Word(0.0, 0.7, " Good", 0.9), Word(0.7, 1.5, " morning.", 0.9))),
        Segment(1.5, 3.0, " Ships ahoy.", (Word(1.5, 2.0, " Ships", 0.9), Word(2.0, 3.0, " ahoy.", 0.9)), channel=1),
    ),
    "en",
    3.25,
    engine="fake",
    model="",
)
NOTHING = Transcript((), None, 2.0)


def wanted(form: str, *granularities: str) -> dict[str, Any]:
    """Return a wish as its job keeps it."""
    return {"response_format": form, "granularities": granularities or ["segment"], "render": {}}


def events(data: bytes) -> list[dict[str, Any]]:
    """Return the events of a stream, whose names are their types."""
    found = []
    for block in data.decode().split("\n\n")[:-1]:
        name, _, content = block.partition("\n")
        found.append(json.loads(content.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_each_form_has_the_text() -> None:
    """JSON holds it with the seconds that were heard; texts are bare, with a line end."""
    assert answer_document(HEARD, wanted("json")) == {
        "text": "Good morning. Ships ahoy.",
        "usage": {"type": "duration", "seconds": 3.25},
    }
    assert answer_body(HEARD, wanted("text")) == b"Good morning. Ships ahoy.\n"
    assert answer_body(HEARD, wanted("srt")).startswith(b"1\n00:00:00,000 --> ")
    assert answer_body(HEARD, wanted("vtt")).startswith(b"WEBVTT")


@pytest.mark.parametrize(
    ("granularities", "there", "missing"),
    [(("segment",), "segments", "words"), (("word",), "words", "segments"), (("word", "segment"), "words", "nothing")],
)
def test_the_longest_form_lists_what_was_asked_for(granularities: tuple[str, ...], there: str, missing: str) -> None:
    """Segments are listed by default, words where they are asked for."""
    document = answer_document(HEARD, wanted("verbose_json", *granularities))
    assert there in document
    assert missing not in document
    assert (document["language"], document["language_code"], document["duration"]) == ("english", "en", 3.25)


def test_nothing_heard_is_an_answer() -> None:
    """Silence has a valid answer in every form, with a language that is a text."""
    assert answer_document(NOTHING, wanted("verbose_json", "word")) | {"language": ""} == answer_document(
        NOTHING, wanted("verbose_json", "word")
    )
    assert answer_body(NOTHING, wanted("srt")) == b""
    assert answer_body(NOTHING, wanted("text")) == b"\n"


def test_the_deltas_of_a_stream_are_its_text() -> None:
    """Joined, they are what the last event tells."""
    told = events(b"".join(transcript_events(HEARD, wanted("json"))))
    deltas = [one["delta"] for one in told if one["type"] == "transcript.text.delta"]
    assert deltas == ["Good morning.", " Ships ahoy."]
    assert told[-1] | {"usage": None} == {
        "type": "transcript.text.done",
        "text": "Good morning. Ships ahoy.",
        "usage": None,
    }


def test_text_that_is_told_early_is_not_told_twice() -> None:
    """What was given while the job ran, and the rest at its end, are the text together."""
    deltas = Deltas()
    early = b"".join([*deltas.more([]), *deltas.more([" Good morning."]), *deltas.more([" Good morning."])])
    told = events(early + b"".join(transcript_events(HEARD, wanted("json"), deltas)))
    assert [one["delta"] for one in told[:-1]] == ["Good morning.", " Ships ahoy."]
    texts = [" Good", " ", "morning.  ", "\n Ships ahoy. "]
    parts = events(b"".join([*Deltas().more(texts)]))
    assert "".join(one["delta"] for one in parts) == "".join(texts).strip()


def test_text_that_no_segment_holds_is_told_at_the_end() -> None:
    """Deltas always come to the text; where they could not, nothing false is added."""
    deltas = Deltas()
    assert [one["delta"] for one in events(b"".join(deltas.finish("whole")))] == ["whole"]
    other = Deltas()
    list(other.more(["something"]))
    assert not list(other.finish("else"))


def test_channels_are_the_speakers_of_a_stream() -> None:
    """Where they were kept apart, each segment names its own."""
    told = events(b"".join(transcript_events(HEARD, wanted("diarized_json"))))
    assert [one["speaker"] for one in told if one["type"] == "transcript.text.segment"] == ["channel_1", "channel_2"]


def test_the_sound_of_a_stream_is_its_file() -> None:
    """The pieces, decoded and joined, are the bytes that went in; none but the last is padded."""
    data = bytes(range(256)) * 700
    told = events(b"".join(speech_events([data[:1000], data[1000:]])))
    assert told[-1]["type"] == "speech.audio.done"
    parts = [one["audio"] for one in told[:-1]]
    assert all("=" not in part for part in parts[:-1])
    assert b"".join(map(base64.b64decode, parts)) == data
