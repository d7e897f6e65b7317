"""The engine `cosyvoice` against both of CosyVoice's servers, built from what is published of their interfaces."""

import base64
import threading
import time
import wave
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import BytesIO
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.cosyvoice import FORMS, Answer, CosyVoiceGrpcServer, messages
from tests.servers.http import HttpServer, Reply, Request
from tests.servers.process import free_port
from voicejobs.engines.base import EngineSpec, SynthesiseOptions
from voicejobs.engines.cosyvoice import CosyVoiceEngine
from voicejobs.engines.cosyvoice_grpc import request_of
from voicejobs.engines.cosyvoice_requests import Utterance, family_of, utterance_of
from voicejobs.errors import BadOption, EngineBusy, EngineRefused, EngineUnavailable, VoicejobsError

SAMPLES = np.arange(-50, 50, dtype="<i2") * 300
SOUND = SAMPLES.tobytes()
PROMPT = np.arange(32_000, dtype="<i2").tobytes()
"""Two seconds of a voice."""
ENCODED = base64.b64encode(PROMPT).decode()
OPTIONS = {
    "sft": SynthesiseOptions(mode="sft", voice="中文女"),
    "zero_shot": SynthesiseOptions(mode="zero_shot", prompt_text="So I speak.", prompt_audio=ENCODED),
    "cross_lingual": SynthesiseOptions(mode="cross_lingual", prompt_audio=ENCODED),
    "instruct": SynthesiseOptions(mode="instruct", voice="中文男", instruct="Theo is calm."),
    "instruct2": SynthesiseOptions(mode="instruct2", instruct="In a whisper.", prompt_audio=ENCODED),
}
THEIRS = {
    "sft": lambda text: {"sft_request": {"spk_id": "中文女", "tts_text": text}},
    "zero_shot": lambda text: {
        "zero_shot_request": {"tts_text": text, "prompt_text": "So I speak.", "prompt_audio": PROMPT}
    },
    "cross_lingual": lambda text: {"cross_lingual_request": {"tts_text": text, "prompt_audio": PROMPT}},
    "instruct": lambda text: {
        "instruct_request": {"tts_text": text, "spk_id": "中文男", "instruct_text": "Theo is calm."}
    },
}
"""What a client generated from the published proto sends for the same options."""
Load = Callable[..., CosyVoiceEngine]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Return what closes servers and engines at the end of the test."""
    with ExitStack() as found:
        yield found


@pytest.fixture
def load(stack: ExitStack) -> Load:
    """Return a function that loads the engine."""

    def load_one(url: str, model: str = "CosyVoice-300M", **params: Any) -> CosyVoiceEngine:
        spec = EngineSpec("cosyvoice", model, params=tuple({"url": url, "base_s": 5.0, **params}.items()))
        engine = CosyVoiceEngine.load(spec)
        stack.callback(engine.close)
        return engine

    return load_one


@pytest.fixture
def serve(stack: ExitStack) -> Callable[..., CosyVoiceGrpcServer]:
    """Return a function that starts a gRPC server."""

    def start(answer: Answer, max_conc: int = 4) -> CosyVoiceGrpcServer:
        return stack.enter_context(CosyVoiceGrpcServer(answer, max_conc))

    return start


Serve = Callable[..., CosyVoiceGrpcServer]


def whole(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    """Answer with the sound in one piece."""
    yield SOUND


@pytest.mark.parametrize("mode", THEIRS)
def test_what_we_send_is_byte_for_byte_what_a_client_of_the_published_proto_sends(
    mode: str, load: Load, serve: Serve
) -> None:
    """The bytes on the wire of every mode equal those that messages built from the published text serialise to."""
    server = serve(whole)
    text = "Good day, 世界."
    (sound,) = load(server.url).synthesise([text], OPTIONS[mode])
    theirs = messages()["Request"](**THEIRS[mode](text)).SerializeToString(deterministic=True)
    assert server.requests == [theirs]
    assert (sound.rate_hz, sound.samples.tolist()) == (22_050, (SAMPLES / np.float32(32768)).tolist())


def test_requests_of_the_published_client_are_replayed_into_the_server(load: Load, serve: Serve) -> None:
    """A client of the published proto and ours get the same sound for the same bytes."""
    server = serve(whole)
    (ours,) = load(server.url).synthesise(["Good day."], OPTIONS["sft"])
    kinds = messages()
    theirs = kinds["Request"](**THEIRS["sft"]("Good day."))
    with grpc.insecure_channel(server.url.removeprefix("grpc://")) as channel:
        call: Any = channel.unary_stream(
            "/cosyvoice.CosyVoice/Inference", lambda message: message.SerializeToString(), kinds["Response"].FromString
        )
        replayed = b"".join(response.tts_audio for response in call(theirs, timeout=5))
    assert server.requests[0] == server.requests[1]
    assert np.array_equal(ours.samples * 32768, np.frombuffer(replayed, "<i2"))


@given(text=st.text(), speaker=st.text(), words=st.text(), audio=st.binary(max_size=64))
def test_any_text_serialises_as_the_published_messages_do(text: str, speaker: str, words: str, audio: bytes) -> None:
    """Whatever the values, empty ones included, our bytes read as theirs, and theirs as ours."""
    request = _PUBLISHED["Request"]
    cases: dict[str, dict[str, dict[str, Any]]] = {
        "sft": {"sft_request": {"spk_id": speaker, "tts_text": text}},
        "zero_shot": {"zero_shot_request": {"tts_text": text, "prompt_text": words, "prompt_audio": audio}},
        "cross_lingual": {"cross_lingual_request": {"tts_text": text, "prompt_audio": audio}},
        "instruct": {"instruct_request": {"tts_text": text, "spk_id": speaker, "instruct_text": words}},
    }
    for mode, ours in cases.items():
        utterance = Utterance(mode, text, speaker, words, words, audio)  # type: ignore[arg-type]
        assert request_of(utterance).SerializeToString() == request(**ours).SerializeToString()


_PUBLISHED = messages()


@pytest.mark.parametrize("mode", OPTIONS)
def test_the_http_server_gets_the_fields_of_its_forms(mode: str, load: Load, stack: ExitStack) -> None:
    """Each mode posts exactly the fields that its path demands, the recording as a WAV file of 16 kHz."""
    server = stack.enter_context(HttpServer(lambda request: Reply(200, [SOUND[:33], SOUND[33:]])))
    model = "iic/CosyVoice2-0.5B" if mode == "instruct2" else "iic/CosyVoice-300M"
    (sound,) = load(server.url, model).synthesise(["Good day, 世界."], OPTIONS[mode])
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", f"/inference_{mode}")
    assert {part.name for part in request.parts()} == FORMS[request.path]
    fields = request.fields()
    assert fields["tts_text"] == ["Good day, 世界."]
    assert fields.get("spk_id", [OPTIONS[mode].voice]) == [OPTIONS[mode].voice]
    assert fields.get("instruct_text", [OPTIONS[mode].instruct]) == [OPTIONS[mode].instruct]
    assert fields.get("prompt_text", [OPTIONS[mode].prompt_text]) == [OPTIONS[mode].prompt_text]
    if "prompt_wav" in FORMS[request.path]:
        with wave.open(BytesIO(request.file("prompt_wav").content)) as prompt:
            assert prompt.getparams()[:4] == (1, 2, 16_000, 32_000)
            assert prompt.readframes(32_000) == PROMPT
    assert sound.rate_hz == (24_000 if mode == "instruct2" else 22_050)
    assert len(sound.samples) == len(SAMPLES)


@pytest.mark.parametrize(
    ("model", "given_hz", "rate_hz"),
    [("CosyVoice-300M", 0, 22_050), ("iic/CosyVoice-300M-SFT", 0, 22_050), ("CosyVoice-300M-25Hz", 0, 22_050),
     ("iic/CosyVoice2-0.5B", 0, 24_000), ("CosyVoice3-0.5B", 0, 24_000),
     ("FunAudioLLM/Fun-CosyVoice3-0.5B-2512", 0, 24_000), ("CosyVoice2-0.5B", 16_000, 16_000), ("", 24_000, 24_000)],
)  # fmt: skip
def test_the_rate_is_that_of_the_model_unless_it_is_given(
    model: str, given_hz: int, rate_hz: int, load: Load, serve: Serve
) -> None:
    """No message carries the rate: the name of the model tells it, and a setting counts more."""
    engine = load(serve(whole).url, model, rate_hz=given_hz, voices="a, b")
    (sound,) = engine.synthesise(["Hello."], OPTIONS["cross_lingual"])
    assert sound.rate_hz == rate_hz
    assert [(one.name, one.rate_hz) for one in engine.voices()] == [("a", rate_hz), ("b", rate_hz)]


@pytest.mark.parametrize("model", ["", "F5-TTS", "CosyVoice4"])
def test_a_rate_that_nobody_knows_is_asked_for(model: str, load: Load) -> None:
    """A wrong guess would be heard as a wrong pitch: there is none."""
    with pytest.raises(BadOption, match="sampling rate"):
        load("grpc://127.0.0.1:9", model)


@pytest.mark.parametrize(
    ("options", "mode"),
    [(SynthesiseOptions(voice="a"), "sft"), (SynthesiseOptions(voice="a", instruct="Slow."), "instruct"),
     (SynthesiseOptions(prompt_audio=ENCODED), "cross_lingual"),
     (SynthesiseOptions(prompt_audio=ENCODED, prompt_text="So."), "zero_shot"),
     (SynthesiseOptions(prompt_audio=ENCODED, instruct="Slow."), "instruct2")],
)  # fmt: skip
def test_without_a_mode_the_one_is_taken_that_uses_what_is_given(options: SynthesiseOptions, mode: str) -> None:
    """Nothing that was given is left out in silence."""
    assert utterance_of("Hello.", options, None, is_grpc=False).mode == mode


@pytest.mark.parametrize(
    ("options", "model", "message"),
    [
        (OPTIONS["instruct2"], "CosyVoice2-0.5B", "gRPC server has no mode instruct2"),
        (OPTIONS["instruct"], "CosyVoice2-0.5B", "CosyVoice2 has no mode instruct"),
        (OPTIONS["instruct"], "Fun-CosyVoice3-0.5B", "CosyVoice3 has no mode instruct"),
        (OPTIONS["sft"], "CosyVoice2-0.5B", "no speakers"),
        (SynthesiseOptions(mode="sft"), "CosyVoice-300M", "needs a speaker"),
        (SynthesiseOptions(mode="zero_shot", prompt_audio=ENCODED), "CosyVoice-300M", "needs the words"),
        (SynthesiseOptions(mode="cross_lingual"), "CosyVoice-300M", "needs a recording"),
        (SynthesiseOptions(mode="instruct", voice="a"), "CosyVoice-300M", "words on how"),
        (SynthesiseOptions(mode="sing"), "CosyVoice-300M", "'sing' is no mode"),
        (SynthesiseOptions(voice="a", speed=1.2), "CosyVoice-300M", "no speed"),
        (SynthesiseOptions(prompt_audio="?"), "CosyVoice-300M", "not base64"),
        (SynthesiseOptions(prompt_audio="AAAA"), "CosyVoice-300M", "inside a sample"),
        (
            SynthesiseOptions(prompt_audio=base64.b64encode(bytes(30 * 32_000 + 2)).decode()),
            "CosyVoice-300M",
            "30.0 s: CosyVoice takes 30 s",
        ),
    ],
)
def test_what_is_known_to_fail_is_refused_before_the_server_is_asked(
    options: SynthesiseOptions, model: str, message: str, load: Load, serve: Serve
) -> None:
    """The message says what is wrong, where the server would fail with a traceback in its own log."""
    server = serve(whole)
    with pytest.raises(BadOption, match=message):
        load(server.url, model).synthesise(["Hello."], options)
    assert not server.requests


def test_a_family_that_is_not_known_may_try_everything() -> None:
    """A server with speakers of its own for CosyVoice2 is reached by leaving the model out."""
    assert family_of("") is None
    assert utterance_of("Hello.", OPTIONS["sft"], None, is_grpc=True).mode == "sft"


@pytest.mark.parametrize("sizes", [[1] * 200, [3, 3, 3, 191], [0, 199, 1], [200], [1, 198, 1]])
def test_pieces_that_split_a_sample_are_joined(sizes: list[int], load: Load, serve: Serve) -> None:
    """The borders of the server's pieces do not matter, whole or streamed."""

    def in_pieces(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        at = 0
        for size in sizes:
            yield SOUND[at : at + size]
            at += size

    engine = load(serve(in_pieces).url)
    (sound,) = engine.synthesise(["Hello."], OPTIONS["sft"])
    streamed = np.concatenate([piece.samples for piece in engine.stream("Hello.", OPTIONS["sft"])])
    assert (sound.samples * 32768).astype("<i2").tobytes() == SOUND
    assert np.array_equal(streamed, sound.samples)


def test_pieces_come_while_the_server_still_speaks(load: Load, serve: Serve) -> None:
    """The first piece is heard before the second is made; a listener who leaves frees the server."""
    heard, gone = threading.Event(), threading.Event()

    def slowly(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        context.add_callback(gone.set)
        yield SOUND[:100]
        assert heard.wait(5)
        yield SOUND[100:]
        time.sleep(0.2)
        yield SOUND

    pieces = load(serve(slowly).url).stream("Hello.", OPTIONS["sft"])
    assert len(next(pieces).samples) == 50
    heard.set()
    assert len(next(pieces).samples) == 50
    pieces.close()  # type: ignore[attr-defined]
    assert gone.wait(5)


def broken(pieces: list[bytes], code: grpc.StatusCode, details: str) -> Answer:
    """Return an answer that sends pieces and then fails."""

    def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from pieces
        context.abort(code, details)

    return answer


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (broken([SOUND], grpc.StatusCode.UNAVAILABLE, "going away"), EngineUnavailable, "broke off its answer"),
        (broken([], grpc.StatusCode.UNAVAILABLE, "going away"), EngineUnavailable, "failed: UNAVAILABLE going away"),
        (broken([], grpc.StatusCode.UNKNOWN, "Exception iterating: 'x'"), EngineUnavailable, "UNKNOWN Exception"),
        (broken([], grpc.StatusCode.UNKNOWN, "Invalid file: tensor([[0.]])"), EngineRefused, "cannot read the recor"),
        (broken([], grpc.StatusCode.UNIMPLEMENTED, "no"), EngineRefused, "UNIMPLEMENTED"),
        (lambda request, context: iter(()), EngineUnavailable, "sent no sound"),
        (lambda request, context: iter([b"", b""]), EngineUnavailable, "sent no sound"),
        (lambda request, context: iter([SOUND[:99]]), EngineUnavailable, "inside a sample"),
    ],
)
def test_an_answer_that_fails_is_asked_for_once(
    answer: Answer, kind: type[VoicejobsError], message: str, load: Load, serve: Serve
) -> None:
    """Each way to fail has an error of our tree that says whether to try again, and no second request."""
    server = serve(answer)
    with pytest.raises(kind, match=message):
        load(server.url).synthesise(["Hello."], OPTIONS["sft"])
    assert len(server.requests) == 1


def test_a_connection_that_is_refused_is_tried_again_and_one_that_stands_is_not(load: Load) -> None:
    """A server that starts a little later is reached; one that never does is an error within the deadline."""
    port = free_port()
    engine = load(f"grpc://127.0.0.1:{port}")
    with pytest.raises(EngineUnavailable, match="cannot be reached") as caught:
        engine.synthesise(["Hello."], OPTIONS["sft"])
    assert not caught.value.details["begun"]


def test_a_busy_server_is_busy(load: Load, serve: Serve) -> None:
    """More calls than the server takes at once end as busy, which is tried again later."""
    inside, leave = threading.Event(), threading.Event()

    def wait(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        inside.set()
        leave.wait(10)
        yield SOUND

    server = serve(wait, max_conc=1)
    first, second = load(server.url), load(server.url, base_s=1.0, char_s=0.0)
    thread = threading.Thread(target=first.synthesise, args=(["Hello."], OPTIONS["sft"]))
    thread.start()
    assert inside.wait(5)
    with pytest.raises(EngineBusy, match="is busy"):
        second.synthesise(["Hello."], OPTIONS["sft"])
    leave.set()
    thread.join()


def test_the_deadline_grows_with_the_sentence(load: Load, serve: Serve) -> None:
    """What the server is given is the base and so much for each character; past it the call ends on both sides."""
    left: list[float] = []

    def tell(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        left.append(context.time_remaining())
        yield SOUND

    server = serve(tell)
    engine = load(server.url, base_s=10.0, char_s=2.0)
    engine.synthesise(["Hello", "Hello, hello, hello."], OPTIONS["sft"])
    assert left[0] == pytest.approx(20.0, abs=1.0)
    assert left[1] == pytest.approx(50.0, abs=1.0)
    ended = threading.Event()

    def hang(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        context.add_callback(ended.set)
        ended.wait(10)
        yield SOUND

    began = time.monotonic()
    slow = load(serve(hang).url, base_s=0.3, char_s=0.0)
    with pytest.raises(EngineUnavailable, match="no whole answer within"):
        slow.synthesise(["Hello."], OPTIONS["sft"])
    assert time.monotonic() - began < 3.0
    assert ended.wait(5)


def test_an_http_answer_that_breaks_off_is_an_error(load: Load, stack: ExitStack) -> None:
    """A server that fails while it speaks hangs up: what came is no whole sentence."""

    def respond(request: Request) -> Reply:
        return Reply(200, [SOUND], broken=True)

    server = stack.enter_context(HttpServer(respond))
    with pytest.raises(EngineUnavailable, match="broke off"):
        load(server.url).synthesise(["Hello."], OPTIONS["sft"])
    assert len(server.requests) == 1
    silent = stack.enter_context(HttpServer(lambda request: Reply(200, [], broken=True)))
    with pytest.raises(EngineUnavailable, match="broke off") as caught:
        load(silent.url).synthesise(["Hello."], OPTIONS["zero_shot"])
    assert "1794" in caught.value.hint, "which is how a known fault of its looks"
    assert len(silent.requests) == 1


def test_a_text_without_anything_to_say_is_not_sent(load: Load, serve: Serve) -> None:
    """It gives an empty sound, as a batch of it and a sentence gives both."""
    server = serve(whole)
    engine = load(server.url, voices="speaker")
    found = engine.synthesise(["...", "Hello.", "- !"], SynthesiseOptions())
    assert [len(sound.samples) for sound in found] == [0, 100, 0]
    assert list(engine.stream("?", SynthesiseOptions())) == []
    assert len(server.requests) == 1
    assert server.read(server.requests[0]).sft_request.spk_id == "speaker"  # type: ignore[attr-defined]
