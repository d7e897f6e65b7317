"""Praat TextGrid, long form: tiers of segments and of words for each channel, without gaps."""

from collections.abc import Sequence

from voicejobs.audio.types import Transcript
from voicejobs.formats.channels import by_channel
from voicejobs.formats.clean import channel_label, one_line
from voicejobs.formats.moments import Span, last_moment, spread, steady
from voicejobs.formats.options import RenderOptions
from voicejobs.formats.pieces import words_of
from voicejobs.piecewise import encoded

Interval = tuple[int, int, str]
"""Start and end in milliseconds, and what is said."""


def write_textgrid(transcript: Transcript, options: RenderOptions) -> bytes:
    """Return UTF-8 interval tiers `segments` and `words`, of each channel its own where channels were kept apart.

    The intervals of a tier touch, those without speech are empty, and each is a millisecond long at least.
    """
    limit = last_moment(transcript)
    tiers: list[tuple[str, list[Interval]]] = []
    for channel, segments in (by_channel(transcript.segments) or {None: []}).items():
        spans = steady([(segment.start_s, segment.end_s) for segment in segments], limit)
        texts = [one_line(segment.text) for segment in segments]
        words = words_of(segments, limit)
        mark = "" if channel is None else f" - {channel_label(channel)}"
        tiers.append((f"segments{mark}", _gapless(spans, texts, limit)))
        tiers.append((f"words{mark}", _gapless([word.span for word in words], [word.text for word in words], limit)))
    lines = [
        'File type = "ooTextFile"', 'Object class = "TextGrid"', "", f"xmin = {_seconds(0)}",
        f"xmax = {_seconds(limit)}", "tiers? <exists>", f"size = {len(tiers)}", "item []:",
    ]  # fmt: skip
    for number, (name, intervals) in enumerate(tiers, start=1):
        lines += _tier(number, name, intervals, limit)
    return encoded(f"{line}\n" for line in lines)


def _gapless(spans: Sequence[Span], texts: Sequence[str], limit: int) -> list[Interval]:
    """Return intervals from 0 to `limit` that touch; more than there are milliseconds join in the last."""
    spoken = [(span, text) for span, text in zip(spans, texts, strict=True) if text]
    if len(spoken) > limit:
        last_span = spoken[limit - 1][0]
        spoken = [*spoken[: limit - 1], (last_span, " ".join(text for _, text in spoken[limit - 1 :]))]
    starts = spread([start for (start, _), _ in spoken], limit, 1)
    intervals: list[Interval] = []
    now = 0
    for start, after, ((_, end), text) in zip(starts, [*starts[1:], limit], spoken, strict=False):
        if start > now:
            intervals.append((now, start, ""))
        now = min(max(end, start + 1), after)
        intervals.append((start, now, text))
    return [*intervals, (now, limit, "")] if now < limit else intervals


def _tier(number: int, name: str, intervals: Sequence[Interval], limit: int) -> list[str]:
    """Return the lines of a tier."""
    lines = [
        f"    item [{number}]:", '        class = "IntervalTier"', f"        name = {_quoted(name)}",
        f"        xmin = {_seconds(0)}", f"        xmax = {_seconds(limit)}",
        f"        intervals: size = {len(intervals)}",
    ]  # fmt: skip
    for index, (start, end, text) in enumerate(intervals, start=1):
        lines += [
            f"        intervals [{index}]:", f"            xmin = {_seconds(start)}",
            f"            xmax = {_seconds(end)}", f"            text = {_quoted(text)}",
        ]  # fmt: skip
    return lines


def _quoted(text: str) -> str:
    """Return a string as Praat reads it: quotes doubled."""
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _seconds(milliseconds: int) -> str:
    """Return milliseconds as seconds."""
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"
