"""Times as subtitles write them, from whole milliseconds."""

_MS_PER_HOUR = 3_600_000
_MS_PER_MINUTE = 60_000
_MS_PER_SECOND = 1000


def srt_time(milliseconds: int) -> str:
    """Return `HH:MM:SS,mmm`; hours take more digits where they need them."""
    return _clock(milliseconds, ",")


def vtt_time(milliseconds: int) -> str:
    """Return `HH:MM:SS.mmm`, hours always written."""
    return _clock(milliseconds, ".")


def _clock(milliseconds: int, point: str) -> str:
    """Split whole milliseconds into the parts of a clock."""
    hours, rest = divmod(milliseconds, _MS_PER_HOUR)
    minutes, rest = divmod(rest, _MS_PER_MINUTE)
    seconds, rest = divmod(rest, _MS_PER_SECOND)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{point}{rest:03d}"
