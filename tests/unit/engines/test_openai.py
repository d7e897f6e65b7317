"""The engines `openai` and `openai_voice` against a server of our own that keeps what they send."""

import json
import logging
import struct
import threading
import time
import wave
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest

from tests.servers.http import JSON, HttpServer, Reply, Request
from voicejobs.audio.types import Pcm
from voicejobs.engines.base import EngineSpec, RecogniseOptions, SynthesiseOptions
from voicejobs.engines.configured import model_of_settings, with_settings
from voicejobs.engines.openai import OpenAiEngine, OpenAiVoiceEngine
from voicejobs.engines.servers import retry_after_s
from voicejobs.errors import BadOption, EngineBusy, EngineRefused, EngineUnavailable
from voicejobs.settings import Settings

KEY = "sk-very-secret-0123456789"
WINDOW: Pcm = np.arange(-8000, 8000, dtype=np.int16)
"""One second."""
Serve = Callable[[Callable[[Request], Reply]], HttpServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a server, which ends with the test."""
    with ExitStack() as stack:
        yield lambda respond: stack.enter_context(HttpServer(respond))


def document(value: Any, status: int = 200, **headers: str) -> Reply:
    """Return a JSON answer."""
    return Reply(status, json.dumps(value).encode(), {"Content-Type": JSON, **headers})


def refusal(status: int, message: str, **headers: str) -> Reply:
    """Return an error as OpenAI writes it."""
    return document({"error": {"message": message, "type": "x", "param": None, "code": None}}, status, **headers)


def spec(url: str, engine: str = "openai", model: str = "m-1", key: str = "", **params: Any) -> EngineSpec:
    """Return the spec of an engine on a server."""
    return EngineSpec(
        engine, model, params=tuple({"url": url, "timeout_s": 5.0, **params}.items()), secrets=(("key", key),)
    )


_loaded: list[Any] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close the engines of a test at its end."""
    yield
    while _loaded:
        _loaded.pop().close()


def recogniser(url: str, **params: Any) -> OpenAiEngine:
    """Return a loaded recogniser."""
    engine = OpenAiEngine.load(spec(url, **params))
    _loaded.append(engine)
    return engine


def voice(url: str, **params: Any) -> OpenAiVoiceEngine:
    """Return a loaded synthesiser."""
    engine = OpenAiVoiceEngine.load(spec(url, engine="openai_voice", **params))
    _loaded.append(engine)
    return engine


def test_a_window_is_sent_as_a_wav_file_with_the_fields_of_the_interface(serve: Serve) -> None:
    """The form has the model, the language, the prompt and the wanted form of answer, and the samples as they are."""
    server = serve(lambda request: document({"text": "hello"}))
    options = RecogniseOptions(
        language="de", initial_prompt="Ortsnamen", hotwords="Ahrensburg", word_timestamps=True, temperatures=(0.4,)
    )
    recogniser(f"{server.url}/v1", key=KEY).recognise([WINDOW], options)
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/audio/transcriptions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.fields() == {
        "model": ["m-1"],
        "language": ["de"],
        "prompt": ["Ahrensburg Ortsnamen"],
        "response_format": ["verbose_json"],
        "temperature": ["0.4"],
        "timestamp_granularities[]": ["word", "segment"],
    }
    file = request.file("file")
    assert (file.filename, file.content_type) == ("window.wav", "audio/wav")
    with wave.open(BytesIO(file.content)) as sound:
        assert sound.getparams()[:4] == (1, 2, 16_000, 16_000)
        assert sound.readframes(16_000) == WINDOW.tobytes()


def test_the_usual_options_send_no_field_that_nobody_asked_for(serve: Serve) -> None:
    """Without a key there is no header of one; without options there are only the model and the form of answer."""
    server = serve(lambda request: document({"text": "hello"}))
    recogniser(server.url).recognise([WINDOW], RecogniseOptions())
    (request,) = server.requests
    assert "authorization" not in request.headers
    assert request.fields() == {"model": ["m-1"], "response_format": ["verbose_json"]}
    assert request.path == "/v1/audio/transcriptions", "an address without a path gets /v1"


def test_translation_goes_to_its_own_path(serve: Serve) -> None:
    """The task translate asks /audio/translations, which takes no language."""
    server = serve(lambda request: document({"text": "hello", "language": "english"}))
    (result,) = recogniser(server.url).recognise([WINDOW], RecogniseOptions(task="translate", language="de"))
    (request,) = server.requests
    assert request.path == "/v1/audio/translations"
    assert "language" not in request.fields()
    assert result.segments[0].text == " hello"


def test_segments_words_and_language_of_openai_become_ours(serve: Serve) -> None:
    """Words that stand beside the segments get the blanks and the punctuation of the text; times stay in the window."""
    answer = {
        "task": "transcribe",
        "language": "english",
        "duration": 1.0,
        "text": "Well, hello. It's me!",
        "segments": [
            {"id": 0, "start": 0.0, "end": 0.5, "text": " Well, hello.", "tokens": [1, 2], "avg_logprob": -0.25,
             "compression_ratio": 1.1, "no_speech_prob": 0.01, "temperature": 0.0},
            {"id": 1, "start": 0.5, "end": 7.0, "text": " It's me!"},
        ],
        "words": [
            {"word": "Well", "start": 0.0, "end": 0.2},
            {"word": "hello", "start": 0.2, "end": 0.5},
            {"word": "It's", "start": 0.5, "end": 0.7},
            {"word": "me", "start": 0.7, "end": 7.0},
        ],
    }  # fmt: skip
    server = serve(lambda request: document(answer))
    (result,) = recogniser(server.url).recognise([WINDOW], RecogniseOptions(word_timestamps=True))
    first, second = result.segments
    assert [word.text for word in first.words] == [" Well,", " hello."]
    assert [word.text for word in second.words] == [" It's", " me!"]
    assert (second.end_s, second.words[1].end_s) == (1.0, 1.0)
    assert (first.tokens, first.avg_logprob, first.no_speech_prob) == ((1, 2), -0.25, 0.01)
    assert second.avg_logprob is None
    assert (result.language, result.language_probability) == ("en", None)


def test_segments_of_funasr_with_their_own_words_are_read(serve: Serve) -> None:
    """A server that puts words into its segments, names no language and writes no blanks is understood as well."""
    answer = {
        "text": "你好世界",
        "segments": [
            {"start": 0.1, "end": 0.9, "text": "你好世界", "speaker": "0",
             "words": [{"word": "你好", "start": 0.1, "end": 0.5}, {"word": "世界", "start": 0.5, "end": 0.9}]},
        ],
    }  # fmt: skip
    server = serve(lambda request: document(answer))
    (result,) = recogniser(server.url).recognise([WINDOW], RecogniseOptions(word_timestamps=True))
    (segment,) = result.segments
    assert segment.text == "你好世界"
    assert [word.text for word in segment.words] == ["你好", "世界"]
    assert result.language is None


def test_a_server_without_verbose_json_is_asked_for_json_from_then_on(serve: Serve) -> None:
    """Its refusal costs one request, not one for each window; the text then fills the window."""

    def respond(request: Request) -> Reply:
        if request.fields()["response_format"] == ["verbose_json"]:
            return refusal(400, "response_format 'verbose_json' is not compatible with this model")
        return document({"text": "good day"})

    server = serve(respond)
    engine = recogniser(server.url)
    for _ in range(3):
        (result,) = engine.recognise([WINDOW], RecogniseOptions())
    assert [(one.start_s, one.end_s, one.text) for one in result.segments] == [(0.0, 1.0, " good day")]
    asked = [request.fields()["response_format"] for request in server.requests]
    assert asked == [["verbose_json"], ["json"], ["json"], ["json"]]


def test_a_server_that_answers_with_bare_text_is_understood(serve: Serve) -> None:
    """A text body is the text."""
    server = serve(lambda request: Reply(200, "Grüß Gott\n".encode(), {"Content-Type": "text/plain; charset=utf-8"}))
    (result,) = recogniser(server.url).recognise([WINDOW], RecogniseOptions(language="de"))
    assert (result.segments[0].text, result.language) == (" Grüß Gott", "de")


def test_an_empty_text_is_no_segment_and_an_empty_window_no_request(serve: Serve) -> None:
    """Silence gives no segments; nothing is not sent."""
    server = serve(lambda request: document({"text": " ", "segments": [{"start": 0, "end": 1, "text": ""}]}))
    engine = recogniser(server.url)
    assert engine.recognise([WINDOW], RecogniseOptions())[0].segments == ()
    assert engine.recognise([WINDOW[:0]], RecogniseOptions(language="en"))[0].segments == ()
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer", [[], {"text": 3}, {"segments": [{"text": "no times"}, 7]}, {"words": [{"start": 0, "end": 1}]}]
)
def test_an_answer_of_another_form_is_an_error_and_no_crash(serve: Serve, answer: Any) -> None:
    """What is no transcription is said to be none."""
    server = serve(lambda request: document(answer))
    with pytest.raises(EngineUnavailable, match="the server"):
        recogniser(server.url).recognise([WINDOW], RecogniseOptions())


def test_windows_of_a_batch_are_with_the_server_at_the_same_time(serve: Serve) -> None:
    """Four windows of 0.2 s take little more than one, and come back in order."""

    def respond(request: Request) -> Reply:
        time.sleep(0.2)
        return document({"text": f"n{len(request.file('file').content)}"})

    server = serve(respond)
    windows = [WINDOW[:size] for size in (100, 200, 300, 400)]
    began = time.monotonic()
    found = recogniser(server.url).recognise(windows, RecogniseOptions())
    assert time.monotonic() - began < 0.6
    assert server.most_at_once == 4
    assert [one.segments[0].text for one in found] == [f" n{44 + 2 * window.size}" for window in windows]


def test_no_window_of_a_failed_batch_is_sent_again(serve: Serve) -> None:
    """The host halves a failed batch to find the window at fault; what is known of each by then is not asked again."""

    def respond(request: Request) -> Reply:
        bad = len(request.file("file").content) == 44 + 600
        return refusal(413, "too large") if bad else document({"text": "fine"})

    server = serve(respond)
    engine = recogniser(server.url)
    windows = [WINDOW[:size] for size in (100, 200, 300, 400)]
    with pytest.raises(EngineRefused):
        engine.recognise(windows, RecogniseOptions())
    assert len(engine.recognise(windows[:2], RecogniseOptions())) == 2
    with pytest.raises(EngineRefused, match="413: too large"):
        engine.recognise(windows[2:], RecogniseOptions())
    assert len(engine.recognise(windows[3:], RecogniseOptions())) == 1
    with pytest.raises(EngineRefused, match="413: too large"):
        engine.recognise(windows[2:3], RecogniseOptions())
    assert len(server.requests) == 4
    with pytest.raises(EngineRefused):
        engine.recognise(windows[2:3], RecogniseOptions())
    assert len(server.requests) == 5, "a later attempt is a new one"


def test_a_busy_server_is_left_alone_for_as_long_as_it_asks(serve: Serve) -> None:
    """A 429 with Retry-After is waited for and tried again; what takes longer than the limit ends at once."""
    times: list[float] = []

    def respond(request: Request) -> Reply:
        times.append(time.monotonic())
        busy = refusal(429, "slow down", **{"Retry-After": "1"})
        return busy if len(times) == 1 else document({"text": "now"})

    server = serve(respond)
    (result,) = recogniser(server.url).recognise([WINDOW], RecogniseOptions())
    assert result.segments[0].text == " now"
    assert times[1] - times[0] >= 1.0
    slow = serve(lambda request: refusal(429, "slow down", **{"Retry-After": "60"}))
    with pytest.raises(EngineBusy, match="429: slow down") as caught:
        recogniser(slow.url).recognise([WINDOW], RecogniseOptions())
    assert caught.value.details["retry_after_s"] == 60.0
    assert len(slow.requests) == 1


@pytest.mark.parametrize(
    ("status", "kind", "tries"),
    [(400, EngineRefused, 2), (401, EngineRefused, 1), (404, EngineRefused, 1), (413, EngineRefused, 1),
     (302, EngineRefused, 1), (500, EngineUnavailable, 3), (502, EngineUnavailable, 3), (503, EngineBusy, 3)],
)  # fmt: skip
def test_a_status_becomes_the_error_that_says_whether_to_try_again(
    serve: Serve, status: int, kind: type[Exception], tries: int
) -> None:
    """What the server refuses is final and has its message; what it cannot do now is tried three times."""
    server = serve(lambda request: refusal(status, "its own words", Location="http://127.0.0.1:9/elsewhere"))
    with pytest.raises(kind, match=f"{status}: its own words"):
        recogniser(server.url).recognise([WINDOW], RecogniseOptions())
    assert len(server.requests) == tries, "a form of answer that is refused is tried in another form"


def test_a_server_that_is_not_there_hangs_or_breaks_off_is_unavailable(serve: Serve) -> None:
    """Every way to give no answer ends in time with the same code."""
    with HttpServer(lambda request: Reply()) as gone:
        url = gone.url
    with pytest.raises(EngineUnavailable, match="cannot be asked"):
        recogniser(url).recognise([WINDOW], RecogniseOptions())
    stop = threading.Event()
    hanging = serve(lambda request: Reply(200, [b"{"] * 3, before=lambda: stop.wait(5)))
    began = time.monotonic()
    with pytest.raises(EngineUnavailable, match=r"within|more than"):
        recogniser(hanging.url, timeout_s=0.3).recognise([WINDOW], RecogniseOptions())
    assert time.monotonic() - began < 3.0
    stop.set()
    broken = serve(lambda request: Reply(200, [b'{"text":'], broken=True))
    with pytest.raises(EngineUnavailable, match="broke off"):
        recogniser(broken.url).recognise([WINDOW], RecogniseOptions())
    assert len(broken.requests) == 1, "nothing is asked again after the first byte"


def test_the_key_is_in_no_message_and_in_no_log(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """A server that writes the key back, one that is away, and a key of a wrong form show it to nobody."""
    caplog.set_level(logging.DEBUG)
    server = serve(lambda request: refusal(401, f"Incorrect API key provided: {KEY}"))
    with pytest.raises(EngineRefused, match=r"provided: \*\*\*") as caught:
        recogniser(server.url, key=KEY).recognise([WINDOW], RecogniseOptions())
    odd = KEY + "\n"
    with pytest.raises(BadOption, match="VOICEJOBS_OPENAI_KEY") as refused:
        recogniser(server.url, key=odd)
    with_key = spec(server.url, key=KEY)
    for text in (caplog.text, str(caught.value.to_json()), str(refused.value.to_json()), repr(with_key)):
        assert KEY not in text
    assert KEY not in json.dumps(with_key.to_json())
    settings = Settings.from_env({"HOME": "/home/somebody", "VOICEJOBS_OPENAI_KEY": KEY})
    assert KEY not in repr(settings)
    assert dict(with_settings(EngineSpec("openai"), settings).secrets) == {"key": KEY}


@pytest.mark.parametrize(
    ("url", "message"),
    [("", "not set"), ("ftp://h/v1", "no address"), ("http://me:geheim@h/v1", "password"),
     ("http://h/v1?api-key=geheim", "query"), ("http://h:port/", "no address"), ("http://", "no address")],
)  # fmt: skip
def test_an_address_that_cannot_be_used_or_must_not_be_shown_is_refused(url: str, message: str) -> None:
    """The error names the setting, and shows no secret that stood in the address."""
    with pytest.raises(BadOption, match=message) as caught:
        recogniser(url)
    assert "VOICEJOBS_OPENAI_URL" in caught.value.message
    assert "geheim" not in str(caught.value.to_json())


@pytest.mark.parametrize(
    "changed", [{"beam_size": 3}, {"suppress_tokens": (5,)}, {"temperatures": (0.0, 0.5)}, {"temperatures": ()}]
)
def test_an_option_that_the_interface_cannot_carry_is_refused_by_name(changed: dict[str, Any]) -> None:
    """Nothing is ignored in silence, and nothing is sent."""
    name = next(iter(changed)).replace("_", "-")
    with pytest.raises(BadOption, match=f"--{name}"):
        recogniser("http://127.0.0.1:9").recognise([WINDOW], replace(RecogniseOptions(), **changed))


def test_the_language_is_told_by_the_answer(serve: Serve) -> None:
    """A name or a code both count; a server that names none is no judge of languages."""
    answers = iter([{"text": "x", "language": "german"}, {"text": "x", "language": "fr", "language_probability": 0.75}])
    engine = recogniser(serve(lambda request: document(next(answers, {"text": "x"}))).url)
    assert engine.detect_language(WINDOW) == ("de", 1.0)
    assert engine.detect_language(WINDOW) == ("fr", 0.75)
    with pytest.raises(BadOption, match="does not tell the language"):
        engine.detect_language(WINDOW)


def test_a_model_of_the_settings_counts_where_the_job_names_none(serve: Serve) -> None:
    """The default names are OpenAI's own; a job's counts more."""
    settings = Settings.from_env({"HOME": "/h", "VOICEJOBS_OPENAI_MODEL": "paraformer"})
    assert (model_of_settings("openai", settings), model_of_settings("openai_voice", settings)) == (
        "paraformer",
        "tts-1",
    )
    assert model_of_settings("whisper", settings) == ""
    server = serve(lambda request: document({"text": "x"}))
    for model in ("", "own"):
        filled = with_settings(EngineSpec("openai", model, params=(("url", server.url),)), settings)
        _loaded.append(OpenAiEngine.load(filled))
        _loaded[-1].recognise([WINDOW], RecogniseOptions())
    assert [request.fields()["model"] for request in server.requests] == [["paraformer"], ["own"]]


def test_seconds_and_dates_of_retry_after_are_understood() -> None:
    """Seconds, milliseconds and dates count; nonsense and the past do not."""
    assert retry_after_s({"retry-after": "7"}) == 7.0
    assert retry_after_s({"retry-after-ms": "250", "retry-after": "7"}) == 0.25
    assert retry_after_s({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}) == 0.0
    assert retry_after_s({"retry-after": "Fri, 01 Jan 2999 00:00:10 GMT"}) > 1e9
    assert retry_after_s({"retry-after": "soon"}) == 0.0
    assert retry_after_s({}) == 0.0


# ---- speech


def wav(samples: Any, rate_hz: int = 22_050, channels: int = 1, bits: int = 16, size: int | None = None) -> bytes:
    """Return a WAV file, with a lie about its size where one is given."""
    data = np.asarray(samples, "<i2" if bits == 16 else "<f4").tobytes()
    kind, frame = (1 if bits == 16 else 3), bits // 8 * channels
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, kind, channels, rate_hz, rate_hz * frame, frame, bits)
    size = len(data) if size is None else size
    odd = struct.pack("<4sI", b"LIST", 3) + b"abc\0"
    return b"RIFF\xff\xff\xff\xffWAVE" + head + odd + struct.pack("<4sI", b"data", size) + data


def test_a_text_is_sent_with_the_fields_of_the_interface_and_the_header_tells_the_rate(serve: Serve) -> None:
    """Model, text, voice, speed and instructions go as JSON; the sound has the rate of the WAV file."""
    server = serve(lambda request: Reply(200, wav([0, 16384, -32768]), {"Content-Type": "audio/wav"}))
    options = SynthesiseOptions(voice="nova", speed=1.5, instruct="Cheerful.")
    (sound,) = voice(f"{server.url}/v1", key=KEY).synthesise(["Good day."], options)
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/audio/speech")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert json.loads(request.body) == {
        "model": "m-1",
        "input": "Good day.",
        "voice": "nova",
        "response_format": "wav",
        "speed": 1.5,
        "instructions": "Cheerful.",
    }
    assert sound.rate_hz == 22_050
    assert sound.samples.tolist() == [0.0, 0.5, -1.0]


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFFFFF])
def test_a_wav_file_of_a_length_that_was_not_known_is_read_to_its_end(serve: Serve, size: int) -> None:
    """Servers that speak while they write put a false length into the header."""
    server = serve(lambda request: Reply(200, [wav([1, 2, 3, 4], size=size)]))
    (sound,) = voice(server.url).synthesise(["Hello"], SynthesiseOptions())
    assert len(sound.samples) == 4


def test_float_and_stereo_wav_files_become_mono(serve: Serve) -> None:
    """The mean of the channels counts."""
    server = serve(lambda request: Reply(200, wav([0.5, -0.5, 1.0, 0.0], 24_000, channels=2, bits=32)))
    (sound,) = voice(server.url).synthesise(["Hello"], SynthesiseOptions())
    assert sound.samples.tolist() == [0.0, 0.5]


def test_a_server_without_wav_is_asked_for_pcm(serve: Serve) -> None:
    """Its rate is that of its content type, else OpenAI's 24 kHz."""

    def respond(request: Request) -> Reply:
        if json.loads(request.body)["response_format"] == "wav":
            return document({"detail": "response_format: unknown"}, 422)
        kind = "audio/pcm; rate=16000" if len(server.requests) < 3 else "audio/pcm"
        return Reply(200, np.asarray([1, -1], "<i2").tobytes(), {"Content-Type": kind})

    server = serve(respond)
    engine = voice(server.url)
    rates = [engine.synthesise(["Hello"], SynthesiseOptions())[0].rate_hz for _ in range(2)]
    assert rates == [16_000, 24_000]
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("body", "message"),
    [(b"", "no WAV"), (b"<html>", "no WAV"), (wav([]), "no sound"), (wav([1])[:-1], "inside a sample"),
     (wav([1], rate_hz=0), "no sampling rate"), (b"RIFF\0\0\0\0WAVE", "no sound")],
)  # fmt: skip
def test_sound_that_is_none_is_an_error(serve: Serve, body: bytes, message: str) -> None:
    """Whatever comes instead of sound is said, and may be tried again."""
    server = serve(lambda request: Reply(200, body))
    with pytest.raises(EngineUnavailable, match=message):
        voice(server.url).synthesise(["Hello"], SynthesiseOptions())


def test_a_text_without_anything_to_say_is_not_sent(serve: Serve) -> None:
    """It gives an empty sound, at the rate of the sounds beside it."""
    server = serve(lambda request: Reply(500))
    (sound,) = voice(server.url).synthesise([" ... !"], SynthesiseOptions())
    assert len(sound.samples) == 0
    assert not server.requests
    other = serve(lambda request: Reply(200, wav([1], rate_hz=16_000)))
    found = voice(other.url).synthesise(["...", "Hello", "!"], SynthesiseOptions())
    assert [(len(one.samples), one.rate_hz) for one in found] == [(0, 16_000), (1, 16_000), (0, 16_000)]


def test_a_sound_that_breaks_off_is_not_asked_for_again(serve: Serve) -> None:
    """After the first byte there is one error and no second request; the step is tried again as a whole."""
    server = serve(lambda request: Reply(200, [wav([1, 2, 3])], broken=True))
    with pytest.raises(EngineUnavailable, match="broke off") as caught:
        voice(server.url).synthesise(["Hello"], SynthesiseOptions())
    assert caught.value.details["begun"]
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "options",
    [SynthesiseOptions(mode="sft"), SynthesiseOptions(prompt_audio="AAAA"), SynthesiseOptions(speed=4.5)],
)
def test_options_of_speech_that_the_interface_has_not_are_refused(options: SynthesiseOptions) -> None:
    """Nothing is ignored in silence."""
    with pytest.raises(BadOption):
        voice("http://127.0.0.1:9").synthesise(["Hello"], options)


def test_voices_are_those_that_the_server_lists(serve: Serve) -> None:
    """Names or objects both count, the default is first; a server without a list has the default alone."""
    lists: Iterator[Any] = iter([{"voices": ["nova", "alloy"]}, {"data": [{"id": "x"}]}, ["y"]])

    def respond(request: Request) -> Reply:
        found = next(lists, None)
        return refusal(404, "no such path") if found is None else document(found)

    engine = voice(serve(respond).url, voice="alloy")
    names = [[one.name for one in engine.voices()] for _ in range(4)]
    assert names == [["alloy", "nova"], ["alloy", "x"], ["alloy", "y"], ["alloy"]]
