"""Seconds and samples: samples are the truth, seconds a view, and there is one rounding rule."""

SAMPLE_RATE_HZ = 16_000
"""The rate of all decoded audio inside voicejobs; whisper and silero take nothing else."""

MILLISECONDS_PER_SECOND = 1000


def seconds_to_samples(seconds: float, rate_hz: int = SAMPLE_RATE_HZ) -> int:
    """Return the sample index nearest to `seconds`, halves rounded up."""
    return int(seconds * rate_hz + 0.5)


def samples_to_seconds(samples: int, rate_hz: int = SAMPLE_RATE_HZ) -> float:
    """Return the time of a sample index in seconds, not rounded."""
    return samples / rate_hz


def round_ms(seconds: float) -> float:
    """Return `seconds` rounded to whole milliseconds, halves rounded up, so that order is kept."""
    return int(seconds * MILLISECONDS_PER_SECOND + 0.5) / MILLISECONDS_PER_SECOND
