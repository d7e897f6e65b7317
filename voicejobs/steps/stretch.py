"""Make speech shorter or longer and keep its pitch: pieces of it overlap where their waves run alike (WSOLA)."""

import math

import numpy as np
from numpy.typing import NDArray

from voicejobs.errors import BadOption
from voicejobs.units import seconds_to_samples

Samples = NDArray[np.float32]
"""Mono samples, shape (samples,), full scale 1.0."""

MIN_FACTOR, MAX_FACTOR = 0.5, 2.0
"""Beyond these speech is not understood any more."""

_FRAME_S = 0.032
"""More than two periods of a low voice: less would cut them, and much more would echo."""
_SEARCH_S = 0.0125
"""A period of a voice at 80 Hz, so that there is always a place where the waves run alike."""
_NOTHING = 1e-9


def stretch(samples: Samples, rate_hz: int, heard: tuple[int, int], length: int) -> Samples:
    """Return a sound whose part that is heard has another length, to the sample.

    It begins and ends with the same samples as before, so that what lies on either side stays and follows seamlessly.
    The same sound gives the same sound.

    Args:
        samples: the sound.
        rate_hz: its sampling rate.
        heard: begin and end of the part, in samples.
        length: samples of the part afterwards.

    Raises:
        BadOption: the part would get more than twice as long, or less than half.
    """
    start, end = heard
    if length == end - start or end <= start:
        return samples
    if not MIN_FACTOR <= (end - start) / max(1, length) <= MAX_FACTOR:
        raise BadOption(f"{end - start} samples cannot become {length} without damage", hint="Stretch it less.")
    return np.concatenate([samples[:start], _stretched(samples, rate_hz, heard, length), samples[end:]])


def _stretched(samples: Samples, rate_hz: int, heard: tuple[int, int], length: int) -> Samples:
    """Return the part alone, in its new length."""
    half = max(1, seconds_to_samples(_FRAME_S / 2, rate_hz))
    search = max(1, seconds_to_samples(_SEARCH_S, rate_hz))
    start, end = heard
    edge = 2 * (half + search)
    before, after = np.zeros(max(0, edge - start)), np.zeros(max(0, edge - (len(samples) - end)))
    first = max(0, start - edge)
    source = np.concatenate([before, samples[first : end + edge].astype(np.float64), after])
    frames = math.ceil(length / half)
    places = np.round(np.arange(frames + 1) * (length / frames)).astype(int)
    ideal = np.round(edge + places * ((end - start) / length)).astype(int)
    window = np.sin(np.pi * (np.arange(2 * half) + 0.5) / (2 * half)) ** 2
    whole, weights = np.zeros(length + 2 * half), np.zeros(length + 2 * half)
    chosen = int(ideal[0])
    for number in range(frames + 1):
        if number:
            follows = chosen + int(places[number] - places[number - 1])
            is_last = number == frames
            chosen = int(ideal[number]) if is_last else _alike(source, follows, int(ideal[number]), (half, search))
        place = int(places[number])
        whole[place : place + 2 * half] += source[chosen - half : chosen + half] * window
        weights[place : place + 2 * half] += window
    return np.divide(whole[half:-half], weights[half:-half]).astype(np.float32)


def _alike(source: NDArray[np.float64], follows: int, ideal: int, reach: tuple[int, int]) -> int:
    """Return the middle of the frame near `ideal` that is most like the one that would follow by itself.

    Args:
        source: the sound.
        follows: middle of the frame that follows the one before.
        ideal: where the frame should be for the new length.
        reach: half a frame, and how far from `ideal` it may be, in samples.
    """
    half, search = reach
    follows = min(max(follows, half), len(source) - half)
    wanted = source[follows - half : follows + half]
    if float(wanted @ wanted) < _NOTHING:
        return ideal
    first = max(half, ideal - search)
    last = min(len(source) - half, ideal + search)
    region = source[first - half : last + half]
    sums = np.concatenate([[0.0], np.cumsum(np.square(region))])
    energies = sums[2 * half :] - sums[: -2 * half]
    scores = np.correlate(region, wanted, "valid") / np.sqrt(np.maximum(energies, _NOTHING))
    return first + int(np.argmax(scores))
