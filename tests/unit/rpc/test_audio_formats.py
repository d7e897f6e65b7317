"""The grammar of `audio_format`, and raw audio of each encoding as 16 kHz mono."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm
from voicejobs.errors import BadAudioFormat, EmptyFile
from voicejobs.rpc import speech_formats
from voicejobs.rpc.audio_formats import ENCODINGS, AudioFormat, PcmReader, parse, read_pcm, samples_of_bytes

RATES = (8000, 11025, 16000, 22050, 32000, 44100, 48000)


def tone(rate_hz: int, seconds: float = 1.0, hertz: float = 440.0) -> NDArray[np.float64]:
    """Return a tone of half of full scale."""
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(rate_hz * seconds)) / rate_hz)


def encoded(samples: NDArray[np.float64], encoding: str, channels: int) -> bytes:
    """Return samples in an encoding, the same in all channels."""
    wide = np.repeat(samples[:, np.newaxis], channels, axis=1)
    if encoding == "f32le":
        return wide.astype("<f4").tobytes()
    pcm = np.rint(wide * 32767).astype("<i2")
    if encoding == "s16le":
        return pcm.tobytes()
    table = samples_of_bytes(encoding).astype(np.int32)
    nearest: NDArray[np.int64] = np.abs(table[np.newaxis, :] - pcm.reshape(-1, 1)).argmin(axis=1)
    return nearest.astype(np.uint8).tobytes()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("pcm_s16le_16k", AudioFormat("s16le", 16_000, 1)),
        ("pcm_s16le_16000", AudioFormat("s16le", 16_000, 1)),
        ("PCM_S16LE_16K", AudioFormat("s16le", 16_000, 1)),
        (" pcm_mulaw_8k ", AudioFormat("mulaw", 8000, 1)),
        ("pcm_alaw_8000_1ch", AudioFormat("alaw", 8000, 1)),
        ("pcm_s16le_44.1k_2ch", AudioFormat("s16le", 44_100, 2)),
        ("pcm_f32le_22.05k", AudioFormat("f32le", 22_050, 1)),
        ("pcm_f32le_48000_32ch", AudioFormat("f32le", 48_000, 32)),
        ("wav", AudioFormat("wav")),
        ("FLAC", AudioFormat("flac")),
        ("opus", AudioFormat("opus")),
    ],
)
def test_a13_formats_that_are_accepted(text: str, wanted: AudioFormat) -> None:
    """Each spelling names its format."""
    assert parse(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "", "pcm", "pcm_s16le", "pcm_s16be_16k", "pcm_s24le_16k", "pcm_s16le_16", "pcm_s16le_999999", "pcm_s16le_16kHz",
        "pcm_s16le_16k_0ch", "pcm_s16le_16k_33ch", "pcm_s16le_16k_2", "pcm_s16le_-16k", "pcm_s16le_16k ch", "wav_16k",
        "mp3", "ogg", "s16le_16k", "pcm_s16le_१६k", "x" * 10_000, "pcm_s16le_16k\n", "http://example.org/a.wav",
    ],
)  # fmt: skip
def test_a13_unknown_formats_are_refused_with_what_is_accepted(text: str) -> None:
    """The message names the grammar, or the range that was left, and does not grow with what was sent."""
    if text == "pcm_s16le_16k\n":  # blanks around a name say nothing
        assert parse(text).rate_hz == 16_000
        return
    with pytest.raises(BadAudioFormat) as refused:
        parse(text)
    said = refused.value.message
    assert len(said) < 400
    assert any(
        words in said for words in ("accepted: pcm_{s16le,f32le,mulaw,alaw}", "to 384000 Hz", "1 to 32 channels")
    )


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("rate_hz", RATES)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a13_a_tone_stays_that_tone(encoding: str, rate_hz: int, channels: int) -> None:
    """In every encoding, at every rate, with any channels a tone comes out at its pitch, level and length."""
    found = read_pcm(encoded(tone(rate_hz), encoding, channels), AudioFormat(encoding, rate_hz, channels))
    assert found.dtype == np.int16
    assert found.size == 16_000
    spectrum = np.abs(np.fft.rfft(found / 32768.0))
    assert np.argmax(spectrum) == 440
    assert np.std(found[1000:-1000] / 32768.0) == pytest.approx(0.5 / np.sqrt(2), rel=0.03)


@pytest.mark.parametrize("name", ["pcm_mulaw", "pcm_alaw"])
def test_companded_bytes_mean_what_ffmpeg_takes_them_for(name: str) -> None:
    """All 256 bytes of G.711 have the samples that FFmpeg gives them."""
    import av

    codec = av.CodecContext.create(name, "r")
    assert isinstance(codec, av.AudioCodecContext)
    codec.sample_rate, codec.layout = 8000, av.AudioLayout("mono")
    (frame,) = codec.decode(av.Packet(bytes(range(256))))
    assert np.array_equal(samples_of_bytes(name.removeprefix("pcm_")), frame.to_ndarray()[0])


@pytest.mark.parametrize("size", [1, 3, 5, 4001])
def test_half_a_sample_is_refused(size: int) -> None:
    """Bytes that are no whole number of samples of all channels are an error, whole and in a stream."""
    sound = parse("pcm_s16le_16k_2ch")
    with pytest.raises(BadAudioFormat, match="no whole number"):
        read_pcm(bytes(size), sound)
    reader = PcmReader(sound)
    reader.feed(bytes(size))
    with pytest.raises(BadAudioFormat, match="ends inside a sample"):
        reader.finish()


def test_nothing_is_refused() -> None:
    """No bytes are no recording."""
    with pytest.raises(EmptyFile):
        read_pcm(b"", parse("pcm_s16le_16k"))


@settings(deadline=None, max_examples=60)
@given(
    data=st.binary(max_size=4000),
    cuts=st.lists(st.integers(1, 700), min_size=1, max_size=12),
    encoding=st.sampled_from(sorted(ENCODINGS)),
    rate_hz=st.sampled_from([8000, 16_000, 44_100]),
    channels=st.integers(1, 3),
)
def test_pieces_of_any_size_give_what_the_whole_gives(
    data: bytes, cuts: list[int], encoding: str, rate_hz: int, channels: int
) -> None:
    """However a stream is cut, inside samples too, its sound has the same samples, and never more than it should."""
    sound = AudioFormat(encoding, rate_hz, channels)
    data = data[: len(data) - len(data) % sound.frame_bytes]
    one = PcmReader(sound)
    whole = np.concatenate([one.feed(data), one.finish()])
    many = PcmReader(sound)
    parts: list[Pcm] = []
    at, turn = 0, 0
    while at < len(data):
        step = cuts[turn % len(cuts)]
        parts.append(many.feed(data[at : at + step]))
        at, turn = at + step, turn + 1
    joined = np.concatenate([*parts, many.finish()])
    frames = len(data) // sound.frame_bytes
    assert joined.size == whole.size == -(-frames * Fraction(16_000, rate_hz) // 1)
    if channels == 1:  # the mix of several depends on what was heard of each so far
        assert np.max(np.abs(joined.astype(int) - whole.astype(int)), initial=0) <= 1


@pytest.mark.parametrize("encoding", ["s16le", "f32le", "mulaw", "alaw"])
def test_speech_that_goes_out_raw_is_read_back(encoding: str) -> None:
    """What an encoding of speech gives is what the same encoding of recordings takes."""
    sound = tone(16_000).astype(np.float32)
    data = b"".join(speech_formats.parts([sound], 16_000, speech_formats.parse(f"pcm_{encoding}")))
    found = read_pcm(data, AudioFormat(encoding, 16_000, 1)).astype(float) / 32768
    assert found.size == sound.size
    assert np.max(np.abs(found - sound)) < (0.02 if encoding in {"mulaw", "alaw"} else 0.0001)


@pytest.mark.parametrize("text", ["pcm", "wav_1ch_16k", "aac", "pcm_s16le_16k_2ch", "mp3_4k", "flac_500k", "x" * 5000])
def test_unknown_formats_of_speech_are_refused(text: str) -> None:
    """What no speech is given as is an error that names what it is given as, or which rates there are."""
    with pytest.raises(BadAudioFormat) as refused:
        speech_formats.parse(text)
    assert "accepted: wav" in refused.value.message or "sampling rate" in refused.value.message
