"""Segments by channel."""

from collections.abc import Sequence

from voicejobs.audio.types import Segment


def by_channel(segments: Sequence[Segment]) -> dict[int | None, list[Segment]]:
    """Return the segments of each channel in their order; None is the key where channels were mixed."""
    found: dict[int | None, list[Segment]] = {}
    for segment in segments:
        found.setdefault(segment.channel, []).append(segment)
    return found
