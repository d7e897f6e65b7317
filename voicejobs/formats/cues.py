"""Segments as subtitle cues: whatever times an engine gives, the cues are in order and apart.

One cue holds one segment. Engines give segments that overlap, have no length, end before they start or pass the end of
the recording; players differ in what they do with such cues, so none is ever written. Text is never dropped for it.
"""

import math
from dataclasses import dataclass

from voicejobs.audio.types import Segment, Transcript
from voicejobs.formats.clean import one_line

SHORTEST_MS = 200
"""A cue gets at least this, by moving the next one, where the recording has the room."""

UNKNOWN_LENGTH_MS = 833
"""A cue whose segment has no length gets this at most: 5/6 s, the shortest that a viewer can read."""


@dataclass(frozen=True, slots=True)
class Cue:
    """Hold one subtitle; times in whole milliseconds, so that rounding cannot undo their order."""

    start_ms: int
    end_ms: int
    text: str
    channel: int | None = None


def cues_of(transcript: Transcript) -> list[Cue]:
    """Return the cues: starts rise, `end > start`, none overlaps the next, none passes the recording.

    The order is that of the segments, so that subtitles read like the text. A recording has room for one cue in each
    of its milliseconds (and for one in any case): what is beyond that joins the last.
    """
    spoken = [(segment, text) for segment in transcript.segments if (text := one_line(segment.text))]
    if not spoken:
        return []
    last_ms = max(1, math.floor(_finite(transcript.duration_s) * 1000))
    if len(spoken) > last_ms:
        tail = " ".join(text for _, text in spoken[last_ms - 1 :])
        spoken = [*spoken[: last_ms - 1], (spoken[last_ms - 1][0], tail)]
    starts = _starts([segment for segment, _ in spoken], last_ms)
    limits = [*starts[1:], last_ms]
    return [
        Cue(start, _end(segment, start, limit), text, segment.channel)
        for (segment, text), start, limit in zip(spoken, starts, limits, strict=True)
    ]


def _starts(segments: list[Segment], last_ms: int) -> list[int]:
    """Return rising starts, each as near to that of its segment as the others allow."""
    apart = min(SHORTEST_MS, last_ms // len(segments))
    starts: list[int] = []
    for segment in segments:
        earliest = starts[-1] + apart if starts else 0
        wanted = _milliseconds(segment.start_s, last_ms)
        starts.append(earliest if wanted is None else max(wanted, earliest))
    latest = last_ms
    for index in range(len(starts) - 1, -1, -1):
        latest = min(starts[index], latest - apart)
        starts[index] = latest
    return starts


def _end(segment: Segment, start: int, limit: int) -> int:
    """Return the end of a cue that starts at `start`, `limit` at most."""
    wanted = _milliseconds(segment.end_s, limit)
    spoken_from = _milliseconds(segment.start_s, limit)
    if wanted is None or wanted <= (start if spoken_from is None else spoken_from):
        wanted = start + UNKNOWN_LENGTH_MS
    return min(max(wanted, start + SHORTEST_MS), limit)


def _milliseconds(seconds: float | None, limit: int) -> int | None:
    """Round to milliseconds within `0..limit`; None where the engine does not say."""
    if seconds is None or math.isnan(seconds):
        return None
    return int(max(0.0, min(float(seconds) * 1000, float(limit))) + 0.5)


def _finite(seconds: float) -> float:
    """Return a duration that can be counted, 0 for none."""
    return float(seconds) if math.isfinite(seconds) and seconds > 0 else 0.0
