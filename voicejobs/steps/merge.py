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

    No time lies outside 0..`duration_s`, no segment or word ends before it starts, and no word starts before the
    one before it in its segment. Segments of channels are interleaved by time, the channel on each segment and word.

    Args:
        pieces: shards of all channels, in any order.
        duration_s: length of the recording.
    """
    segments = [
        _placed(segment, window, duration_s, piece.channel)
        for piece in pieces
        for window, result in zip(piece.windows, piece.results, strict=True)
        for segment in result.segments
    ]
    # The sort is stable: segments of one channel that start at the same time keep the order of the engine.
    return tuple(sorted(segments, key=lambda segment: (segment.start_s, segment.channel or 0)))


def language_of(pieces: Sequence[Piece]) -> tuple[str | None, float | None]:
    """Return the language that most windows are in, and the highest probability it was told with.

    Windows without segments have no say, unless there are no others.
    """
    results = [result for piece in pieces for result in piece.results if result.language]
    results = [result for result in results if result.segments] or results
    if not results:
        return None, None
    votes: dict[str, int] = {}
    for result in results:
        votes[result.language or ""] = votes.get(result.language or "", 0) + 1
    language = max(votes, key=lambda code: votes[code])
    return language, max(one.language_probability or 0.0 for one in results if one.language == language)


def _placed(segment: Segment, window: Span, duration_s: float, channel: int | None) -> Segment:
    """Return the segment at its place in the recording, its times in order and inside."""
    moved = segment.shifted(samples_to_seconds(window.start_samples))
    start_s = _inside(moved.start_s, 0.0, duration_s)
    words: list[Word] = []
    earliest_s = 0.0
    for word in moved.words:
        earliest_s = _inside(word.start_s, earliest_s, duration_s)
        words.append(
            replace(word, start_s=earliest_s, end_s=_inside(word.end_s, earliest_s, duration_s), channel=channel)
        )
    end_s = _inside(moved.end_s, start_s, duration_s)
    return replace(moved, start_s=start_s, end_s=end_s, words=tuple(words), channel=channel)


def _inside(value_s: float, low_s: float, high_s: float) -> float:
    """Return `value_s` moved into `low_s`..`high_s`."""
    return min(max(value_s, low_s), max(high_s, low_s))
