"""Resampling: the length is exact, the pitch stays, blocks leave no seams."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicejobs.audio.mix import Samples
from voicejobs.audio.resample import FrameResampler, Resampler, _filters

RATES_HZ = [8000, 11_025, 22_050, 32_000, 44_100, 48_000, 96_000]


@pytest.fixture
def _av() -> None:
    """Skip where PyAV is missing."""
    pytest.importorskip("av", reason="the extra `worker` is not installed")


def in_frames(resampler: FrameResampler | Resampler, signal: Samples, size: int) -> Samples:
    """Return what comes out where frames of one size go in."""
    parts = [resampler.feed(signal[start : start + size]) for start in range(0, len(signal), size)]
    return np.concatenate([*parts, resampler.finish()])


def noise(rate_hz: int, seconds: float = 2.0) -> Samples:
    """Return noise that fills the whole range of frequencies."""
    samples = np.random.default_rng(3).uniform(-0.5, 0.5, round(rate_hz * seconds))
    return samples.astype(np.float32)


@pytest.mark.usefixtures("_av")
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


@pytest.mark.usefixtures("_av")
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


@pytest.mark.usefixtures("_av")
@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_the_decoder_s_resampler_leaves_no_seams(rate_hz: int) -> None:
    """Frames of 20 ms through libswresample give what the whole signal at once gives."""
    signal = noise(rate_hz)
    whole = in_frames(Resampler(rate_hz), signal, len(signal))
    assert np.abs(in_frames(Resampler(rate_hz), signal, rate_hz // 50) - whole).max() <= 1e-6


@pytest.mark.parametrize("rate_hz", [*RATES_HZ, 47_999])
@pytest.mark.parametrize("size_s", [0.0005, 0.02, 0.13])
def test_frames_leave_no_seams(rate_hz: int, size_s: float) -> None:
    """Whatever the size of the frames, the result equals that of the whole signal at once to 1e-6."""
    signal = noise(rate_hz)
    whole = in_frames(FrameResampler(rate_hz), signal, len(signal))
    cut = in_frames(FrameResampler(rate_hz), signal, max(1, round(rate_hz * size_s)))
    assert len(cut) == len(whole)
    assert np.abs(cut - whole).max() <= 1e-6


@settings(deadline=None, max_examples=40)
@given(
    from_hz=st.sampled_from([*RATES_HZ, 16_000, 47_999]),
    to_hz=st.sampled_from([8000, 16_000, 22_050, 24_000, 48_000]),
    lengths=st.lists(st.integers(0, 5000), max_size=5),
)
def test_the_length_of_frames_is_exact(from_hz: int, to_hz: int, lengths: list[int]) -> None:
    """However the signal is cut, `ceil(samples * to / from)` samples come out, between any two rates."""
    resampler = FrameResampler(from_hz, to_hz)
    count = sum(len(resampler.feed(np.zeros(length, np.float32))) for length in lengths)
    assert count + len(resampler.finish()) == -(-sum(lengths) * to_hz // from_hz)


@pytest.mark.parametrize("from_hz", [*RATES_HZ, 47_999])
def test_a_tone_stays_a_tone_and_in_its_place(from_hz: int) -> None:
    """A 1 kHz tone in 20 ms frames equals the tone made at 16 kHz, without a shift in time."""
    signal = np.sin(2 * np.pi * 1000 * np.arange(2 * from_hz) / from_hz).astype(np.float32)
    result = in_frames(FrameResampler(from_hz), signal, from_hz // 50)
    wanted = np.sin(2 * np.pi * 1000 * np.arange(len(result)) / 16_000)
    assert np.abs(result - wanted)[500:-500].max() < 2e-3


@pytest.mark.parametrize("from_hz", [32_000, 44_100, 48_000])
def test_what_16_khz_cannot_hold_is_gone(from_hz: int) -> None:
    """A tone at 9 kHz, which would come back as one at 7 kHz, is 60 dB weaker."""
    signal = np.sin(2 * np.pi * 9000 * np.arange(from_hz) / from_hz).astype(np.float32)
    result = in_frames(FrameResampler(from_hz), signal, from_hz // 50)
    assert np.abs(result)[500:-500].max() < 1e-3


def test_the_filter_is_made_once_for_each_pair_of_rates() -> None:
    """A hundred streams at 44.1 kHz share one table, which nobody can write."""
    _filters.cache_clear()
    for _ in range(100):
        FrameResampler(44_100)
    assert _filters.cache_info().misses == 1
    assert not _filters(160, 441).flags.writeable


def test_odd_rates_take_no_large_table() -> None:
    """Rates without a common divisor have a table of at most some megabytes."""
    assert _filters(16_000, 47_999).nbytes < 4_000_000
