"""Sizes of messages, formats as they come over the wire, and what five hundred calls leave behind."""

import io

import numpy as np
import psutil
import pytest

from tests.integration.rpc.calls import NO_VAD, noise
from tests.integration.rpc.conftest import Server, Starter, eventually
from voicejobs.errors import (
    BadAudioFormat,
    BadOption,
    Damaged,
    EmptyFile,
    InputError,
    MessageTooLarge,
    NotServed,
    TooLong,
    VoicejobsError,
)
from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.rpc.channels import ChannelPool, PoolLimits

pytestmark = pytest.mark.timeout(180)

MIB = 1 << 20


def container(name: str, rate_hz: int = 16_000, channels: int = 1, seconds: float = 0.5) -> bytes:
    """Return noise in a file format."""
    import soundfile

    samples = np.random.default_rng(1).uniform(-0.3, 0.3, (round(rate_hz * seconds), channels)).astype(np.float32)
    kinds = {"wav": ("WAV", "PCM_16"), "flac": ("FLAC", "PCM_16"), "opus": ("OGG", "OPUS"), "mp3": ("MP3", None)}
    kind, subtype = kinds[name]
    sink = io.BytesIO()
    soundfile.write(sink, samples, rate_hz, format=kind, subtype=subtype)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("audio", "audio_format"),
    [
        (bytes(16_000), "pcm_s16le_16k"),
        (bytes(4000), "pcm_mulaw_8k"),
        (bytes(8000), "pcm_alaw_8000_2ch"),
        (bytes(4 * 22_050), "pcm_s16le_44.1k_2ch"),
        (bytes(4 * 24_000), "pcm_f32le_48000"),
        (container("wav"), "wav"),
        (container("wav", 44_100, 2), "WAV"),
        (container("flac", 22_050), "flac"),
        (container("opus", 48_000), "opus"),
    ],
)
def test_a13_half_a_second_is_that_in_every_format(server: Server, audio: bytes, audio_format: str) -> None:
    """The engine gets 8,000 samples at 16 kHz, whatever came in."""
    found = server.client().recognise(audio, audio_format, options=NO_VAD)
    assert found.duration == pytest.approx(0.5, abs=0.001)
    assert found.text.startswith("n80") or audio_format == "opus"


@pytest.mark.parametrize(
    ("audio", "audio_format", "error"),
    [
        (b"", "pcm_s16le_16k", EmptyFile),
        (b"", "wav", EmptyFile),
        (bytes(5), "pcm_s16le_16k", BadAudioFormat),
        (bytes(16_002), "pcm_s16le_16k_2ch", BadAudioFormat),
        (bytes(100), "pcm_s24le_16k", BadAudioFormat),
        (container("mp3"), "wav", BadAudioFormat),
        (container("flac"), "opus", BadAudioFormat),
        (b"<html>nothing to hear</html>" * 10, "wav", InputError),
        (container("wav")[:44], "wav", InputError),
        (container("flac")[:60], "flac", InputError),
    ],
)
def test_audio_that_is_none_is_refused(
    server: Server, audio: bytes, audio_format: str, error: type[VoicejobsError]
) -> None:
    """What is empty, cut, of another format or no sound is the client's error, and names no file of the server."""
    with pytest.raises(error) as refused:
        server.client().recognise(audio, audio_format)
    assert "/" not in refused.value.message.replace("pcm_s16le/", "") or isinstance(refused.value, Damaged)
    assert "voicejobs-rpc" not in f"{refused.value.message} {refused.value.hint} {refused.value.details}"


def test_a_small_file_that_holds_hours_is_refused(serve: Starter) -> None:
    """What counts is the audio that comes out: packed silence and a low rate do not fill the server's memory."""
    server = serve("--max-message-mb", "1")
    import soundfile

    sink = io.BytesIO()
    soundfile.write(sink, np.zeros(16_000 * 400, np.int16), 16_000, format="FLAC")
    assert len(sink.getvalue()) < 500_000
    for data, audio_format in ((sink.getvalue(), "flac"), (bytes(400_000), "pcm_mulaw_1000")):
        with pytest.raises(TooLong) as refused:
            server.client().recognise(data, audio_format, options=NO_VAD)
        assert "stream" in refused.value.hint
    assert max(one.memory_info().rss for one in server.tree()) < 400 * MIB


def test_silence_gives_no_text(server: Server) -> None:
    """Silence, short and long, is recognised as nothing, without a confidence."""
    for seconds in (1, 40):
        found = server.client().recognise(bytes(32_000 * seconds), "pcm_s16le_16k")
        assert (found.text, list(found.words), found.has_confidence) == ("", [], False)
        assert found.duration == seconds


def test_a15_an_engine_without_confidence_says_so(serve: Starter) -> None:
    """Zero with the flag is a confidence of zero, without it there is none."""
    server = serve(engines=("--engine", "faulty", "--model", ""))
    window = np.zeros(16_000, "<i2")
    window[1] = 42
    found = server.client().recognise(window.tobytes(), "pcm_s16le_16k", options=NO_VAD)
    assert found.text == "42"
    assert (found.has_confidence, found.confidence) == (False, 0.0)
    with pytest.raises(NotServed):
        server.client().synthesise(pb.SynthesizeRequest(text="Hello."))
    with pytest.raises(NotServed):
        server.client().voices()


def test_one_window_and_language_only(server: Server) -> None:
    """A worker elsewhere may ask for its own window as it is, or for the language alone."""
    client = server.client()
    plain = client.recognise(noise(2), "pcm_s16le_16k", single_window=True)
    assert plain.text.startswith("n32000 ")
    told = client.recognise(noise(2), "pcm_s16le_16k", language_only=True)
    assert (told.text, told.language, told.language_probability) == ("", "en", 1.0)
    with pytest.raises(BadOption, match="more than one window"):
        client.recognise(noise(31), "pcm_s16le_16k", single_window=True)


def test_b23_messages_up_to_fifty_mib(server: Server) -> None:
    """49 MiB are recognised; 51 MiB end with RESOURCE_EXHAUSTED, at the client's limit and at the server's alike."""
    info = server.client().info()
    assert info.max_message_bytes == 50 * MIB
    found = server.client(max_message_bytes=60 * MIB).recognise(
        bytes(49 * MIB), "pcm_s16le_384k", options=NO_VAD, timeout_s=100
    )
    assert found.duration == pytest.approx(49 * MIB / 2 / 384_000)
    for limit in (50 * MIB, 60 * MIB):
        with pytest.raises(MessageTooLarge):
            server.client(max_message_bytes=limit).recognise(bytes(51 * MIB), "pcm_s16le_384k", options=NO_VAD)
    assert server.client().recognise(noise(), "pcm_s16le_16k", options=NO_VAD).text


def test_b23_the_limit_is_a_setting(serve: Starter) -> None:
    """With a limit of 1 MiB half of it is taken and twice of it is not; an answer that is too long says what to do."""
    server = serve("--max-message-mb", "1")
    client = server.client()
    client.recognise(bytes(MIB // 2), "pcm_s16le_16k", options=NO_VAD)
    with pytest.raises(MessageTooLarge):
        client.recognise(bytes(2 * MIB), "pcm_s16le_16k", options=NO_VAD)
    text = "A sentence that is spoken for a while. " * 200
    with pytest.raises(MessageTooLarge) as refused:
        client.synthesise(pb.SynthesizeRequest(text=text, audio_format="pcm_f32le_48k"))
    assert "SynthesizeStream" in refused.value.hint
    assert sum(len(part.audio_data) for part in client.synthesise_stream(pb.SynthesizeRequest(text=text))) > MIB


def test_a23_five_hundred_calls_leave_nothing_open(server: Server) -> None:
    """Descriptors and threads of server and client are level, with one channel for all calls and with one for each."""
    ours, theirs = psutil.Process(), psutil.Process(server.process.pid)
    shared = server.client()

    def calls(count: int) -> None:
        for number in range(count):
            shared.recognise(noise(0.1), "pcm_s16le_16k", options=NO_VAD)
            if number % 5 == 0:
                with server.client(pool=ChannelPool(PoolLimits(size=1))) as alone:
                    alone.info()
                    alone._pool.close()
                server.clients.remove(alone)

    calls(20)
    before = [(one.num_fds(), one.num_threads()) for one in (ours, theirs)]
    calls(500)

    def is_level() -> bool:
        after = [(one.num_fds(), one.num_threads()) for one in (ours, theirs)]
        return all(now <= then + 3 for pair in zip(after, before, strict=True) for now, then in zip(*pair, strict=True))

    assert eventually(is_level), [(one.num_fds(), one.num_threads()) for one in (ours, theirs)] + before
