"""Streams of recognition: the protocol, flow of results, and clients that go away in the middle."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest

from tests.integration.rpc.conftest import Server, Starter, eventually
from voicejobs.errors import BadAudioFormat, BadOption, QueueFull
from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.proto.voice_engine_pb2_grpc import VoiceEngineStub

EXAMPLE = Path(__file__).parents[3] / "examples" / "grandmother.wav"
FRAME_S = 0.02


def spoken() -> tuple[bytes, int]:
    """Return a spoken example as 16-bit mono PCM, and its rate."""
    import soundfile

    samples, rate_hz = soundfile.read(EXAMPLE, dtype="int16", always_2d=True)
    return np.ascontiguousarray(samples[:, 0]).tobytes(), rate_hz


def frames(data: bytes, rate_hz: int, seconds: float = FRAME_S) -> Iterator[bytes]:
    """Yield pieces of some milliseconds."""
    step = 2 * round(rate_hz * seconds)
    for start in range(0, len(data), step):
        yield data[start : start + step]


def test_a16_results_follow_the_protocol(server: Server) -> None:
    """Segments count up from 1, partial results lead to a final and at most one revised one; half-close ends it."""
    data, rate_hz = spoken()
    config = pb.StreamingConfig(audio_format=f"pcm_s16le_{rate_hz}", language="en", revise=False)
    told = list(server.client().stream(config, frames(data, rate_hz)))
    finals = [one for one in told if one.is_final and not one.revised]
    assert [one.segment_id for one in finals] == list(range(1, len(finals) + 1))
    for one in told:
        assert 0 <= one.stability <= 1
        assert one.stable_words <= len(one.words)
        assert one.start_time <= one.end_time <= len(data) / 2 / rate_hz + 0.001
        times = [time for word in one.words for time in (word.start_time, word.end_time)]
        assert times == sorted(times)
    for final in finals:
        assert final.text
        assert final.stability == 1
        later = [one.revised for one in told[told.index(final) + 1 :] if one.segment_id == final.segment_id]
        assert later in ([], [True])
    assert server.settled(lambda load: load.streams == 0)


def test_a10_results_come_before_the_client_has_sent_everything(server: Server) -> None:
    """A result is there while the client still keeps its side open."""
    data, rate_hz = spoken()
    first = threading.Event()

    def sound() -> Iterator[bytes]:
        yield from frames(data + bytes(2 * rate_hz), rate_hz)
        assert first.wait(10)

    config = pb.StreamingConfig(audio_format=f"pcm_s16le_{rate_hz}")
    for _ in server.client().stream(config, sound()):
        first.set()
    assert first.is_set()


def test_without_interim_results_each_segment_comes_once(server: Server) -> None:
    """Partial results and words are left out where the configuration says so."""
    data, rate_hz = spoken()
    config = pb.StreamingConfig(
        audio_format=f"pcm_s16le_{rate_hz}",
        interim_results=False,
        revise=False,
        options=pb.RecognitionOptions(word_times=False),
    )
    told = list(server.client().stream(config, frames(data, rate_hz, 0.3)))
    assert told
    assert all(one.is_final and not one.words and not one.revised for one in told)
    assert [one.segment_id for one in told] == list(range(1, len(told) + 1))


def test_a_second_model_revises_final_results(serve: Starter) -> None:
    """With --revise-model each final result is followed by a revised one of the same segment, unless it is declined."""
    server = serve("--revise-model", "second")
    data, rate_hz = spoken()
    for revise, wanted in ((True, [False, True]), (False, [False])):
        config = pb.StreamingConfig(audio_format=f"pcm_s16le_{rate_hz}", interim_results=False, revise=revise)
        told = list(server.client().stream(config, frames(data, rate_hz, 0.3)))
        for number in {one.segment_id for one in told}:
            assert [one.revised for one in told if one.segment_id == number] == wanted


def test_silence_ends_without_a_result(server: Server) -> None:
    """A stream of silence, and one without any sound, end in order and say nothing."""
    config = pb.StreamingConfig(audio_format="pcm_s16le_16k")
    assert list(server.client().stream(config, [bytes(64_000)])) == []
    assert list(server.client().stream(config, [])) == []


def test_what_breaks_the_protocol_is_refused(server: Server) -> None:
    """Audio before the configuration, a second one, a file format, half a sample, odd options: each is an error."""
    client = server.client()
    plain = pb.StreamingConfig(audio_format="pcm_s16le_16k")
    for audio_format in ("wav", "opus", "nonsense"):
        with pytest.raises(BadAudioFormat):
            list(client.stream(pb.StreamingConfig(audio_format=audio_format), []))
    with pytest.raises(BadAudioFormat, match="ends inside a sample"):
        list(client.stream(plain, [bytes(3)]))
    with pytest.raises(BadOption):
        list(client.stream(pb.StreamingConfig(audio_format="pcm_s16le_16k", end_silence=100), []))
    config, audio = pb.StreamingRecognizeRequest(config=plain), pb.StreamingRecognizeRequest(audio=bytes(320))
    with grpc.insecure_channel(server.address) as channel:
        stub = VoiceEngineStub(channel)
        for requests in ([audio], [config, audio, config], [], [pb.StreamingRecognizeRequest()]):
            with pytest.raises(grpc.RpcError) as refused:
                list(stub.StreamingRecognize(iter(requests), timeout=10))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert server.settled(lambda load: load.streams == 0)


def test_streams_are_bounded(serve: Starter) -> None:
    """One stream more than may be open is refused with a time to come again; a place that is left is free at once."""
    server = serve("--max-streams", "2")
    config = pb.StreamingRecognizeRequest(config=pb.StreamingConfig(audio_format="pcm_s16le_16k"))
    open_now = threading.Event()

    def held() -> Iterator[pb.StreamingRecognizeRequest]:
        yield config
        open_now.wait(20)

    with grpc.insecure_channel(server.address) as channel:
        calls = [VoiceEngineStub(channel).StreamingRecognize(held()) for _ in range(2)]
        assert server.settled(lambda load: load.streams == 2)
        with pytest.raises(QueueFull) as refused:
            list(server.client().stream(config.config, []))
        assert refused.value.details["retry_after_ms"] > 0
        since = time.monotonic()
        calls[0].cancel()
        assert server.settled(lambda load: load.streams == 1, within_s=1.0)
        assert time.monotonic() - since < 1.0
        assert list(server.client().stream(config.config, [])) == []
        open_now.set()
    assert server.settled(lambda load: load.streams == 0)


LEAVING = """
import os, sys, time
import grpc
from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.proto.voice_engine_pb2_grpc import VoiceEngineStub

pytestmark = pytest.mark.timeout(180)

address, path, rate = sys.argv[1:]
data = open(path, "rb").read()

def requests():
    yield pb.StreamingRecognizeRequest(config=pb.StreamingConfig(audio_format=f"pcm_s16le_{rate}"))
    for start in range(0, len(data), 6400):
        yield pb.StreamingRecognizeRequest(audio=data[start:start + 6400])
    os.write(1, b"sent\\n")
    time.sleep(60)

with grpc.insecure_channel(address) as channel:
    calls = [VoiceEngineStub(channel).StreamingRecognize(requests()) for _ in range(20)]
    time.sleep(60)
"""


def test_a36_clients_that_are_killed_leave_nothing(serve: Starter, tmp_path: Path) -> None:
    """After a hundred streams whose client was killed in the middle no stream, slot, thread or process is left."""
    server = serve(settings={"VOICEJOBS_FAKE_COST_BASE_S": "0.05"})
    data, rate_hz = spoken()
    (tmp_path / "sound").write_bytes(data)
    list(server.client().stream(pb.StreamingConfig(audio_format=f"pcm_s16le_{rate_hz}"), frames(data, rate_hz, 0.3)))
    pids = {one.pid for one in server.tree()}
    root = psutil.Process(server.process.pid)
    descriptors: list[int] = []
    for _ in range(5):
        client = subprocess.Popen(
            [sys.executable, "-c", LEAVING, server.address, tmp_path / "sound", str(rate_hz)],
            stdout=subprocess.PIPE,
            env=os.environ,
        )
        assert client.stdout is not None
        for _ in range(20):
            assert client.stdout.readline() == b"sent\n"
        assert server.settled(lambda load: load.streams == 20)
        client.send_signal(signal.SIGKILL)
        client.wait()
        client.stdout.close()
        assert server.settled(lambda load: load.streams == 0 and load.working == 0, within_s=1.0)
        descriptors.append(root.num_fds())
    assert {one.pid for one in server.tree()} == pids
    assert descriptors[-1] <= descriptors[0] + 2
    threads = root.num_threads()
    assert eventually(lambda: root.num_threads() <= threads)
    told = list(server.client().stream(pb.StreamingConfig(audio_format=f"pcm_s16le_{rate_hz}"), frames(data, rate_hz)))
    assert any(one.is_final for one in told)
    assert server.stop() == 0
    assert "traceback" not in server.log.read_text()
