import errno
import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from numpy.typing import NDArray

from voicejobs.audio.encode import FORMATS, Encoder, encode, encoded_rate_hz, extension, read_wav, resampled, to_pcm
from voicejobs.errors import BadOption

RATE_HZ = 22_050
TONE = (0.5 * np.sin(np.arange(3 * RATE_HZ) * 2 * np.pi * 440 / RATE_HZ)).astype(np.float32)


def blocks(sound: NDArray[np.float32], size: int = 4_001) -> list[NDArray[np.float32]]:
    """Return a sound in blocks of an odd size."""
    return [sound[start : start + size] for start in range(0, len(sound), size)]


def write(path: Path, name: str, rate_hz: int = RATE_HZ, samples: int | None = None) -> Path:
    """Encode the tone to a file."""
    with path.open("wb") as file:
        encoder = Encoder(file, name, rate_hz, samples)
        for block in blocks(TONE):
            encoder.write(block)
        encoder.close()
    return path


@pytest.mark.parametrize("name", ["wav", "flac"])
def test_formats_without_loss_keep_every_sample(name: str, tmp_path: Path) -> None:
    """What a reader finds is what was given, rounded to 16 bits; the header tells rate, length and channels."""
    path = write(tmp_path / f"a{extension(name)}", name, samples=len(TONE))
    found, rate = sf.read(path, dtype="int16")
    assert (rate, found.ndim, len(found)) == (RATE_HZ, 1, len(TONE))
    assert np.array_equal(found, to_pcm(TONE))


def test_pcm_is_the_bare_samples(tmp_path: Path) -> None:
    """16-bit little-endian, nothing else; what is too loud is clipped."""
    path = write(tmp_path / "a.pcm", "pcm")
    assert np.array_equal(np.frombuffer(path.read_bytes(), "<i2"), to_pcm(TONE))
    assert list(to_pcm(np.array([2.0, -2.0, 0.0], np.float32))) == [32767, -32767, 0]


@pytest.mark.parametrize(("name", "rate_hz", "kept_hz"), [("mp3", 22_050, 22_050), ("opus", 22_050, 24_000)])
def test_formats_with_loss_sound_the_same(name: str, rate_hz: int, kept_hz: int, tmp_path: Path) -> None:
    """The tone comes back at its pitch, level and length, at the next rate that the format knows."""
    path = write(tmp_path / f"a.{name}", name, rate_hz)
    found, rate = sf.read(path, dtype="float32")
    assert rate in {kept_hz, 48_000}
    assert len(found) / rate == pytest.approx(3.0, abs=0.1)
    middle = found[rate // 2 : rate * 2]
    spectrum = np.abs(np.fft.rfft(middle))
    assert float(np.argmax(spectrum)) * rate / len(middle) == pytest.approx(440, abs=2)
    assert float(np.sqrt(2 * np.mean(np.square(middle)))) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("rate_hz", [8_000, 22_050, 24_000, 44_100, 96_000])
def test_aac_sounds_the_same_at_every_rate(rate_hz: int) -> None:
    """Frames of ADTS, which libsndfile cannot read, hold the tone at its pitch and level at a rate that AAC knows."""
    import av

    tone = (0.5 * np.sin(np.arange(2 * rate_hz) * 2 * np.pi * 440 / rate_hz)).astype(np.float32)
    data = b"".join(encode(blocks(tone), rate_hz, "aac"))
    with av.open(io.BytesIO(data), "r", format="aac") as container:
        found = np.concatenate([frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)])
        rate, channels = container.streams.audio[0].rate, container.streams.audio[0].channels
    assert (rate, channels) == (min(rate_hz, 48_000), 1)
    middle = found[rate // 2 : rate * 3 // 2]
    spectrum = np.abs(np.fft.rfft(middle))
    assert float(np.argmax(spectrum)) * rate / len(middle) == pytest.approx(440, abs=2)
    assert float(np.sqrt(2 * np.mean(np.square(middle)))) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("name", FORMATS)
def test_streams_decode_without_their_end_known(name: str) -> None:
    """Bytes come while blocks go in, and a reader of the stream finds the whole tone."""
    parts = list(encode(blocks(TONE), RATE_HZ, name))
    assert len(parts) > 1
    data = b"".join(parts)
    if name == "pcm":
        assert np.array_equal(np.frombuffer(data, "<i2"), to_pcm(TONE))
        return
    import av

    with av.open(io.BytesIO(data), "r") as container:
        frames = [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
        rate = container.streams.audio[0].rate
    assert sum(map(len, frames)) / rate == pytest.approx(3.0, abs=0.1)


def test_the_header_of_a_wav_is_right_beyond_four_gigabytes() -> None:
    """Such a file is RF64, whose own chunk holds the lengths; one byte fewer than the limit is an ordinary file."""
    samples = 3 * 1024**3
    sink = io.BytesIO()
    Encoder(sink, "wav", RATE_HZ, samples)
    head = sink.getvalue()
    assert (head[:4], head[8:16], len(head)) == (b"RF64", b"WAVEds64", 80)
    assert struct.unpack("<QQQ", head[20:44]) == (72 + samples * 2, samples * 2, samples)
    small = io.BytesIO()
    Encoder(small, "wav", RATE_HZ, (0xFFFFFFFF - 36) // 2)
    assert small.getvalue()[:4] == b"RIFF"


def test_a_reader_takes_the_large_header(tmp_path: Path) -> None:
    """A sparse file of more than four gigabytes with that header is read with its full length."""
    samples = (0xFFFFFFFF // 2) + 1_000
    path = tmp_path / "large.wav"
    with path.open("wb") as file:
        Encoder(file, "wav", RATE_HZ, samples)
        file.truncate(80 + samples * 2)
    assert sf.info(path).frames == samples


def test_resampling_keeps_time() -> None:
    """At another rate the sound is as long, to the sample, however it was cut into blocks."""
    found = np.concatenate(list(resampled(blocks(TONE), RATE_HZ, 16_000)))
    assert len(found) == -(-len(TONE) * 16_000 // RATE_HZ)
    assert float(np.max(np.abs(found[1000:-1000]))) == pytest.approx(0.5, abs=0.01)


def test_what_nobody_can_encode_is_refused() -> None:
    """Unknown formats and rates are errors that name what there is."""
    for name, rate_hz in (("midi", 16_000), ("wav", 100), ("wav", 1_000_000)):
        with pytest.raises(BadOption):
            encoded_rate_hz(name, rate_hz)


def test_what_an_encoder_wrote_is_read_back(tmp_path: Path) -> None:
    """Rate, length and samples; a header of somebody else is refused."""
    path = write(tmp_path / "a.wav", "wav", samples=len(TONE))
    rate_hz, samples, found = read_wav(path)
    assert (rate_hz, samples) == (RATE_HZ, len(TONE))
    assert np.array_equal(to_pcm(np.concatenate(list(found))), to_pcm(TONE))
    sf.write(tmp_path / "b.wav", np.zeros((10, 2), np.float32), RATE_HZ)
    with pytest.raises(ValueError, match="somebody else"):
        read_wav(tmp_path / "b.wav")


class Full(io.BytesIO):
    """A disk with room for a header."""

    def write(self, data: Any) -> int:
        """Take little."""
        if self.tell() > 2_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


@pytest.mark.parametrize("name", FORMATS)
def test_a_full_disk_is_an_error_in_every_format(name: str) -> None:
    """Also where a library calls back to write, and swallows what is raised there."""
    with pytest.raises(OSError, match="No space left"):
        encode_all(Full(), name)


def encode_all(sink: io.BytesIO, name: str) -> None:
    """Encode the tone and some noise, which no format makes small."""
    encoder = Encoder(sink, name, RATE_HZ)
    noise = np.random.default_rng(1).uniform(-0.5, 0.5, 5 * RATE_HZ).astype(np.float32)
    try:
        for block in blocks(noise):
            encoder.write(block)
        encoder.close()
    finally:
        encoder.discard()


@pytest.mark.parametrize("length", [0, 1, 16_384, 16_385, 50_000])
def test_samples_become_integers_one_by_one(length: int) -> None:
    """Each sample is scaled, clipped and rounded by itself, however long the block, and the block stays as it is."""
    block = np.random.default_rng(length).normal(0, 0.6, length).astype(np.float32)
    given = block.copy()
    expected = [round(max(-1.0, min(1.0, float(one))) * 32_767) for one in block[:: max(1, length // 500)]]
    found = to_pcm(block)
    assert (len(found), found.dtype) == (length, np.dtype("<i2"))
    assert found[:: max(1, length // 500)].tolist() == pytest.approx(expected, abs=1)
    assert np.array_equal(block, given)
