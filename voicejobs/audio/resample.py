"""Resample mono float audio with libswresample, block after block, without losing or adding samples."""

from typing import TYPE_CHECKING

import numpy as np

from voicejobs.audio.mix import Samples
from voicejobs.units import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    import av


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
