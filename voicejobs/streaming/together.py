"""Segments that a job would decode in one window are decoded together once they are over.

A recogniser hears a phrase better beside its neighbours, but whoever follows a stream does not want to wait for them.
So each segment has its final result at once, and a revised one when the window is complete.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from voicejobs.audio.types import Segment, Span
from voicejobs.steps.plan import Speech
from voicejobs.steps.windows import WindowOptions
from voicejobs.streaming.endpoints import Utterance
from voicejobs.units import samples_to_seconds, seconds_to_samples


@dataclass(frozen=True, slots=True)
class Part:
    """Name a segment of a group: its number, its window, the speech in it."""

    segment_id: int
    window: Span
    speech: list[Speech]


class Together:
    """Gather segments until the next one fits no more into a window, or the pause after them is too long for one."""

    def __init__(self, options: WindowOptions) -> None:
        self._most = seconds_to_samples(options.max_window_s)
        self._gap = seconds_to_samples(options.max_gap_s)
        self._parts: list[Part] = []

    @property
    def start(self) -> int | None:
        """Return the first sample that a group may still need; None where there is no group."""
        return self._parts[0].window.start_samples if self._parts else None

    def add(self, utterance: Utterance) -> list[Part]:
        """Add a segment; return the group before it, if it does not belong to that, else nothing."""
        over = self.release(utterance.window.start_samples, utterance.window.end_samples)
        self._parts.append(Part(utterance.segment_id, utterance.window, utterance.speech))
        return over

    def release(self, start: int, end: int) -> list[Part]:
        """Return the group, if a segment with this start and end cannot belong to it, and forget it; else nothing."""
        if not self._parts:
            return []
        is_far = start - self._parts[-1].window.end_samples > self._gap
        if is_far or end - self._parts[0].window.start_samples > self._most:
            return self.finish()
        return []

    def finish(self) -> list[Part]:
        """Return the group, and forget it."""
        parts, self._parts = self._parts, []
        return parts


def window_of(parts: Sequence[Part], options: WindowOptions, end: int | None) -> Span:
    """Return the window of a group, up to the end of the stream where that is given and near, as a job does it."""
    window = Span(parts[0].window.start_samples, parts[-1].window.end_samples)
    if end is None or end - window.end_samples > seconds_to_samples(options.edge_s):
        return window
    wider = Span(window.start_samples, end)
    return wider if wider.length_samples <= seconds_to_samples(options.max_window_s) else window


def shares(segments: Sequence[Segment], parts: Sequence[Part]) -> list[list[Segment]]:
    """Return what was heard in each part: words go by their times, segments without words as a whole.

    Args:
        segments: of the whole group, in the time of the stream.
        parts: of the group, in order.
    """
    borders_s = [
        samples_to_seconds(one.window.end_samples + other.window.start_samples) / 2 for one, other in pairwise(parts)
    ]

    def part_at(start_s: float, end_s: float) -> int:
        return sum(border_s <= (start_s + end_s) / 2 for border_s in borders_s)

    found: list[list[Segment]] = [[] for _ in parts]
    for segment in segments:
        if not segment.words:
            found[part_at(segment.start_s, segment.end_s)].append(segment)
            continue
        for number, group in groupby(segment.words, key=lambda word: part_at(word.start_s, word.end_s)):
            words = tuple(group)
            if len(words) == len(segment.words):
                found[number].append(segment)
                continue
            text = "".join(word.text for word in words)
            piece = replace(segment, start_s=words[0].start_s, end_s=words[-1].end_s, text=text, words=words, tokens=())
            found[number].append(piece)
    return found
