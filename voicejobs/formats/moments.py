"""Times of the engine as whole milliseconds: inside the recording, in order, and never NaN.

Everything that writes times starts from here, and rounds once: halves up, so that rounding cannot undo an order.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence

from voicejobs.audio.types import Transcript

Span = tuple[int, int]
"""A start and an end in milliseconds, `start <= end`."""


def last_moment(transcript: Transcript) -> int:
    """Return the end of the recording in whole milliseconds, 1 at least."""
    duration_s = float(transcript.duration_s)
    if not math.isfinite(duration_s) or duration_s <= 0:
        return 1
    return max(1, math.floor(duration_s * 1000))


def milliseconds(seconds: float | None, limit: int) -> int | None:
    """Round to milliseconds within `0..limit`; None where the engine does not say."""
    if seconds is None or not math.isfinite(seconds):
        return None
    return int(max(0.0, min(float(seconds) * 1000, float(limit))) + 0.5)


def steady(times: Sequence[tuple[float | None, float | None]], limit: int) -> list[Span]:
    """Return spans whose starts never fall and that do not overlap, as near to the times given as can be.

    The longest run of starts that are in order is believed; the others, and what is no number, lie between their
    neighbours. So one wild time does not move all that comes after it.
    """
    starts = [milliseconds(start, limit) for start, _ in times]
    believed = _longest_rising(starts)
    following = _following(starts, believed, limit)
    spans: list[Span] = []
    now = 0
    for index, (start, (_, end_s)) in enumerate(zip(starts, times, strict=True)):
        moment = start if start is not None and index in believed else min(now, following[index])
        end = milliseconds(end_s, limit)
        now = moment if end is None else max(moment, end)
        spans.append((moment, now))
    nexts = [*(start for start, _ in spans[1:]), limit]
    return [(start, min(end, after)) for (start, end), after in zip(spans, nexts, strict=False)]


def _following(starts: Sequence[int | None], believed: set[int], limit: int) -> list[int]:
    """Return for each index the first believed start at it or after it."""
    following = [limit] * len(starts)
    latest = limit
    for index in range(len(starts) - 1, -1, -1):
        start = starts[index]
        if start is not None and index in believed:
            latest = start
        following[index] = latest
    return following


def _longest_rising(starts: Sequence[int | None]) -> set[int]:
    """Return the indices of a longest subsequence that never falls, in n log n."""
    tails: list[int] = []
    tail_indices: list[int] = []
    before: list[int] = [-1] * len(starts)
    for index, start in enumerate(starts):
        if start is None:
            continue
        place = bisect_right(tails, start)
        before[index] = tail_indices[place - 1] if place else -1
        tails[place : place + 1] = [start]
        tail_indices[place : place + 1] = [index]
    found: set[int] = set()
    index = tail_indices[-1] if tail_indices else -1
    while index >= 0:
        found.add(index)
        index = before[index]
    return found


def spread(starts: Sequence[int], limit: int, apart: int) -> list[int]:
    """Return starts that rise by `apart` at least and leave as much before `limit`, moved as little as that takes.

    `limit` must have the room: `len(starts) * apart` at least.
    """
    moved: list[int] = []
    for start in starts:
        moved.append(max(start, moved[-1] + apart) if moved else start)
    latest = limit
    for index in range(len(moved) - 1, -1, -1):
        latest = min(moved[index], latest - apart)
        moved[index] = latest
    return moved
