"""Mix any number of channels to one, in pure numpy: nothing cancels, a film's voice stays in front, nothing clicks.

The weights of the channels are decided for each stretch of about a second and change by a short cross-fade:

* A channel that has been silent for long does not count, so that it does not halve the others.
* In a surround layout the centre leads, since films put the voice there; the LFE channel is left out.
* Where the channels cancel (one side wired the wrong way round), the strongest side is taken alone. Entering and
  leaving that state need different levels, and quiet passages decide nothing, so that the state does not flip.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm

Samples = NDArray[np.float32]
"""Samples as float32, full scale 1.0; shape (channels, samples), or (samples,) once mixed."""

STRETCH_S = 1.0
FADE_S = 0.05
SILENT_AFTER_STRETCHES = 30
FULL_SCALE = 32768.0

_FLOOR = 1e-6
"""Mean square of -60 dBFS: below it a stretch is too quiet to decide anything."""
_SILENT_RATIO = 1e-4
"""A channel 40 dB under the loudest counts as silent."""
_CANCEL_BELOW = 0.5
_RECOVER_ABOVE = 1.0
_RECOVER_STRETCHES = 2
"""The mix cancels where its energy is under half of what its strongest channel alone brings in."""
_SWITCH_RATIO = 1 / 16
"""While channels cancel, another side is taken only once the chosen one is 12 dB weaker."""
_HEADROOM = 16.0
"""Float samples beyond +24 dBFS are damage; they are cut here so that sums stay finite."""

_CENTRE = "FC"
_WITH_CENTRE = {"FC": 1.0, "FL": 0.2, "FR": 0.2, "FLC": 0.5, "FRC": 0.5, "LFE": 0.0, "LFE2": 0.0}
_SURROUND_WEIGHT = 0.05
_SPEAKERS = frozenset({
    "FL", "FR", "FC", "LFE", "BL", "BR", "FLC", "FRC", "BC", "SL", "SR", "TC", "TFL", "TFC", "TFR", "TBL", "TBC",
    "TBR", "WL", "WR", "LFE2", "TSL", "TSR", "BFC", "BFL", "BFR",
})  # fmt: skip


def to_float(planes: NDArray[Any]) -> Samples:
    """Return samples of any PCM type as float32 of full scale 1.0; NaN and infinity become silence."""
    if planes.dtype == np.uint8:
        return (planes.astype(np.float32) - np.float32(128)) * np.float32(1 / 128)
    if planes.dtype.kind == "i":
        scale = np.float32(1 / 2 ** (8 * planes.dtype.itemsize - 1))
        return planes.astype(np.float32) * scale
    # Bounded before the conversion: a float64 beyond the range of float32 would become infinite by it.
    bounded = np.clip(np.where(np.isfinite(planes), planes, 0), -_HEADROOM, _HEADROOM)
    return bounded.astype(np.float32)


def to_pcm(samples: Samples) -> Pcm:
    """Return float samples as int16, clipped and rounded to the nearest value."""
    scaled = np.rint(samples * np.float32(FULL_SCALE))
    pcm: Pcm = np.clip(scaled, -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)
    return pcm


def base_weights(speakers: Sequence[str]) -> NDArray[np.float64]:
    """Return how much each channel counts before the signal is looked at; unknown layouts count evenly.

    Args:
        speakers: FFmpeg's names of the channels in order, such as `("FL", "FR", "FC", "LFE", "SL", "SR")`.
    """
    known = all(name in _SPEAKERS for name in speakers) and len(set(speakers)) == len(speakers)
    if not known:
        return np.ones(len(speakers))
    if _CENTRE in speakers:
        return np.array([_WITH_CENTRE.get(name, _SURROUND_WEIGHT) for name in speakers])
    weights = np.array([0.0 if name.startswith("LFE") else 1.0 for name in speakers])
    return weights if weights.any() else np.ones(len(speakers))


class Mixer:
    """Mix the channels of one recording, block after block; holds the state that keeps the mix steady.

    Args:
        speakers: FFmpeg's names of the channels in order; any other names mean an unknown layout.
        rate_hz: sampling rate of the blocks.
    """

    def __init__(self, speakers: Sequence[str], rate_hz: int) -> None:
        self._base = base_weights(speakers)
        self._stretch_samples = max(1, int(STRETCH_S * rate_hz))
        self._fade_samples = max(1, int(FADE_S * rate_hz))
        self._heard = np.zeros(len(speakers), dtype=bool)
        self._silent_stretches = np.zeros(len(speakers), dtype=np.int64)
        self._cancels = False
        self._recovering = 0
        self._side = 0
        self._weights: NDArray[np.float64] | None = None

    def mix(self, block: Samples) -> Samples:
        """Return the mix of `block`, shape (channels, samples), as float32 of shape (samples,)."""
        channels, samples = block.shape
        if channels == 1 or samples == 0:
            only: Samples = block[0]
            return only
        pieces = max(1, round(samples / self._stretch_samples))
        edges = [samples * piece // pieces for piece in range(pieces + 1)]
        return np.concatenate([self._mix_stretch(block[:, start:end]) for start, end in pairwise(edges)])

    def _mix_stretch(self, part: Samples) -> Samples:
        """Mix one stretch, fading from the weights of the one before."""
        before = self._weights
        after = self._decide(part)
        self._weights = after
        mixed = _apply(after, part)
        if before is None or np.array_equal(before, after):
            return mixed
        length = min(self._fade_samples, part.shape[1])
        rise = (np.arange(1, length + 1) / length).astype(np.float32)
        mixed[:length] = mixed[:length] * rise + _apply(before, part[:, :length]) * (1 - rise)
        return mixed

    def _decide(self, part: Samples) -> NDArray[np.float64]:
        """Return the weights for a stretch and remember what was heard in it."""
        energy = np.array([float(np.dot(channel, channel)) for channel in part]) / part.shape[1]
        if energy.max() < _FLOOR and self._weights is not None:
            return self._weights
        self._notice_silence(energy)
        active = self._base * self._heard
        chosen = active if active.any() else self._base
        weights: NDArray[np.float64] = chosen / chosen.sum()
        self._notice_cancelling(weights, energy, _apply(weights, part))
        if not self._cancels:
            return weights
        alone: NDArray[np.float64] = np.eye(len(weights))[self._side]
        return alone

    def _notice_silence(self, energy: NDArray[np.float64]) -> None:
        """Count for how long each channel has been silent."""
        loud = energy > max(_FLOOR, float(energy.max()) * _SILENT_RATIO)
        self._silent_stretches = np.where(loud, 0, self._silent_stretches + 1)
        self._heard = (self._heard | loud) & (self._silent_stretches < SILENT_AFTER_STRETCHES)

    def _notice_cancelling(self, weights: NDArray[np.float64], energy: NDArray[np.float64], mixed: Samples) -> None:
        """Enter or leave the state in which one side is taken alone."""
        brought = weights**2 * energy
        strongest = int(brought.argmax())
        if brought[strongest] < _FLOOR * weights[strongest] ** 2:
            return
        ratio = float(np.dot(mixed, mixed)) / len(mixed) / float(brought[strongest])
        if self._cancels:
            self._recovering = self._recovering + 1 if ratio > _RECOVER_ABOVE else 0
            self._cancels = self._recovering < _RECOVER_STRETCHES
            if brought[self._side] < brought[strongest] * _SWITCH_RATIO:
                self._side = strongest
        elif ratio < _CANCEL_BELOW:
            self._cancels, self._recovering, self._side = True, 0, strongest


def _apply(weights: NDArray[np.float64], part: Samples) -> Samples:
    """Return the weighted sum of the channels."""
    mixed: Samples = weights.astype(np.float32) @ part
    return mixed
