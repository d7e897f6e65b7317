"""The engines `remote` and `remote_voice`: what they send, and what an error of another voicejobs means here."""

import base64
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest

from voicejobs.audio.types import Pcm
from voicejobs.engines.base import EngineSpec, RecogniseOptions, SynthesiseOptions
from voicejobs.engines.remote import RemoteEngine, RemoteVoiceEngine, server_error
from voicejobs.errors import (
    BadOption,
    Cancelled,
    EngineBusy,
    EngineRefused,
    EngineUnavailable,
    Expired,
    Interruption,
    OutOfMemory,
    Permanent,
    QueueFull,
    ShuttingDown,
    VoicejobsError,
)
from voicejobs.proto import voice_engine_pb2 as pb

WINDOW: Pcm = np.arange(-8000, 8000, dtype=np.int16)
PROMPT = np.arange(100, dtype="<i2").tobytes()


class Recorded:
    """Keep what comes, and answer as the test wants."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.keys: list[str] = []
        self.answers: list[Any] = []
        self.url = ""

    def handlers(self) -> dict[str, Any]:
        """Return the handlers by the names of the methods."""
        return {
            "Recognize": _handler(self.recognise, pb.RecognizeRequest),
            "Synthesize": _handler(self.synthesise, pb.SynthesizeRequest),
            "ListVoices": _handler(self.voices, pb.ListVoicesRequest),
        }

    def recognise(self, request: pb.RecognizeRequest, context: grpc.ServicerContext) -> Any:
        """Answer one recognition."""
        return self._answer(request, context, pb.RecognizeResponse(text="x", language="en"))

    def synthesise(self, request: pb.SynthesizeRequest, context: grpc.ServicerContext) -> Any:
        """Answer one synthesis."""
        sound = pb.SynthesizeResponse(
            audio_data=np.asarray([0.5, -0.25], "<f4").tobytes(), sample_rate=22_050, channels=1, encoding="pcm_f32le"
        )
        return self._answer(request, context, sound)

    def voices(self, request: pb.ListVoicesRequest, context: grpc.ServicerContext) -> Any:
        """Answer with one voice."""
        voice = pb.VoiceInfo(name="joe", languages=["en"], sample_rate=22_050, description="d", licence="CC0-1.0")
        return self._answer(request, context, pb.ListVoicesResponse(voices=[voice]))

    def _answer(self, request: Any, context: grpc.ServicerContext, usual: Any) -> Any:
        """Keep the request and answer it."""
        self.requests.append(request)
        self.keys += [str(value) for name, value in context.invocation_metadata() if name == "authorization"]
        answer = self.answers.pop(0) if self.answers else usual
        if isinstance(answer, grpc.StatusCode):
            context.set_trailing_metadata((("retry-after-ms", "200"),))
            context.abort(answer, "its own words")
        return answer


def _handler(answer: Any, request: Any) -> Any:
    """Return the handler of a method."""
    return grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=request.FromString, response_serializer=lambda message: message.SerializeToString()
    )


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Return what closes servers and engines at the end of the test."""
    with ExitStack() as found:
        yield found


@pytest.fixture
def server(stack: ExitStack) -> Recorded:
    """Return a server that keeps what comes."""
    recorded = Recorded()
    made = grpc.server(ThreadPoolExecutor(8))
    handlers = grpc.method_handlers_generic_handler("voice_engine.VoiceEngine", recorded.handlers())
    made.add_generic_rpc_handlers((handlers,))
    recorded.url = f"grpc://127.0.0.1:{made.add_insecure_port('127.0.0.1:0')}"
    made.start()
    stack.callback(lambda: made.stop(None).wait())
    return recorded


@pytest.fixture
def load(stack: ExitStack, server: Recorded) -> Callable[..., Any]:
    """Return a function that loads one of the engines on that server."""

    def load_one(kind: Any, key: str = "", **params: Any) -> Any:
        params = {"url": server.url, "timeout_s": 5.0, **params}
        engine = kind.load(EngineSpec(kind.name, params=tuple(params.items()), secrets=(("key", key),)))
        stack.callback(engine.close)
        return engine

    return load_one


Load = Callable[..., Any]


def test_a_window_is_sent_as_it_is_with_every_option(load: Load, server: Recorded) -> None:
    """The server gives it to its engine as one window, with the options of the job, and the key goes as metadata."""
    options = RecogniseOptions(
        language="de",
        task="translate",
        word_timestamps=True,
        beam_size=2,
        best_of=3,
        patience=1.5,
        length_penalty=0.5,
        repetition_penalty=1.25,
        no_repeat_ngram_size=4,
        suppress_tokens=(7, 8),
        temperatures=(0.0, 0.5),
        compression_ratio_threshold=None,
        logprob_threshold=None,
        no_speech_threshold=0.5,
        condition_on_previous_text=True,
        initial_prompt="Names.",
        hotwords="Words.",
    )
    load(RemoteEngine, key="geheim").recognise([WINDOW], options)
    (request,) = server.requests
    assert request.audio_data == WINDOW.tobytes()
    assert (request.audio_format, request.language) == ("pcm_s16le_16k", "de")
    assert request.single_window
    assert not request.language_only
    assert server.keys == ["Bearer geheim"]
    from voicejobs.rpc.values import options_of

    arrived = RecogniseOptions.from_json({**options_of(request.options), "language": request.language})
    assert arrived == options


def test_segments_and_words_come_back_as_the_engine_there_gave_them(load: Load, server: Recorded) -> None:
    """Times, figures, blanks and the language are those of the answer."""
    word = pb.WordInfo(word="hello", start_time=0.25, end_time=0.5, probability=0.5, leading_space=True)
    segment = pb.SegmentInfo(text=" hello", start_time=0.25, end_time=0.5, words=[word], avg_logprob=-0.5)
    server.answers = [pb.RecognizeResponse(segments=[segment], language="de", language_probability=0.5)]
    (result,) = load(RemoteEngine).recognise([WINDOW], RecogniseOptions())
    (found,) = result.segments
    assert (found.start_s, found.end_s, found.text, found.avg_logprob) == (0.25, 0.5, " hello", -0.5)
    assert found.no_speech_prob is None
    assert [(one.text, one.start_s, one.probability) for one in found.words] == [(" hello", 0.25, 0.5)]
    assert (result.language, result.language_probability) == ("de", 0.5)


@pytest.mark.parametrize("name", ["temperatures", "suppress_tokens"])
def test_an_option_that_the_messages_cannot_carry_is_refused(name: str, load: Load, server: Recorded) -> None:
    """An empty list would mean to the server that nothing was said of it."""
    empty: dict[str, Any] = {name: ()}
    with pytest.raises(BadOption, match=name.replace("_", "-")):
        load(RemoteEngine).recognise([WINDOW], replace(RecogniseOptions(), **empty))
    assert not server.requests


def test_the_language_is_asked_for_alone(load: Load, server: Recorded) -> None:
    """No text is written for it; a server that tells none says so."""
    server.answers = [
        pb.RecognizeResponse(language="de", language_probability=0.75),
        pb.RecognizeResponse(language="fr"),
        pb.RecognizeResponse(),
    ]
    engine = load(RemoteEngine)
    assert engine.detect_language(WINDOW) == ("de", 0.75)
    assert engine.detect_language(WINDOW) == ("fr", 1.0)
    assert all(request.language_only for request in server.requests)
    with pytest.raises(BadOption, match="does not tell languages apart"):
        engine.detect_language(WINDOW)


def test_a_text_is_sent_as_one_piece_with_every_option(load: Load, server: Recorded) -> None:
    """The sound comes back sample by sample as the engine there made it, at its rate."""
    options = SynthesiseOptions(
        voice="joe",
        language="en",
        speed=1.5,
        seed=7,
        mode="zero_shot",
        instruct="Calm.",
        prompt_text="So.",
        prompt_audio=base64.b64encode(PROMPT).decode(),
    )
    (sound,) = load(RemoteVoiceEngine).synthesise(["Good day."], options)
    (request,) = server.requests
    assert request == pb.SynthesizeRequest(
        text="Good day.",
        voice="joe",
        language="en",
        audio_format="pcm_f32le",
        speed=1.5,
        seed=7,
        prompt_audio=PROMPT,
        prompt_audio_format="pcm_s16le_16k",
        prompt_text="So.",
        instruct="Calm.",
        mode="zero_shot",
        single_piece=True,
    )
    assert (sound.rate_hz, sound.samples.tolist()) == (22_050, [0.5, -0.25])
    load(RemoteVoiceEngine).synthesise(["Good day."], SynthesiseOptions())
    assert not server.requests[1].HasField("seed")


def test_sound_of_another_form_is_an_error(load: Load, server: Recorded) -> None:
    """A server that sends something else than was asked for is not believed."""
    server.answers = [pb.SynthesizeResponse(audio_data=b"OggS", sample_rate=48_000, channels=1, encoding="opus")]
    with pytest.raises(EngineUnavailable, match="opus"):
        load(RemoteVoiceEngine).synthesise(["Good day."], SynthesiseOptions())
    with pytest.raises(BadOption, match="base64"):
        load(RemoteVoiceEngine).synthesise(["Good day."], SynthesiseOptions(prompt_audio="?"))


def test_voices_are_those_of_the_server(load: Load) -> None:
    """With all that it says of them."""
    (voice,) = load(RemoteVoiceEngine).voices()
    assert voice.to_json() == {
        "name": "joe",
        "languages": ("en",),
        "rate_hz": 22_050,
        "description": "d",
        "licence": "CC0-1.0",
    }


def test_a_busy_server_is_asked_again_and_then_is_busy(load: Load, server: Recorded) -> None:
    """RESOURCE_EXHAUSTED with its time to wait costs a pause; after three of them the step comes back later."""
    server.answers = [grpc.StatusCode.RESOURCE_EXHAUSTED]
    load(RemoteEngine).recognise([WINDOW], RecogniseOptions())
    assert len(server.requests) == 2
    server.answers = [grpc.StatusCode.RESOURCE_EXHAUSTED] * 3
    with pytest.raises(EngineBusy, match="its own words") as caught:
        load(RemoteEngine).recognise([WINDOW], RecogniseOptions())
    assert caught.value.details["retry_after_s"] == pytest.approx(0.2)
    assert len(server.requests) == 5


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, EngineRefused),
        (grpc.StatusCode.UNAUTHENTICATED, EngineRefused),
        (grpc.StatusCode.UNIMPLEMENTED, EngineRefused),
        (grpc.StatusCode.CANCELLED, EngineUnavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, EngineUnavailable),
        (grpc.StatusCode.INTERNAL, EngineUnavailable),
    ],
)
def test_a_status_says_whether_to_try_again(
    status: grpc.StatusCode, kind: type[Exception], load: Load, server: Recorded
) -> None:
    """What is wrong with the request is final, everything else may pass."""
    server.answers = [status] * 3
    with pytest.raises(kind, match="its own words"):
        load(RemoteEngine).recognise([WINDOW], RecogniseOptions())


@pytest.mark.parametrize("error", [Cancelled("c"), ShuttingDown("s"), OutOfMemory("o"), Expired("e"), QueueFull("q")])
def test_no_error_of_another_voicejobs_stops_or_spares_a_job_of_ours(error: VoicejobsError) -> None:
    """That its call was cancelled, or that it goes down, is to us a server that did not answer."""
    found = server_error(error)
    assert not isinstance(found, Interruption)
    assert isinstance(found, Permanent) == isinstance(error, Permanent)
    assert found.details["server_code"] == error.code
    assert type(found) in {EngineRefused, EngineUnavailable, EngineBusy}


def test_the_key_is_in_no_text_of_the_client(load: Load) -> None:
    """Neither the spec nor the target shows it, and a wrong form is refused without it."""
    engine = load(RemoteEngine, key="geheim")
    assert "geheim" not in repr(engine._client.target)
    with pytest.raises(BadOption, match="VOICEJOBS_REMOTE_KEY") as caught:
        load(RemoteEngine, key="ge heim")
    assert "ge heim" not in str(caught.value.to_json())
    with pytest.raises(BadOption, match="VOICEJOBS_REMOTE_URL"):
        load(RemoteEngine, url="http://h:1")
    with pytest.raises(BadOption, match="address"):
        load(RemoteEngine, url="grpc://h")
