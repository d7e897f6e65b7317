"""Resample mono float audio, block after block, without losing or adding samples.

`Resampler` stands on libswresample and serves the decoder, where blocks are long and PyAV is loaded anyway.
`FrameResampler` needs numpy alone, for servers that load no codec: a polyphase filter whose taps are made once for each
pair of rates and shared by all streams.
"""

from functools import lru_cache
from math import ceil, gcd
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.mix import Samples
from voicejobs.units import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    import av

_ZERO_CROSSINGS = 24
"""Of the filter on each side, at the lower of the two rates: flat up to 0.85 of what that rate can hold."""
_CUTOFF = 0.92
_KAISER_BETA = 7.0
"""Some 70 dB between what passes and what must not."""
_MOST_PHASES = 4096
"""Rates without a common divisor take the nearest of so many phases, so that no table is larger than some megabytes."""
_TABLES = 32
_OUTPUTS_AT_ONCE = 2048


class Resampler:
    """Resample one mono signal; what goes in at the rate that is wanted comes out untouched.

    The output of the whole signal has `ceil(samples * to_hz / rate_hz)` samples, so that times stay true over hours.

    Args:
        rate_hz: sampling rate of the signal.
        to_hz: sampling rate of the result.
    """

    def __init__(self, rate_hz: int, to_hz: int = SAMPLE_RATE_HZ) -> None:
        self._rate_hz = rate_hz
        self._to_hz = to_hz
        self._taken_samples = 0
        self._given_samples = 0
        if rate_hz != to_hz:
            import av

            self._filter = av.AudioResampler(format="flt", layout="mono", rate=to_hz)

    def feed(self, signal: Samples) -> Samples:
        """Return the part of the result that is complete once `signal`, shape (samples,), is known."""
        self._taken_samples += len(signal)
        if self._rate_hz == self._to_hz or len(signal) == 0:
            self._given_samples += len(signal)
            return signal
        import av

        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(signal)[np.newaxis, :], format="flt", layout="mono")
        frame.sample_rate = self._rate_hz
        return self._collect(self._filter.resample(frame))

    def finish(self) -> Samples:
        """Return what the filter still holds; the resampler cannot be fed after it."""
        if self._rate_hz == self._to_hz:
            return np.zeros(0, dtype=np.float32)
        given_before = self._given_samples
        rest = self._collect(self._filter.resample(None))
        wanted = -(-self._taken_samples * self._to_hz // self._rate_hz) - given_before
        self._given_samples = given_before + max(wanted, 0)
        return np.pad(rest, (0, max(0, wanted - len(rest))))[: max(wanted, 0)]

    def _collect(self, frames: "list[av.AudioFrame]") -> Samples:
        """Join the frames that the filter gave."""
        parts = [frame.to_ndarray()[0] for frame in frames]
        result: Samples = np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)
        self._given_samples += len(result)
        return result


class FrameResampler:
    """Resample one mono signal between any two rates; how it is cut into blocks changes no sample by more than 1e-6.

    The output of the whole signal has `ceil(samples * to_hz / from_hz)` samples. What comes out is late by the half
    length of the filter, 1.6 ms from 48 to 16 kHz; times stay true, since silence is put before the first sample.

    Args:
        from_hz: rate of the signal.
        to_hz: rate of the result.
    """

    def __init__(self, from_hz: int, to_hz: int = SAMPLE_RATE_HZ) -> None:
        divisor = gcd(from_hz, to_hz)
        self._up, self._down = to_hz // divisor, from_hz // divisor
        self._table = _filters(self._up, self._down) if self._up != self._down else None
        self._half = 0 if self._table is None else self._table.shape[1] // 2
        self._kept: Samples = np.zeros(max(self._half - 1, 0), np.float32)
        self._start = -len(self._kept)  # place of the first kept sample in the signal
        self._taken = 0
        self._given = 0

    def feed(self, signal: Samples) -> Samples:
        """Return the part of the result that is complete once `signal`, float32, shape (samples,), is known."""
        self._taken += len(signal)
        if self._table is None:
            return signal
        return self._give(signal, ceil((self._taken - self._half) * self._up / self._down))

    def finish(self) -> Samples:
        """Return the rest, as if silence followed; the resampler cannot be fed after it."""
        if self._table is None:
            return np.zeros(0, np.float32)
        return self._give(np.zeros(self._half + 1, np.float32), -(-self._taken * self._up // self._down))

    def _give(self, signal: Samples, until: int) -> Samples:
        """Return the outputs up to the index `until`, and keep what later ones need."""
        known = np.concatenate([self._kept, signal])
        parts = [
            self._outputs(known, start, min(start + _OUTPUTS_AT_ONCE, until))
            for start in range(self._given, until, _OUTPUTS_AT_ONCE)
        ]
        self._given = max(until, self._given)
        needed = self._given * self._down // self._up - self._half + 1 - self._start
        self._kept = known[needed:].copy()
        self._start += len(known) - len(self._kept)
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    def _outputs(self, known: Samples, start: int, end: int) -> Samples:
        """Return the outputs `[start, end)` from what is known, each the product of its neighbours and its phase."""
        table = self._table
        if table is None:
            return known
        places = np.arange(start, end, dtype=np.int64) * self._down
        whole = places // self._up
        phases = (places - whole * self._up) * len(table) // self._up
        rows = np.lib.stride_tricks.sliding_window_view(known, table.shape[1])[whole - self._half + 1 - self._start]
        result: Samples = np.einsum("ij,ij->i", rows, table[phases])
        return result


@lru_cache(maxsize=_TABLES)
def _filters(up: int, down: int) -> NDArray[np.float32]:
    """Return the taps of each phase of a low-pass filter, shape (phases, taps), read-only; rates as a reduced ratio."""
    scale = min(1.0, up / down) * _CUTOFF
    half = ceil(_ZERO_CROSSINGS / min(1.0, up / down))
    phases = min(up, _MOST_PHASES)
    offsets = np.arange(-half + 1, half + 1)[np.newaxis, :] - np.arange(phases)[:, np.newaxis] / phases
    window = np.i0(_KAISER_BETA * np.sqrt(np.maximum(0.0, 1.0 - (offsets / half) ** 2))) / np.i0(_KAISER_BETA)
    taps = scale * np.sinc(scale * offsets) * window
    taps /= taps.sum(axis=1, keepdims=True)  # a constant stays that constant in every phase
    table = taps.astype(np.float32)
    table.flags.writeable = False
    return table
