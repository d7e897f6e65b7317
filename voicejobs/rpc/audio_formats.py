"""The grammar of `audio_format`, and raw PCM of any of its encodings as 16 kHz mono.

A format is `pcm_ENCODING_RATE[_Nch]`, or the name of a file format that carries its own rate. What is raw is parsed
here, by numpy alone; files go to the decoder.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.mix import Mixer, Samples, to_float, to_pcm
from voicejobs.audio.resample import FrameResampler, Resampler
from voicejobs.audio.types import Pcm
from voicejobs.errors import BadAudioFormat, EmptyFile
from voicejobs.units import SAMPLE_RATE_HZ

ENCODINGS: dict[str, int] = {"s16le": 2, "f32le": 4, "mulaw": 1, "alaw": 1}
"""Bytes of one sample of each raw encoding."""
FILES = ("wav", "flac", "opus")
"""File formats that may be sent whole."""
CONTAINERS = {"wav": {"wav", "w64"}, "flac": {"flac", "ogg"}, "opus": {"ogg", "matroska,webm"}}
"""FFmpeg's names of the containers that each may turn out to be."""
ACCEPTED = "pcm_{s16le,f32le,mulaw,alaw}_RATE[_Nch] (RATE in Hz or as 16k), wav, flac, opus"
MIN_RATE_HZ, MAX_RATE_HZ = 1000, 384_000
MAX_CHANNELS = 32
MAX_FORMAT_CHARACTERS = 64
_BLOCK_S = 5
_PCM = re.compile(r"pcm_(s16le|f32le|mulaw|alaw)_(\d{1,6}|\d{1,3}(?:\.\d{1,3})?k)(?:_(\d{1,2})ch)?", re.ASCII)
_THOUSAND = 1000
_SPEAKERS = {1: ("FC",), 2: ("FL", "FR")}


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """Name a format of audio: `encoding` is one of `ENCODINGS`, or of `FILES` with rate and channels 0."""

    encoding: str
    rate_hz: int = 0
    channels: int = 0

    @property
    def is_raw(self) -> bool:
        """Tell whether it is PCM without a header."""
        return self.encoding in ENCODINGS

    @property
    def frame_bytes(self) -> int:
        """Return the bytes of one sample of all channels."""
        return ENCODINGS[self.encoding] * self.channels


def parse(text: str) -> AudioFormat:
    """Return the format that a text names, in any case.

    Raises:
        BadAudioFormat: there is no such format, or its rate or channels are none that a recording has.
    """
    name = text.strip().lower()
    if name in FILES:
        return AudioFormat(name)
    match = _PCM.fullmatch(name)
    if match is None:
        shown = text if len(text) <= MAX_FORMAT_CHARACTERS else f"{text[:MAX_FORMAT_CHARACTERS]}..."
        raise BadAudioFormat(f"audio_format {shown!r} is unknown; accepted: {ACCEPTED}")
    rate_hz, channels = rate_of(match[2]), int(match[3] or 1)
    if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
        raise BadAudioFormat(f"audio_format {text!r}: the rate must be {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz")
    if not 1 <= channels <= MAX_CHANNELS:
        raise BadAudioFormat(f"audio_format {text!r}: there may be 1 to {MAX_CHANNELS} channels")
    return AudioFormat(match[1], rate_hz, channels)


def rate_of(text: str) -> int:
    """Return the rate in Hz of `16000`, `16k` or `44.1k`."""
    return round(float(text.removesuffix("k")) * _THOUSAND) if text.endswith("k") else int(text)


class PcmReader:
    """Turn raw audio that comes in pieces into 16 kHz mono; a piece may end inside a sample.

    Args:
        sound: what the bytes are; raw.
        resampler: what brings it to 16 kHz; by default one that is quick with pieces of some milliseconds.
    """

    def __init__(self, sound: AudioFormat, resampler: FrameResampler | Resampler | None = None) -> None:
        self._sound = sound
        self._rest = b""
        self._is_plain = sound == AudioFormat("s16le", SAMPLE_RATE_HZ, 1)
        speakers = _SPEAKERS.get(sound.channels, tuple(f"channel {n}" for n in range(sound.channels)))
        self._mixer = Mixer(speakers, sound.rate_hz)
        self._resampler = FrameResampler(sound.rate_hz) if resampler is None else resampler

    def feed(self, data: bytes) -> Pcm:
        """Return the samples that are complete once `data` is known."""
        if self._rest:
            data = self._rest + data
        whole = len(data) - len(data) % self._sound.frame_bytes
        self._rest = data[whole:]
        view = memoryview(data)[:whole]
        if self._is_plain:
            plain: Pcm = np.frombuffer(view, "<i2").astype(np.int16, copy=False)
            return plain
        return to_pcm(self._resampler.feed(self._mixer.mix(self._planes(view))))

    def finish(self) -> Pcm:
        """Return what the resampler still holds.

        Raises:
            BadAudioFormat: the last sample is not whole.
        """
        if self._rest:
            raise BadAudioFormat(
                f"the audio ends inside a sample: {len(self._rest)} bytes are left over, "
                f"and one of {self._sound.encoding} with {self._sound.channels} channels has {self._sound.frame_bytes}"
            )
        return to_pcm(self._resampler.finish())

    def _planes(self, data: memoryview) -> Samples:
        """Return the samples as float32, shape (channels, samples)."""
        samples: NDArray[Any]
        match self._sound.encoding:
            case "s16le":
                samples = np.frombuffer(data, "<i2")
            case "f32le":
                samples = np.frombuffer(data, "<f4")
            case encoding:
                samples = samples_of_bytes(encoding)[np.frombuffer(data, np.uint8)]
        return to_float(samples.reshape(-1, self._sound.channels).T)


def read_pcm(data: bytes, sound: AudioFormat) -> Pcm:
    """Return a whole raw recording as 16 kHz mono, resampled in blocks of a few seconds.

    Raises:
        EmptyFile: there is no sound in it.
        BadAudioFormat: it ends inside a sample.
    """
    if not data:
        raise EmptyFile("the request holds no audio", hint="Fill audio_data.")
    if len(data) % sound.frame_bytes:
        raise BadAudioFormat(
            f"audio_data holds {len(data)} bytes, which is no whole number of samples of {sound.frame_bytes} bytes "
            f"({sound.encoding}, {sound.channels} channels)"
        )
    reader = PcmReader(sound, Resampler(sound.rate_hz))  # that of the decoder: the text is that of a file
    block = _BLOCK_S * sound.rate_hz * sound.frame_bytes
    if len(data) <= block or sound == AudioFormat("s16le", SAMPLE_RATE_HZ, 1):
        return _joined([reader.feed(data), reader.finish()])
    parts = [reader.feed(data[start : start + block]) for start in range(0, len(data), block)]
    return _joined([*parts, reader.finish()])


def _joined(parts: list[Pcm]) -> Pcm:
    """Return the parts as one array, without a copy where there is only one."""
    full = [part for part in parts if part.size]
    return full[0] if len(full) == 1 else np.concatenate(full or [np.zeros(0, np.int16)])


def samples_of_bytes(encoding: str) -> NDArray[np.int16]:
    """Return the sample of each byte of `mulaw` or `alaw`, shape (256,)."""
    return _mulaw_table() if encoding == "mulaw" else _alaw_table()


@cache
def _mulaw_table() -> NDArray[np.int16]:
    """Return the sample of each byte of G.711 mu-law: sign, three bits of exponent, four of mantissa, inverted."""
    code = ~np.arange(256, dtype=np.uint8)
    exponent, mantissa = (code >> 4).astype(np.int32) & 7, code.astype(np.int32) & 15
    size = (((mantissa << 3) + 0x84) << exponent) - 0x84
    return np.where(code & 0x80, -size, size).astype(np.int16)


@cache
def _alaw_table() -> NDArray[np.int16]:
    """Return the sample of each byte of G.711 A-law: every other bit inverted, the first segment linear."""
    code = np.arange(256, dtype=np.uint8) ^ 0x55
    exponent, mantissa = (code >> 4).astype(np.int32) & 7, code.astype(np.int32) & 15
    linear = (mantissa << 4) + 8
    size = np.where(exponent == 0, linear, (linear + 0x100) << np.maximum(exponent - 1, 0))
    return np.where(code & 0x80, size, -size).astype(np.int16)
