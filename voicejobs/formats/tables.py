"""Segments as rows: tab-separated as whisper writes them, and comma-separated for spreadsheets."""

import csv
import io
from collections.abc import Iterator

from voicejobs.audio.types import Segment, Transcript
from voicejobs.formats.clean import channel_label, is_blank, one_line
from voicejobs.formats.moments import Span, last_moment, milliseconds
from voicejobs.formats.options import RenderOptions

# A spreadsheet takes a cell that begins with one of these for a formula; full-width forms count for some.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def write_tsv(transcript: Transcript, options: RenderOptions) -> bytes:
    """Return `start`, `end` and `text` with times in whole milliseconds; tabs and breaks in the text are blanks."""
    rows = [f"{start}\t{end}\t{text}\n" for _, (start, end), text in spoken(transcript)]
    return ("start\tend\ttext\n" + "".join(rows)).encode()


def write_csv(transcript: Transcript, options: RenderOptions) -> bytes:
    """Return `start`, `end`, `channel` and `text` with times in seconds; no cell can be taken for a formula."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(["start", "end", "channel", "text"])
    for segment, (start, end), text in spoken(transcript):
        channel = "" if segment.channel is None else channel_label(segment.channel)
        writer.writerow([f"{start / 1000:.3f}", f"{end / 1000:.3f}", channel, _guarded(text)])
    return target.getvalue().encode()


def spoken(transcript: Transcript) -> Iterator[tuple[Segment, Span, str]]:
    """Yield the segments that say something, with times inside the recording, `start <= end`, and text on one line.

    Segments may overlap here, as channels do. A time that the engine does not say is that of the neighbour.
    """
    limit = last_moment(transcript)
    now = 0
    for segment in transcript.segments:
        start = milliseconds(segment.start_s, limit)
        start = now if start is None else start
        end = milliseconds(segment.end_s, limit)
        now = start if end is None else max(start, end)
        text = one_line(segment.text)
        if not is_blank(text):
            yield segment, (start, now), text


def _guarded(text: str) -> str:
    """Return a text with a quote before what looks like the start of a formula."""
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
