"""WAV in memory: written for servers that want a file, and read from those that answer with one."""

import struct

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm, Sound
from voicejobs.errors import EngineUnavailable
from voicejobs.units import SAMPLE_RATE_HZ

_FULL_SCALE = 32768.0
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_WAVE_BYTES = 12
_CHUNK_BYTES = 8
_FORMAT_BYTES = 16
_SUBFORMAT = slice(24, 26)
_FLOAT_BITS = 32
_PCM_BITS = 16


def wav_of(pcm: Pcm, rate_hz: int = SAMPLE_RATE_HZ) -> bytes:
    """Return mono int16 samples as a WAV file."""
    data = np.ascontiguousarray(pcm, "<i2").tobytes()
    head = struct.pack(
        "<4sI4s4sIHHIIHH", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, 1, rate_hz, 2 * rate_hz, 2, 16
    )
    return head + struct.pack("<4sI", b"data", len(data)) + data


def sound_of_s16le(data: bytes, rate_hz: int) -> Sound:
    """Return raw mono int16 samples as a sound.

    Raises:
        EngineUnavailable: the bytes end inside a sample, so that some are missing.
    """
    if len(data) % 2:
        raise EngineUnavailable(f"the server's sound ends inside a sample, after {len(data)} bytes")
    return Sound(np.frombuffer(data, "<i2").astype(np.float32) / np.float32(_FULL_SCALE), rate_hz)


def sound_of_wav(data: bytes) -> Sound:
    """Return a WAV file as mono sound.

    Servers that write while they speak do not know the length beforehand: what the header says of it does not count
    where it is more than there is.

    Raises:
        EngineUnavailable: it is no WAV file of 16-bit PCM or 32-bit float.
    """
    if data[:4] != b"RIFF" or data[8:_WAVE_BYTES] != b"WAVE":
        raise EngineUnavailable("the server's sound is no WAV file")
    at = _WAVE_BYTES
    kind = channels = rate_hz = bits = 0
    while at + _CHUNK_BYTES <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        at += _CHUNK_BYTES
        if name == b"fmt " and at + _FORMAT_BYTES <= len(data):
            kind, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", data, at)
            if kind == _EXTENSIBLE:
                kind = int.from_bytes(data[at:][_SUBFORMAT], "little")
        elif name == b"data":
            end = len(data) if size in {0, 0xFFFFFFFF} else min(len(data), at + size)
            return Sound(_mono(data[at:end], kind, bits, channels), _rate(rate_hz))
        at += size + size % 2
    raise EngineUnavailable("the server's WAV file holds no sound")


def _rate(rate_hz: int) -> int:
    """Return a rate that a sound can have."""
    if rate_hz <= 0:
        raise EngineUnavailable("the server's WAV file has no sampling rate")
    return rate_hz


def _mono(data: bytes, kind: int, bits: int, channels: int) -> NDArray[np.float32]:
    """Return the mean of all channels, full scale 1.0."""
    if (kind, bits) not in {(_PCM, _PCM_BITS), (_FLOAT, _FLOAT_BITS)} or not channels:
        raise EngineUnavailable(f"the server's WAV file has format {kind} with {bits} bits, {channels} channels")
    frame_bytes = bits // 8 * channels
    if len(data) % frame_bytes:
        raise EngineUnavailable(f"the server's sound ends inside a sample, after {len(data)} bytes")
    samples = np.frombuffer(data, "<i2" if kind == _PCM else "<f4").astype(np.float32)
    if kind == _PCM:
        samples /= np.float32(_FULL_SCALE)
    return np.ascontiguousarray(samples.reshape(-1, channels).mean(axis=1), np.float32)
