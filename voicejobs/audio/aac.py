"""AAC as a stream of ADTS frames, by the encoder of FFmpeg: each frame tells all that a player needs."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

RATES_HZ = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
"""Rates of speech that the format knows."""

_ALL_RATES_HZ = (96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350)
_BITS_PER_SAMPLE = 3
_HEADER_BYTES = 7
_FRAME_SAMPLES = 1024


class AacWriter:
    """Encode mono samples, 16 bits each, frame by frame.

    Args:
        write: takes the bytes.
        rate_hz: one of `RATES_HZ`.
    """

    def __init__(self, write: Callable[[bytes], Any], rate_hz: int) -> None:
        import av

        self._write = write
        self._rate_hz = rate_hz
        self._held: NDArray[np.int16] = np.zeros(0, np.int16)
        self._written_samples = 0
        self._codec = av.CodecContext.create("aac", "w")
        self._codec.sample_rate = rate_hz
        self._codec.layout = "mono"
        self._codec.format = "fltp"
        self._codec.bit_rate = _BITS_PER_SAMPLE * rate_hz

    def write(self, samples: NDArray[np.int16]) -> None:
        """Encode the whole frames that there are by now."""
        held = np.concatenate([self._held, samples])
        whole = len(held) // _FRAME_SAMPLES * _FRAME_SAMPLES
        for first in range(0, whole, _FRAME_SAMPLES):
            self._encode(held[first : first + _FRAME_SAMPLES])
        self._held = held[whole:]

    def close(self) -> None:
        """Encode what is left, and what the encoder holds."""
        if len(self._held):
            self._encode(self._held)
        if self._written_samples:
            self._give(self._codec.encode(None))

    def _encode(self, samples: NDArray[np.int16]) -> None:
        """Encode one frame."""
        import av

        plane = np.divide(samples, np.float32(32_768), dtype=np.float32)[np.newaxis, :]
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(plane), format="fltp", layout="mono")
        frame.sample_rate = self._rate_hz
        frame.pts = self._written_samples
        self._written_samples += len(samples)
        self._give(self._codec.encode(frame))

    def _give(self, packets: Any) -> None:
        """Write packets, each behind its header."""
        for packet in packets:
            data = bytes(packet)
            self._write(adts_header(self._rate_hz, len(data)) + data)


def adts_header(rate_hz: int, size_bytes: int) -> bytes:
    """Return the header of a frame of mono AAC-LC (ISO/IEC 13818-7, 6.2) that holds so many bytes beside it."""
    length = size_bytes + _HEADER_BYTES
    rate = _ALL_RATES_HZ.index(rate_hz)
    return bytes([
        0xFF,
        0xF1,
        0x40 | rate << 2,
        0x40 | length >> 11,
        length >> 3 & 0xFF,
        (length & 0x7) << 5 | 0x1F,
        0xFC,
    ])  # fmt: skip
