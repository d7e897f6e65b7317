"""SynthesizeStream with an engine that gives sound while it speaks: parts of a sentence, cancelling, faults."""

import threading
from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest

from tests.integration.rpc.conftest import Server, Starter
from tests.servers.cosyvoice import CosyVoiceGrpcServer
from tests.waiting import patience
from voicejobs.errors import EngineUnavailable
from voicejobs.proto import voice_engine_pb2 as pb

pytestmark = pytest.mark.timeout(120)
RATE_HZ = 22_050
TEXT = "This is one long sentence, which takes its time."
REQUEST = pb.SynthesizeRequest(text=TEXT, audio_format="pcm_s16le")
Answer = Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]


def sound(seconds: float, level: float = 0.5) -> bytes:
    """Return a tone as the server sends it."""
    times = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    return (level * 32_767 * np.sin(2 * np.pi * 220 * times)).astype("<i2").tobytes()


def served(serve: Starter, far: CosyVoiceGrpcServer) -> Server:
    """Return a server of ours that leans on one of CosyVoice."""
    settings = {"VOICEJOBS_COSYVOICE_URL": far.url, "VOICEJOBS_COSYVOICE_MODEL": "CosyVoice-300M-SFT"}
    engines = ("--engine", "none", "--voice-engine", "cosyvoice")
    return serve("--slots", "1", engines=engines, settings=settings | {"VOICEJOBS_COSYVOICE_VOICES": "anna"})


def test_sound_is_heard_before_its_sentence_ends(serve: Starter) -> None:
    """The first part arrives while the engine still speaks the same sentence; nothing is lost, and the piece is one."""
    heard = threading.Event()

    def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield bytes(200)  # silence tells nobody anything
        yield sound(1.0)[:30_001]
        assert heard.wait(30 * patience())
        yield sound(1.0)[30_001:] + sound(0.5, 0.9)

    with CosyVoiceGrpcServer(answer) as far:
        client = served(serve, far).client()
        data = b""
        pieces: list[pb.PieceInfo] = []
        for part in client.synthesise_stream(REQUEST):
            data += part.audio_data
            pieces += part.pieces
            if len(data) > 10_000:
                heard.set()
    assert len(far.requests) == 1
    samples = np.frombuffer(data, "<i2") / 32_767
    assert abs(len(samples) / RATE_HZ - 1.5) < 0.15
    assert [piece.text for piece in pieces] == [TEXT]
    assert pieces[0].end_time == pytest.approx(1.5, abs=0.05)
    assert np.max(np.abs(samples[: RATE_HZ // 2])) == pytest.approx(0.5, abs=0.02), "not made louder"
    assert np.max(np.abs(samples)) <= 0.951


def test_a_client_that_leaves_ends_the_call_of_the_engine(serve: Starter) -> None:
    """The server of the engine notices, and the one slot is free for the next."""
    left = threading.Event()

    def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        context.add_callback(left.set)
        while not left.is_set():
            yield sound(0.2)
            left.wait(0.02)

    with CosyVoiceGrpcServer(answer) as far:
        server = served(serve, far)
        parts = server.client().synthesise_stream(REQUEST)
        assert next(parts).sample_rate == RATE_HZ
        parts.close()
        assert left.wait(30 * patience())
        assert server.settled(lambda load: load.working == 0, 30 * patience())
        left.clear()
        again = server.client().synthesise_stream(REQUEST)
        assert next(again).audio_data
        again.close()
        assert left.wait(30 * patience())


def test_a_fault_before_the_first_sound_is_met_with_patience_and_one_after_it_is_told(serve: Starter) -> None:
    """A busy server is asked again for the sentence; one that breaks off is not, whatever was to follow."""
    asked: list[bytes] = []

    def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        asked.append(request)
        if len(asked) == 1:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")
        yield sound(1.0)
        if len(asked) > 2:
            context.abort(grpc.StatusCode.UNAVAILABLE, "going away")

    with CosyVoiceGrpcServer(answer) as far:
        client = served(serve, far).client()
        data = b"".join(part.audio_data for part in client.synthesise_stream(REQUEST))
        assert abs(len(data) / 2 / RATE_HZ - 1.0) < 0.15
        assert len(asked) == 2
        with pytest.raises(EngineUnavailable):
            list(client.synthesise_stream(REQUEST))
        assert len(asked) == 3
