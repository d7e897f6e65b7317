"""Join what was heard in the windows of a recording, its shards and its channels, to one list of segments."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from voicejobs.audio.types import Segment, Span, WindowResult, Word
from voicejobs.units import samples_to_seconds


@dataclass(frozen=True, slots=True)
class Piece:
    """Hold the windows of one shard and what was heard in them; `channel` is None where channels were mixed."""

    windows: Sequence[Span]
    results: Sequence[WindowResult]
    channel: int | None = None


def merge(pieces: Sequence[Piece], duration_s: float) -> tuple[Segment, ...]:
    """Return all segments, times from the start of the recording, ordered by start.

    No time lies outside 0..`duration_s` and nothing ends before it starts. In each channel no segment starts before
    the one before it, and words, of whichever segments, neither go backwards nor overlap; a segment holds its words.
    Segments of channels are interleaved by time, the channel on each segment and word.

    Args:
        pieces: shards of all channels, in any order.
        duration_s: length of the recording.
    """
    channels: dict[int | None, list[tuple[Span, WindowResult]]] = {}
    for piece in pieces:
        channels.setdefault(piece.channel, []).extend(zip(piece.windows, piece.results, strict=True))
    segments: list[Segment] = []
    for channel, heard in channels.items():
        heard.sort(key=lambda pair: pair[0].start_samples)
        moved = [
            segment.shifted(samples_to_seconds(window.start_samples))
            for window, result in heard
            for segment in result.segments
        ]
        segments += _in_order(moved, duration_s, channel)
    # The sort is stable: segments of one channel that start at the same time keep the order of the engine.
    return tuple(sorted(segments, key=lambda segment: (segment.start_s, segment.channel or 0)))


def language_of(pieces: Sequence[Piece]) -> tuple[str | None, float | None]:
    """Return the language that the windows vote for by probability, and the highest probability it was told with.

    The probability is None where the engine gives none. Windows without segments have no say, unless there are no
    others.
    """
    results = [result for piece in pieces for result in piece.results if result.language]
    results = [result for result in results if result.segments] or results
    if not results:
        return None, None
    votes: dict[str, float] = {}
    for result in results:
        sure = 1.0 if result.language_probability is None else result.language_probability
        votes[result.language or ""] = votes.get(result.language or "", 0.0) + sure
    language = max(votes, key=lambda code: votes[code])
    told = (one.language_probability for one in results if one.language == language)
    return language, max((sure for sure in told if sure is not None), default=None)


def _in_order(segments: Sequence[Segment], duration_s: float, channel: int | None) -> list[Segment]:
    """Return the segments of one channel with their times inside the recording, and in order."""
    placed: list[Segment] = []
    earliest_s = 0.0  # nothing that follows starts before
    for segment in segments:
        start_s = _inside(segment.start_s, earliest_s, duration_s)
        end_s = _inside(segment.end_s, start_s, duration_s)
        words: list[Word] = []
        for word in segment.words:
            word_s = _inside(word.start_s, words[-1].start_s if words else start_s, duration_s)
            if words:
                words[-1] = replace(words[-1], end_s=min(words[-1].end_s, word_s))
            end = _inside(word.end_s, word_s, duration_s)
            words.append(replace(word, start_s=word_s, end_s=end, channel=channel))
        if words:
            start_s, end_s = words[0].start_s, words[-1].end_s
        earliest_s = words[-1].start_s if words else start_s
        if placed:
            placed[-1] = _ended_by(placed[-1], start_s)
        placed.append(replace(segment, start_s=start_s, end_s=end_s, words=tuple(words), channel=channel))
    return placed


def _ended_by(segment: Segment, limit_s: float) -> Segment:
    """Return the segment with its end, and that of its last word, not after `limit_s`, where the next one starts."""
    if segment.end_s <= limit_s:
        return segment
    words = tuple(replace(word, end_s=min(word.end_s, limit_s)) for word in segment.words)
    return replace(segment, end_s=limit_s, words=words)


def _inside(value_s: float, low_s: float, high_s: float) -> float:
    """Return `value_s` moved into `low_s`..`high_s`."""
    return min(max(value_s, low_s), max(high_s, low_s))
