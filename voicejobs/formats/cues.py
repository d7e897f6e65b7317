"""A transcript as subtitle cues: whatever times an engine gives, the cues are in order and apart.

Engines give times that overlap, have no length, end before they start or pass the end of the recording; players differ
in what they do with such cues, so none is ever written. Text is never dropped for it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from voicejobs.audio.types import Segment, Transcript
from voicejobs.formats.breaks import Breaks
from voicejobs.formats.channels import by_channel
from voicejobs.formats.clean import channel_label, is_blank, one_line
from voicejobs.formats.layout import Draft, lay_out
from voicejobs.formats.moments import last_moment, milliseconds, spread
from voicejobs.formats.options import RenderOptions
from voicejobs.formats.pieces import Clean, breakable, words_of
from voicejobs.formats.profiles import Profile, profile_of
from voicejobs.formats.widths import measure

SHORTEST_MS = 200
"""A cue gets at least this, by moving the next one, where the recording has the room."""

LATEST_MS = 1500
"""A cue begins at most this much after its speech, and only where another channel speaks at the same time."""

UNKNOWN_LENGTH_MS = 833
"""A cue whose segment has no length gets this at most: 5/6 s, the shortest that a viewer can read."""


@dataclass(frozen=True, slots=True)
class Cue:
    """Hold one subtitle; times in whole milliseconds, so that rounding cannot undo their order."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]
    channel: int | None = None

    @property
    def text(self) -> str:
        """Return the lines as one text."""
        return "\n".join(self.lines)


def cues_of(transcript: Transcript, options: RenderOptions, clean: Clean = one_line) -> list[Cue]:
    """Return the cues: starts rise, `end > start`, none overlaps the next, none passes the recording.

    A recording has room for one cue in each of its milliseconds (and for one in any case): the lines of those beyond
    that join the last.

    Args:
        transcript: its words, or its segments where it has none.
        options: the profile and its limits; with `plain` one cue holds one segment, in their order.
        clean: makes a text one line, as the format can hold it.
    """
    profile = profile_of(options, transcript.language)
    if profile is None:
        return _segment_cues(transcript, clean)
    limit = last_moment(transcript)
    breaks = Breaks(transcript.language)
    drafts: list[tuple[Draft, int | None]] = []
    for channel, segments in by_channel(transcript.segments).items():
        label = f"{channel_label(channel)}: " if channel is not None and options.channel_labels else ""
        pieces = breakable(words_of(segments, limit, clean))
        drafts += [(draft, channel) for draft in lay_out(pieces, profile, breaks, measure(label)[0], limit)]
    drafts.sort(key=lambda one: one[0].start_ms)  # stable: each channel is in order already
    cues = [Cue(draft.start_ms, draft.end_ms, draft.lines, channel) for draft, channel in drafts]
    return _timed(_bounded(cues, limit), profile, limit)


def _bounded(cues: list[Cue], limit: int) -> list[Cue]:
    """Return no more cues than there are milliseconds."""
    if len(cues) <= limit:
        return cues
    lines = tuple(line for cue in cues[limit - 1 :] for line in cue.lines)
    return [*cues[: limit - 1], replace(cues[limit - 1], lines=lines)]


def _timed(cues: list[Cue], profile: Profile, limit: int) -> list[Cue]:
    """Return cues that are apart, long enough to be read where there is room, and without flicker between them."""
    if not cues:
        return []
    starts = spread(_in_turn(cues, profile, limit), limit, min(SHORTEST_MS, limit // len(cues)))
    last = replace(profile, gap_ms=0, close_below_ms=0)
    rules = [profile] * (len(cues) - 1) + [last]
    return [
        replace(cue, start_ms=start, end_ms=_readable_end(cue, start, after, rule))
        for cue, start, after, rule in zip(cues, starts, [*starts[1:], limit], rules, strict=True)
    ]


def _in_turn(cues: Sequence[Cue], profile: Profile, limit: int) -> list[int]:
    """Return the starts; a channel that falls into the word of another waits a little, that both can be read."""
    starts: list[int] = []
    for earlier, cue, later in zip([None, *cues], cues, [*cues[1:], None], strict=False):
        start = cue.start_ms
        if earlier is not None and earlier.channel != cue.channel:
            read = starts[-1] + min(_needed_ms(earlier, profile), earlier.end_ms - earlier.start_ms) + profile.gap_ms
            after = limit if later is None else later.start_ms
            start = max(start, min(read, start + LATEST_MS, after - profile.shortest_ms - profile.gap_ms))
        starts.append(max([start, *starts[-1:]]))
    return starts


def _needed_ms(cue: Cue, profile: Profile) -> int:
    """Return how long a cue is to be shown, that it can be read."""
    chars = sum(measure(line)[1] for line in cue.lines)
    return max(profile.shortest_ms, math.ceil(chars * 1000 / profile.chars_per_second))


def _readable_end(cue: Cue, start_ms: int, after_ms: int, profile: Profile) -> int:
    """Return the end of a cue when the next begins at `after_ms`: later than its speech only into a silence."""
    latest = max(after_ms - profile.gap_ms, min(after_ms, start_ms + SHORTEST_MS))
    end = max(cue.end_ms, start_ms + _needed_ms(cue, profile))
    if after_ms - end < profile.close_below_ms:
        end = latest
    return min(end, latest, start_ms + profile.longest_ms)


def _segment_cues(transcript: Transcript, clean: Clean) -> list[Cue]:
    """Return a cue for each segment, in the order of the segments, so that subtitles read like the text."""
    spoken = [(segment, text) for segment in transcript.segments if not is_blank(text := clean(segment.text))]
    if not spoken:
        return []
    limit = last_moment(transcript)
    cues = _bounded([Cue(0, 0, (text,), segment.channel) for segment, text in spoken], limit)
    segments = [segment for segment, _ in spoken[: len(cues)]]
    starts = _segment_starts(segments, limit)
    return [
        replace(cue, start_ms=start, end_ms=_segment_end(segment, start, after))
        for cue, segment, start, after in zip(cues, segments, starts, [*starts[1:], limit], strict=True)
    ]


def _segment_starts(segments: Sequence[Segment], limit: int) -> list[int]:
    """Return rising starts, each as near to that of its segment as the others allow."""
    apart = min(SHORTEST_MS, limit // len(segments))
    starts: list[int] = []
    for segment in segments:
        earliest = starts[-1] + apart if starts else 0
        wanted = milliseconds(segment.start_s, limit)
        starts.append(earliest if wanted is None else max(wanted, earliest))
    return spread(starts, limit, apart)


def _segment_end(segment: Segment, start: int, limit: int) -> int:
    """Return the end of a cue that starts at `start`, `limit` at most."""
    wanted = milliseconds(segment.end_s, limit)
    spoken_from = milliseconds(segment.start_s, limit)
    if wanted is None or wanted <= (start if spoken_from is None else spoken_from):
        wanted = start + UNKNOWN_LENGTH_MS
    return min(max(wanted, start + SHORTEST_MS), limit)
