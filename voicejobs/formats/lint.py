"""What is wrong with subtitles, by the numbers of a profile."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from voicejobs.formats.clean import is_blank
from voicejobs.formats.profiles import Profile
from voicejobs.formats.subtitles import ReadCue, SubtitleFile
from voicejobs.formats.timestamps import srt_time
from voicejobs.formats.widths import measure

CATEGORIES = (
    "syntax", "empty", "order", "overlap", "gap", "too-short", "too-long", "too-many-lines", "line-length",
    "reading-speed",
)  # fmt: skip
"""What a finding can be about."""

TOLERANCE_MS = 1
"""Programs round frames to milliseconds in different ways."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Hold one thing that is wrong.

    Args:
        category: one of `CATEGORIES`.
        line: number of the line in the file, from 1.
        cue: number of the cue, from 1; None for lines outside of cues.
        start_ms: when the cue begins.
        message: what is wrong, with the figures.
    """

    category: str
    line: int
    cue: int | None
    start_ms: int | None
    message: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def lint(file: SubtitleFile, profile: Profile) -> list[Finding]:
    """Return everything that is wrong, by line."""
    found = [
        Finding("syntax", line, None, None, f"this line belongs to no cue: {text.strip()[:60]!r}")
        for line, text in file.stray
    ]
    for cue in file.cues:
        found += [_finding(cue, category, message) for category, message in _of_cue(cue, profile)]
    for earlier, later in pairwise(file.cues):
        found += [_finding(later, category, message) for category, message in _of_pair(earlier, later, profile)]
    return sorted(found, key=lambda one: (one.line, CATEGORIES.index(one.category)))


def _finding(cue: ReadCue, category: str, message: str) -> Finding:
    """Return a finding about a cue."""
    return Finding(category, cue.line, cue.number, cue.start_ms, message)


def _of_cue(cue: ReadCue, profile: Profile) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a cue by itself."""
    if all(is_blank(line) for line in cue.lines):
        yield "empty", "the cue holds no text"
    shown = cue.end_ms - cue.start_ms
    if shown <= 0:
        yield "too-short", f"it ends at {srt_time(cue.end_ms)}, not after its start"
    elif shown < profile.shortest_ms - TOLERANCE_MS:
        yield "too-short", f"shown for {shown / 1000:.3f} s, at least {profile.shortest_ms / 1000:.3f} s"
    elif shown > profile.longest_ms + TOLERANCE_MS:
        yield "too-long", f"shown for {shown / 1000:.3f} s, at most {profile.longest_ms / 1000:.3f} s"
    yield from _of_text(cue.lines, shown, profile)


def _of_text(lines: Sequence[str], shown_ms: int, profile: Profile) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the text of a cue."""
    if len(lines) > profile.lines:
        yield "too-many-lines", f"{len(lines)} lines, at most {profile.lines}"
    measures = [measure(line.strip()) for line in lines]
    for number, (columns, _) in enumerate(measures, start=1):
        if columns > profile.line_columns:
            yield "line-length", f"line {number} has {columns} columns, at most {profile.line_columns}"
    chars = sum(count for _, count in measures)
    if shown_ms > 0 and chars * 1000 > profile.chars_per_second * (shown_ms + TOLERANCE_MS):
        speed = chars * 1000 / shown_ms
        yield "reading-speed", f"{speed:.1f} characters per second, at most {profile.chars_per_second:g}"


def _of_pair(earlier: ReadCue, later: ReadCue, profile: Profile) -> Iterator[tuple[str, str]]:
    """Yield what is wrong between two cues that follow each other."""
    pause = later.start_ms - earlier.end_ms
    if later.start_ms < earlier.start_ms:
        yield "order", f"it starts before the cue before it, which starts at {srt_time(earlier.start_ms)}"
    elif pause < 0:
        yield "overlap", f"the cue before it ends {-pause / 1000:.3f} s after this one starts"
    elif pause < profile.gap_ms - TOLERANCE_MS:
        yield "gap", f"{pause / 1000:.3f} s after the cue before it, at least {profile.gap_ms / 1000:.3f} s"
