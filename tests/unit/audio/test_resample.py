"""Resampling: the length is exact, the pitch stays, blocks leave no seams."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicejobs.audio.resample import Resampler

pytest.importorskip("av", reason="the extra `worker` is not installed")


@settings(deadline=None, max_examples=30)
@given(
    rate_hz=st.sampled_from([8000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000, 384_000]),
    lengths=st.lists(st.integers(0, 20_000), max_size=5),
)
def test_the_length_is_exact(rate_hz: int, lengths: list[int]) -> None:
    """However the signal is cut, `ceil(samples * 16000 / rate)` samples come out."""
    resampler = Resampler(rate_hz)
    count = sum(len(resampler.feed(np.zeros(length, dtype=np.float32))) for length in lengths)
    count += len(resampler.finish())
    assert count == -(-sum(lengths) * 16_000 // rate_hz)


@pytest.mark.parametrize("rate_hz", [8000, 44_100, 48_000, 96_000])
def test_a_tone_comes_out_as_the_same_tone(rate_hz: int) -> None:
    """A 440 Hz tone resampled in blocks equals the tone made at 16 kHz, seams included."""
    times_s = np.arange(3 * rate_hz) / rate_hz
    signal = np.sin(2 * np.pi * 440 * times_s).astype(np.float32)
    resampler = Resampler(rate_hz)
    parts = [resampler.feed(part) for part in np.array_split(signal, 7)]
    result = np.concatenate([*parts, resampler.finish()])
    wanted = np.sin(2 * np.pi * 440 * np.arange(len(result)) / 16_000)
    assert np.abs(result - wanted)[500:-500].max() < 2e-3
