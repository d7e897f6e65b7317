"""Speech made shorter and longer: its length to the sample, its pitch, its level, its edges."""

import numpy as np
import pytest
from numpy.typing import NDArray

from voicejobs.errors import BadOption
from voicejobs.steps.stretch import stretch

RATE_HZ = 22_050
FACTORS = [0.8, 0.93, 1.07, 1.25, 1.6]


def tone(pitch_hz: float, seconds: float = 1.0) -> NDArray[np.float32]:
    """Return a tone at half of full scale."""
    times = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    return (0.5 * np.sin(2 * np.pi * pitch_hz * times)).astype(np.float32)


def pitch_hz(samples: NDArray[np.float32]) -> float:
    """Return the strongest frequency."""
    size = 1 << 18
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), n=size))
    return float(np.argmax(spectrum)) * RATE_HZ / size


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("hz", [85.0, 220.0, 1000.0])
def test_a_tone_keeps_pitch_and_level(hz: float, factor: float) -> None:
    """The length is what was asked for to the sample; the pitch stays within 0.1 %, the level within 3 %."""
    sound = tone(hz)
    length = round(len(sound) / factor)
    found = stretch(sound, RATE_HZ, (0, len(sound)), length)
    assert len(found) == length
    assert found.dtype == np.float32
    inner = found[1000:-1000]
    assert abs(pitch_hz(inner) / hz - 1) < 0.001
    period = int(RATE_HZ / hz) + 2
    peaks = [np.max(np.abs(inner[at : at + period])) for at in range(0, len(inner) - period, period)]
    assert min(peaks) > 0.485
    assert max(peaks) < 0.515


@pytest.mark.parametrize("factor", FACTORS)
def test_what_lies_beside_stays(factor: float) -> None:
    """Only the part that is named changes; it begins and ends with its own samples, without a step."""
    quiet = np.zeros(500, np.float32)
    sound = np.concatenate([quiet, tone(200.0, 0.7), quiet])
    heard = (500, len(sound) - 500)
    length = round((heard[1] - heard[0]) / factor)
    found = stretch(sound, RATE_HZ, heard, length)
    assert len(found) == length + 1000
    assert not np.any(found[:500])
    assert not np.any(found[-500:])
    assert np.allclose(found[500:520], sound[500:520], atol=0.03)
    assert np.allclose(found[-520:-500], sound[-520:-500], atol=0.03)
    assert np.max(np.abs(np.diff(found))) < 1.2 * np.max(np.abs(np.diff(sound)))


def test_silence_noise_and_tiny_sounds_are_safe() -> None:
    """Nothing is divided by nothing; noise is no louder than it was; a few samples become as many as asked for."""
    silent = np.zeros(8000, np.float32)
    assert not np.any(stretch(silent, RATE_HZ, (0, 8000), 6500))
    noise = np.random.default_rng(1).uniform(-1, 1, 8000).astype(np.float32)
    found = stretch(noise, RATE_HZ, (0, 8000), 6500)
    assert len(found) == 6500
    assert np.max(np.abs(found)) <= 1.0
    for size, length in ((2, 1), (3, 4), (50, 41), (700, 600)):
        assert len(stretch(noise[:size], RATE_HZ, (0, size), length)) == length
    assert stretch(noise, RATE_HZ, (0, 8000), 8000) is noise
    assert stretch(noise, RATE_HZ, (9, 9), 5) is noise


def test_the_same_sound_gives_the_same_sound() -> None:
    """To the bit, and without touching what it was given."""
    sound = np.concatenate([tone(130.0, 0.3), tone(310.0, 0.4)])
    before = sound.copy()
    first, second = (stretch(sound, RATE_HZ, (0, len(sound)), 12_000) for _ in range(2))
    assert np.array_equal(first, second)
    assert np.array_equal(sound, before)


@pytest.mark.parametrize("length", [0, 499, 2001])
def test_what_nobody_could_understand_is_refused(length: int) -> None:
    """More than twice as fast, or as slow."""
    with pytest.raises(BadOption, match="without damage"):
        stretch(np.ones(1000, np.float32), RATE_HZ, (0, 1000), length)
