"""SubRip subtitles."""

import codecs

from voicejobs.audio.types import Transcript
from voicejobs.formats.clean import channel_label, one_line
from voicejobs.formats.cues import Cue, cues_of
from voicejobs.formats.options import RenderOptions
from voicejobs.formats.timestamps import srt_time


def write_srt(transcript: Transcript, options: RenderOptions) -> bytes:
    """Return UTF-8 cues numbered from 1, `Channel 1: ...` where channels were kept apart; empty without speech."""
    blocks = [
        f"{number}\n{srt_time(cue.start_ms)} --> {srt_time(cue.end_ms)}\n{_text(cue, options)}\n"
        for number, cue in enumerate(cues_of(transcript, options, _clean), start=1)
    ]
    content = "\n".join(blocks)
    if options.srt_crlf:
        content = content.replace("\n", "\r\n")
    return (codecs.BOM_UTF8 if options.srt_bom else b"") + content.encode()


def _clean(text: str) -> str:
    """Return a text with the arrow that separates times broken up: SRT has no way to escape it."""
    return one_line(text).replace("-->", "-- >")


def _text(cue: Cue, options: RenderOptions) -> str:
    """Return the lines, the first behind the name of the channel."""
    if options.channel_labels and cue.channel is not None:
        return f"{channel_label(cue.channel)}: {cue.text}"
    return cue.text
