"""Seconds and samples: samples are the truth."""

from hypothesis import given, settings
from hypothesis import strategies as st

from voicejobs.units import round_ms, samples_to_seconds, seconds_to_samples

DAYS_SAMPLES = 48 * 3600 * 16_000
samples = st.integers(0, DAYS_SAMPLES)
seconds = st.floats(0, 48 * 3600)


@settings(deadline=None)
@given(samples, st.sampled_from([8000, 16_000, 22_050, 44_100, 48_000]))
def test_samples_survive_the_way_over_seconds(count: int, rate_hz: int) -> None:
    """A sample index turned into seconds and back is the same, at any rate."""
    assert seconds_to_samples(samples_to_seconds(count, rate_hz), rate_hz) == count


@settings(deadline=None)
@given(seconds)
def test_the_nearest_sample_is_found(time_s: float) -> None:
    """No sample lies nearer to a time than the one that is found."""
    assert abs(samples_to_seconds(seconds_to_samples(time_s)) - time_s) <= 0.5 / 16_000 + 1e-9


@settings(deadline=None)
@given(seconds, seconds)
def test_rounding_keeps_the_order(one_s: float, other_s: float) -> None:
    """Rounded to milliseconds an earlier time is never later than a later one."""
    first_s, second_s = sorted((one_s, other_s))
    assert round_ms(first_s) <= round_ms(second_s)
    assert seconds_to_samples(first_s) <= seconds_to_samples(second_s)


@settings(deadline=None)
@given(seconds)
def test_rounding_is_near_and_happens_once(time_s: float) -> None:
    """A rounded time is at most half a millisecond off, and rounding it again changes nothing."""
    assert abs(round_ms(time_s) - time_s) <= 0.0005 + 1e-9
    assert round_ms(round_ms(time_s)) == round_ms(time_s)


def test_halves_are_rounded_up() -> None:
    """Halves go up, whatever stands before them: not to the even neighbour."""
    assert [seconds_to_samples(value / 2, 1) for value in (1, 3, 5)] == [1, 2, 3]
    assert [round_ms(value / 2000) for value in (1, 3, 5)] == [0.001, 0.002, 0.003]
