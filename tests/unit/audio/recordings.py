"""Makers of recordings: everything that decoding is tested on and that ../shared does not hold."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import av
    from av.audio.stream import AudioStream

SHARED = Path(__file__).parents[4] / "shared"


def tones(*levels: float, seconds: float = 1.0, rate_hz: int = 48_000) -> NDArray[np.float32]:
    """Return one tone for each channel, at the given levels, all of different pitch."""
    times_s = np.arange(int(seconds * rate_hz)) / rate_hz
    signals = [level * np.sin(2 * np.pi * 200 * (index + 1) * times_s) for index, level in enumerate(levels)]
    return np.array(signals, dtype=np.float32)


def write_wav(path: Path, samples: int = 16_000, rate_hz: int = 16_000, channels: int = 1) -> Path:
    """Write a WAV file of silence with whatever header it is told to."""
    data = bytes(samples * 2 * min(channels, 64))
    frame_bytes = channels * 2 % 65536
    fmt = struct.pack("<HHIIHH", 1, channels, rate_hz, rate_hz * frame_bytes % 2**32, frame_bytes, 16)
    chunks = b"fmt " + struct.pack("<I", len(fmt)) + fmt + b"data" + struct.pack("<I", len(data)) + data
    path.write_bytes(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks)
    return path


def encode(
    path: Path, signal: NDArray[np.float32], codec: str, layout: str, *, rate_hz: int = 48_000, sample_format: str = ""
) -> Path:
    """Encode float samples, shape (channels, samples), with PyAV."""
    import av

    with av.open(str(path), "w") as output:
        stream = output.add_stream(codec, rate=rate_hz, layout=layout)
        assert isinstance(stream, av.AudioStream)
        for frame in frames_for(stream, signal, sample_format):
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path


def frames_for(
    stream: "AudioStream", signal: NDArray[np.float32], sample_format: str = ""
) -> "Iterator[av.AudioFrame]":
    """Open the encoder of a stream, and yield the signal in frames as it wants them, stamped from 0."""
    import av

    context = stream.codec_context
    formats = context.codec.audio_formats
    context.format = av.AudioFormat(sample_format or (formats[0].name if formats else "s16"))
    if not context.name.startswith("pcm"):
        context.bit_rate = 128_000
    context.open()
    resampler = av.AudioResampler(
        format=context.format, layout=context.layout, rate=context.sample_rate, frame_size=context.frame_size or 960
    )
    interleaved = np.ascontiguousarray(signal.T).reshape(1, -1)
    frame = av.AudioFrame.from_ndarray(interleaved, format="flt", layout=context.layout.name)
    frame.sample_rate = context.sample_rate
    position = 0
    for part in [*resampler.resample(frame), *resampler.resample(None)]:
        part.pts = position
        position += part.samples
        yield part


def write_film(path: Path, codec: str, sound_at_s: float) -> Path:
    """Write four seconds of grey pictures, and a second of tone that starts late."""
    import av

    rate_hz = 48_000
    with av.open(str(path), "w") as output:
        pictures = output.add_stream("mpeg4", rate=10)
        assert isinstance(pictures, av.VideoStream)
        pictures.width, pictures.height, pictures.pix_fmt = 64, 64, "yuv420p"
        sound = output.add_stream(codec, rate=rate_hz, layout="mono")
        assert isinstance(sound, av.AudioStream)
        frames = list(frames_for(sound, tones(0.5)))
        for number in range(40):
            picture = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 128, dtype=np.uint8), format="rgb24")
            picture.pts = number
            output.mux(pictures.encode(picture))
        output.mux(pictures.encode(None))
        for frame in frames:
            frame.pts = (frame.pts or 0) + round(sound_at_s * rate_hz)
            output.mux(sound.encode(frame))
        output.mux(sound.encode(None))
    return path
