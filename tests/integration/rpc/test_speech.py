"""Speech over the wire: the whole text, in the form that was asked for, and what the answer says of it."""

import io
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.integration.rpc.conftest import Server, Starter
from voicejobs.audio.decode import DecodeOptions, decode
from voicejobs.engines.fake_voice import hear
from voicejobs.errors import BadAudioFormat, BadOption, EmptyText
from voicejobs.proto import voice_engine_pb2 as pb

pytestmark = pytest.mark.timeout(180)

TEXT = "One. Two hundred and 5 dogs bark.\n\nA last word, for $3."


def pcm_of(data: bytes) -> NDArray[np.float32]:
    """Return 16-bit PCM as floats."""
    return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32768)


@pytest.mark.parametrize(
    ("audio_format", "encoding", "rate_hz"),
    [
        ("", "wav", 22_050),
        ("wav_16k", "wav", 16_000),
        ("flac", "flac", 22_050),
        ("opus", "opus", 24_000),
        ("mp3", "mp3", 22_050),
        ("pcm_s16le", "pcm_s16le", 22_050),
        ("pcm_s16le_16k", "pcm_s16le", 16_000),
        ("pcm_f32le_48000", "pcm_f32le", 48_000),
        ("pcm_mulaw_8k_1ch", "pcm_mulaw", 8000),
    ],
)
def test_a17_the_answer_says_what_it_is(server: Server, audio_format: str, encoding: str, rate_hz: int) -> None:
    """Rate, channels and encoding are in the answer, and the length is that of its samples."""
    found = server.client().synthesise(pb.SynthesizeRequest(text=TEXT, audio_format=audio_format))
    assert (found.encoding, found.sample_rate, found.channels) == (encoding, rate_hz, 1)
    assert found.duration == pytest.approx(found.samples / found.sample_rate)
    sizes = {"pcm_s16le": 2, "pcm_f32le": 4, "pcm_mulaw": 1}
    if encoding in sizes:
        assert len(found.audio_data) == found.samples * sizes[encoding]
    else:
        import soundfile

        samples, rate = soundfile.read(io.BytesIO(found.audio_data))
        assert rate == rate_hz
        assert len(samples) / rate == pytest.approx(found.duration, abs=0.06)
    assert [piece.text.strip() for piece in found.pieces] == [
        "One.",
        "Two hundred and 5 dogs bark.",
        "A last word, for $3.",
    ]
    ends = [
        0.0,
        *(time for piece in found.pieces for time in (piece.start_time, piece.end_time)),
        found.duration + 1e-6,
    ]
    assert ends == sorted(ends)


def test_nothing_of_the_text_is_left_out(server: Server) -> None:
    """The voice that spells says each piece once, in order, at the level of a job."""
    found = server.client().synthesise(pb.SynthesizeRequest(text=TEXT, audio_format="pcm_s16le"))
    samples = pcm_of(found.audio_data)
    assert np.max(np.abs(samples)) == pytest.approx(0.95, abs=0.001)
    assert len(hear(samples, found.sample_rate)) == 3


def test_b13_silence_is_no_division_by_zero(server: Server) -> None:
    """A piece without anything to say is an empty sound, a text without is an error."""
    client = server.client()
    found = client.synthesise(pb.SynthesizeRequest(text="...", single_piece=True, audio_format="pcm_s16le"))
    assert found.duration == pytest.approx(len(found.audio_data) / 2 / found.sample_rate)
    for text in ("", "  \n", "... !?", "🎉"):
        with pytest.raises(EmptyText):
            client.synthesise(pb.SynthesizeRequest(text=text))
        with pytest.raises(EmptyText):
            list(client.synthesise_stream(pb.SynthesizeRequest(text=text)))


def test_a_stream_gives_the_text_piece_by_piece(server: Server, tmp_path: Path) -> None:
    """The parts joined are one sound of the same length and pieces as the whole, and the first comes early."""
    client = server.client()
    request = pb.SynthesizeRequest(text=TEXT * 20, audio_format="pcm_s16le_16k")
    whole = client.synthesise(request)
    parts = list(client.synthesise_stream(request))
    assert len(parts) > 20
    assert {(part.sample_rate, part.channels, part.encoding) for part in parts} == {(16_000, 1, "pcm_s16le")}
    joined = b"".join(part.audio_data for part in parts)
    assert len(joined) == len(whole.audio_data)
    pieces = [piece for part in parts for piece in part.pieces]
    assert pieces == list(whole.pieces)
    assert parts[0].pieces[0].text.strip() == "One."
    short = client.synthesise(pb.SynthesizeRequest(text=TEXT))
    for name in ("wav", "flac", "mp3", "opus"):
        data = b"".join(
            part.audio_data for part in client.synthesise_stream(pb.SynthesizeRequest(text=TEXT, audio_format=name))
        )
        (tmp_path / name).write_bytes(data)
        with decode(tmp_path / name, DecodeOptions()) as audio:
            length_s = sum(len(channels[0]) for channels in audio.blocks()) / 16_000
        assert length_s == pytest.approx(short.duration, abs=0.1)


def test_whoever_leaves_a_stream_of_speech_gives_its_slot_back(serve: Starter) -> None:
    """Leaving the iteration ends the work with the engine call that runs, however much text there was left."""
    server = serve("--slots", "1", "--batch-size", "1", settings={"VOICEJOBS_FAKE_COST_BASE_S": "0.2"})
    request = pb.SynthesizeRequest(text="A sentence of many. " * 500)
    for _ in range(3):
        parts = server.client().synthesise_stream(request)
        assert next(parts).audio_data
        assert server.load().working == 1
        parts.close()
        assert server.settled(lambda load: load.working == 0)
    assert server.load().cancelled == 3
    assert server.stop() == 0
    assert "traceback" not in server.log.read_text()


def test_voice_and_speed_are_heeded(server: Server) -> None:
    """Another speed makes the sound shorter, an unknown voice is an error with those that there are."""
    client = server.client()
    lengths = [
        client.synthesise(pb.SynthesizeRequest(text="Hello.", single_piece=True, speed=speed)).samples
        for speed in (1.0, 2.0)
    ]
    assert lengths[1] == pytest.approx(lengths[0] / 2, rel=0.05)
    voices = client.voices()
    assert [voice.name for voice in voices] == ["low", "high"]
    for voice in voices:
        assert client.synthesise(pb.SynthesizeRequest(text="Hello.", voice=voice.name)).sample_rate == voice.sample_rate
    with pytest.raises(BadOption, match="nobody"):
        client.synthesise(pb.SynthesizeRequest(text="Hello.", voice="nobody"))


def test_bad_requests_are_refused(server: Server) -> None:
    """Formats that no speech has, a prompt that is none, a markup that is none: each is an error of the request."""
    client = server.client()
    for audio_format in ("pcm_s16le_16k_2ch", "aac", "wav_3k"):
        with pytest.raises(BadAudioFormat):
            client.synthesise(pb.SynthesizeRequest(text="Hello.", audio_format=audio_format))
    with pytest.raises(BadAudioFormat):
        client.synthesise(
            pb.SynthesizeRequest(text="Hello.", prompt_audio=bytes(3), prompt_audio_format="pcm_s16le_16k")
        )
    with pytest.raises(BadOption):
        client.synthesise(pb.SynthesizeRequest(text="Hello.", markup="html"))
