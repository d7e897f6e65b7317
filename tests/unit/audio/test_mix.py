"""Mixing: what counts, what cancels, and that no sample is lost."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from voicejobs.audio.mix import Mixer, Samples, base_weights, to_float, to_pcm

RATE_HZ = 16_000
SURROUND = ("FL", "FR", "FC", "LFE", "SL", "SR")
STEREO = ("FL", "FR")


def tone(frequency_hz: float, seconds: float = 3.0, level: float = 0.3) -> Samples:
    """Return a sine tone."""
    times_s = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    return (level * np.sin(2 * np.pi * frequency_hz * times_s)).astype(np.float32)


def noise(seconds: float = 3.0, level: float = 0.1, seed: int = 0) -> Samples:
    """Return white noise."""
    samples = np.random.default_rng(seed).standard_normal(int(seconds * RATE_HZ)) * level
    return samples.astype(np.float32)


def level_of(signal: NDArray[Any]) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(np.square(signal, dtype=np.float64))))


def cut(block: Samples, edges: list[int]) -> list[Samples]:
    """Cut a block at the given places."""
    places = [0, *sorted(edge % (block.shape[1] + 1) for edge in edges), block.shape[1]]
    return [block[:, start:end] for start, end in pairwise(places)]


@settings(deadline=None, max_examples=40)
@given(
    channels=st.integers(1, 9),
    samples=st.integers(0, 40_000),
    edges=st.lists(st.integers(0, 40_000), max_size=5),
    level=st.floats(0, 4, width=32),
)
def test_sample_counts_survive_and_nothing_overflows(
    channels: int, samples: int, edges: list[int], level: float
) -> None:
    """Whatever the channels and the cuts, as many samples come out as went in, within the range of int16."""
    block = (np.random.default_rng(samples).standard_normal((channels, samples)) * level).astype(np.float32)
    mixer = Mixer(("NONE",) * channels, RATE_HZ)
    mixed = [mixer.mix(part) for part in cut(block, edges)]
    joined = np.concatenate(mixed)
    assert joined.shape == (samples,)
    loudest = float(np.abs(block).max(initial=0))
    assert float(np.abs(joined).max(initial=0)) <= loudest * 1.001
    assert to_pcm(joined).dtype == np.int16


@settings(deadline=None, max_examples=20)
@given(channels=st.integers(1, 8), samples=st.integers(1, 50_000))
def test_silence_stays_silence(channels: int, samples: int) -> None:
    """A mix of silent channels is exactly zero."""
    mixed = Mixer(("NONE",) * channels, RATE_HZ).mix(np.zeros((channels, samples), dtype=np.float32))
    assert not mixed.any()


@settings(deadline=None)
@given(hnp.arrays(np.int16, st.integers(0, 300)))
def test_int16_survives_the_way_through_float(samples: NDArray[np.int16]) -> None:
    """Every int16 value comes back as itself."""
    assert np.array_equal(to_pcm(to_float(samples)), samples)


@settings(deadline=None)
@given(hnp.arrays(np.float64, st.integers(0, 100), elements=st.floats(allow_nan=True, allow_infinity=True, width=64)))
def test_any_float_becomes_a_sample(samples: NDArray[np.float64]) -> None:
    """NaN and infinity become silence, values out of range are cut, and nothing warns."""
    result = to_float(samples)
    assert np.isfinite(result).all()
    assert not to_pcm(result)[~np.isfinite(samples)].any()


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [(np.uint8, 0, 255), (np.int16, -32768, 32767), (np.int32, -(2**31), 2**31 - 1), (np.float32, -1.0, 1.0)],
)
def test_full_scale_of_every_type_is_one(dtype: type, low: float, high: float) -> None:
    """The ends of each PCM type are -1 and almost 1."""
    lowest, highest = to_float(np.array([low, high], dtype=dtype))
    assert lowest == -1.0
    assert 0.99 < highest <= 1.0


def test_clipping_is_at_full_scale() -> None:
    """Float samples beyond full scale become the ends of int16, not their opposites."""
    assert to_pcm(np.array([1.5, -1.5, 1.0], dtype=np.float32)).tolist() == [32767, -32768, 32767]


def test_equal_channels_keep_their_level() -> None:
    """The same signal on both sides comes out as it went in."""
    signal = tone(300)
    mixed = Mixer(STEREO, RATE_HZ).mix(np.stack([signal, signal]))
    assert np.allclose(mixed, signal, atol=1e-6)


def test_channels_that_cancel_leave_one_side() -> None:
    """With one side inverted, the mix is one side, from the first sample on."""
    signal = noise()
    mixed = Mixer(STEREO, RATE_HZ).mix(np.stack([signal, -signal]))
    assert np.allclose(np.abs(mixed), np.abs(signal), atol=1e-6)


def test_quiet_passages_do_not_flip_the_side() -> None:
    """Faint in-phase noise between inverted speech changes nothing: the same side stays chosen, without a fade."""
    speech, hush = noise(3), noise(3, level=1e-4, seed=1)
    inverted = np.concatenate(
        [np.stack([speech, -speech]), np.stack([hush, hush]), np.stack([speech, -speech])], axis=1
    )
    mixed = Mixer(STEREO, RATE_HZ).mix(inverted)
    assert np.allclose(mixed, inverted[0], atol=1e-6)


def test_the_mix_returns_when_channels_agree_again() -> None:
    """After inverted music, in-phase speech is mixed from both sides again."""
    before, after = noise(3), tone(300, 5)
    block = np.concatenate([np.stack([before, -before]), np.stack([after, after * 0.5])], axis=1)
    mixed = Mixer(STEREO, RATE_HZ).mix(block)
    assert level_of(mixed[-RATE_HZ:]) == pytest.approx(level_of(after) * 0.75, rel=0.01)


def test_a_change_of_weights_makes_no_click() -> None:
    """When a side joins in, no step between samples is larger than the signals' own."""
    left = tone(200, 6)
    right = np.concatenate([np.zeros(3 * RATE_HZ, dtype=np.float32), tone(200, 3)])
    mixed = Mixer(STEREO, RATE_HZ).mix(np.stack([left, right]))
    assert float(np.abs(np.diff(mixed)).max()) <= float(np.abs(np.diff(left)).max()) * 1.1


def test_a_silent_channel_does_not_halve_the_other() -> None:
    """Speech on one side only keeps its level."""
    signal = noise()
    mixed = Mixer(STEREO, RATE_HZ).mix(np.stack([signal, np.zeros_like(signal)]))
    assert np.allclose(mixed, signal, atol=1e-6)


def test_both_sides_of_a_call_are_heard() -> None:
    """Two people who take turns on two channels come out at the same level as soon as both have spoken."""
    pause = np.zeros(3 * RATE_HZ, dtype=np.float32)
    left = np.concatenate([noise(3), pause, noise(3, seed=2)])
    right = np.concatenate([pause, noise(3, seed=1), pause])
    mixed = Mixer(STEREO, RATE_HZ).mix(np.stack([left, right]))
    second, third = mixed[4 * RATE_HZ : 6 * RATE_HZ], mixed[7 * RATE_HZ :]
    assert level_of(second) > 0.04
    assert level_of(second) == pytest.approx(level_of(third), rel=0.1)


def test_uncorrelated_channels_are_averaged() -> None:
    """Ordinary stereo is the plain average, however wide it is."""
    block = np.stack([noise(seed=1), noise(seed=2)])
    assert np.allclose(Mixer(STEREO, RATE_HZ).mix(block), block.mean(axis=0), atol=1e-6)


def test_the_centre_leads_in_surround() -> None:
    """Speech in the centre stays in front of the same loud music in all five others; alone, the music is kept."""
    speech, music = noise(seed=1), noise(seed=2)
    block = np.stack([music, music, speech, music, music, music])
    mixed = Mixer(SURROUND, RATE_HZ).mix(block)
    share = float(np.dot(mixed, speech) / np.dot(speech, speech))
    assert 20 * np.log10(level_of(speech * share) / level_of(mixed - speech * share)) > 5
    only_music = np.stack([music, music, np.zeros_like(music), music, music, music])
    assert level_of(Mixer(SURROUND, RATE_HZ).mix(only_music)) == pytest.approx(level_of(music), rel=0.01)


def test_the_bass_channel_is_left_out() -> None:
    """LFE adds nothing to a surround mix, unless it is all there is."""
    weights = dict(zip(SURROUND, base_weights(SURROUND), strict=True))
    assert weights["LFE"] == 0
    assert weights["FC"] > 4 * weights["FL"] > 4 * weights["SL"]
    assert base_weights(("LFE",)).tolist() == [1.0]
    assert base_weights(("FL", "FR", "LFE")).tolist() == [1.0, 1.0, 0.0]


def test_unknown_layouts_count_evenly() -> None:
    """Channels without a place, or two in the same place, are averaged."""
    assert base_weights(("NONE",) * 6).tolist() == [1.0] * 6
    assert base_weights(("FC", "FC")).tolist() == [1.0, 1.0]
