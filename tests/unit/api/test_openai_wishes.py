"""What requests to the OpenAI-compatible endpoints may ask for."""

from typing import Any

import pytest

from voicejobs.api.openai_wishes import fields_of_form, speech_wish, transcription_wish
from voicejobs.errors import BadOption


def refused(fields: dict[str, Any]) -> str:
    """Return the parameter that a transcription is refused for."""
    with pytest.raises(BadOption) as caught:
        transcription_wish({"model": "base", **fields})
    return str(caught.value.details["param"])


def test_form_fields_with_brackets_make_lists_and_objects() -> None:
    """`x[]`, a list written without brackets, and `x[key]` are read as clients mean them."""
    pairs = [
        ("model", "base"),
        ("timestamp_granularities[]", "word"),
        ("timestamp_granularities", "segment"),
        ("chunking_strategy[type]", "server_vad"),
        ("chunking_strategy[threshold]", "0.3"),
    ]
    assert fields_of_form(pairs) == {
        "model": "base",
        "timestamp_granularities": ["word", "segment"],
        "chunking_strategy": {"type": "server_vad", "threshold": "0.3"},
    }


@pytest.mark.parametrize("pairs", [[("a", "1"), ("a", "2")], [("a[b]", "1"), ("a[b]", "2")], [("a", "1"), ("a[]", "")]])
def test_a_value_that_is_given_twice_is_refused(pairs: list[tuple[str, str]]) -> None:
    """Nobody guesses which of two values was meant."""
    with pytest.raises(BadOption, match="a is given"):
        fields_of_form(pairs)


def test_a_transcription_has_the_defaults_of_openai() -> None:
    """A model alone is enough, and the answer is JSON with segments unasked for."""
    wish = transcription_wish({"model": "whisper-1"})
    assert (wish.response_format, wish.stream, wish.temperature, wish.needs_words) == ("json", False, None, False)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"model": "x" * 257}, "model"),
        ({"nonsense": "1"}, "nonsense"),
        ({"response_format": "xml"}, "response_format"),
        ({"response_format": "diarized_json"}, "response_format"),
        ({"timestamp_granularities": ["word"]}, "timestamp_granularities"),
        ({"timestamp_granularities": ["letter"], "response_format": "verbose_json"}, "timestamp_granularities"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": "1.5"}, "temperature"),
        ({"temperature": "nan"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"stream": "perhaps"}, "stream"),
        ({"stream": "true", "response_format": "srt"}, "stream"),
        ({"include": ["logprobs"]}, "include"),
        ({"known_speaker_names": ["Ann"]}, "known_speaker_names"),
        ({"languages": ["en", "de"]}, "languages"),
        ({"prompt": 7}, "prompt"),
        ({"chunking_strategy": "none"}, "chunking_strategy"),
        ({"chunking_strategy": {"type": "server_vad", "louder": 1}}, "chunking_strategy"),
        ({"chunking_strategy": {"type": "server_vad", "threshold": 2}}, "threshold"),
        ({"max_line_width": 42}, "max_line_width"),
        ({"max_line_width": 0, "response_format": "srt"}, "max_line_width"),
        ({"max_line_width": 40, "subtitle_profile": "plain", "response_format": "srt"}, "subtitle_profile"),
        ({"channels": "5.1"}, "channels"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    """The error names the parameter at fault."""
    assert refused(fields) == param


def test_what_is_known_reaches_the_wish() -> None:
    """Options of ours and of OpenAI's newer models are taken."""
    wish = transcription_wish(
        {
            "model": "base",
            "response_format": "srt",
            "keywords": ["Kiel", "Lübeck"],
            "hotwords": "Elbe",
            "languages": ["de"],
            "temperature": "0.4",
            "vad_filter": "false",
            "chunking_strategy": {"type": "server_vad", "threshold": "0.3", "silence_duration_ms": 200},
            "max_line_width": "37",
            "known_speaker_names": [],
            "include": None,
        }
    )
    assert (wish.hotwords, wish.language, wish.temperature) == ("Elbe, Kiel, Lübeck", "de", 0.4)
    assert wish.detection == {"vad_filter": False, "vad_threshold": 0.3, "vad_min_silence_ms": 200}
    assert (wish.render, wish.needs_words) == ({"max_line_width": 37}, True)


def test_channels_that_are_kept_apart_are_speakers() -> None:
    """With them the form that labels speakers can be had."""
    wish = transcription_wish({"model": "base", "response_format": "diarized_json", "channels": "split"})
    assert wish.response_format == "diarized_json"


def test_a_translation_takes_no_language() -> None:
    """It is always into English, and OpenAI's interface has no such field."""
    with pytest.raises(BadOption) as caught:
        transcription_wish({"model": "base", "language": "de"}, "translate")
    assert caught.value.details["param"] == "language"


def test_speech_has_the_defaults_of_openai() -> None:
    """It is MP3 at the pace of the voice; bare samples have the rate that OpenAI's have."""
    wish = speech_wish({"model": "tts-1", "input": "Hello", "voice": {"id": "joe"}}, 4096)
    assert (wish.voice, wish.response_format, wish.speed, wish.sample_rate_hz) == ("joe", "mp3", 1.0, 0)
    bare = speech_wish({"model": "tts-1", "input": "Hello", "voice": "joe", "response_format": "pcm"}, 4096)
    assert bare.sample_rate_hz == 24_000


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": "x" * 11}, "input"),
        ({"voice": None}, "voice"),
        ({"voice": {"name": "joe"}}, "voice"),
        ({"voice": {"id": 3}}, "voice"),
        ({"response_format": "midi"}, "response_format"),
        ({"speed": 5}, "speed"),
        ({"speed": "quick"}, "speed"),
        ({"stream_format": "websocket"}, "stream_format"),
        ({"sample_rate": 1}, "sample_rate"),
        ({"sample_rate": 8000.5}, "sample_rate"),
        ({"pitch": 2}, "pitch"),
    ],
)
def test_speech_that_cannot_be_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    """The error names the parameter at fault."""
    with pytest.raises(BadOption) as caught:
        speech_wish({"model": "tts-1", "input": "Hello", "voice": "joe", **fields}, 10)
    assert caught.value.details["param"] == param
