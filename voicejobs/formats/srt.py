"""SubRip subtitles."""

import codecs

from voicejobs.audio.types import Transcript
from voicejobs.formats.clean import channel_label
from voicejobs.formats.cues import Cue, cues_of
from voicejobs.formats.options import RenderOptions
from voicejobs.formats.timestamps import srt_time


def write_srt(transcript: Transcript, options: RenderOptions) -> bytes:
    """Return UTF-8 cues numbered from 1, `Channel 1: ...` where channels were kept apart; empty without speech."""
    blocks = [
        f"{number}\n{srt_time(cue.start_ms)} --> {srt_time(cue.end_ms)}\n{_text(cue, options)}\n"
        for number, cue in enumerate(cues_of(transcript), start=1)
    ]
    content = "\n".join(blocks)
    if options.srt_crlf:
        content = content.replace("\n", "\r\n")
    return (codecs.BOM_UTF8 if options.srt_bom else b"") + content.encode()


def _text(cue: Cue, options: RenderOptions) -> str:
    """Return the text with the arrow that separates times broken up: SRT has no way to escape it."""
    text = cue.text.replace("-->", "-- >")
    if options.channel_labels and cue.channel is not None:
        return f"{channel_label(cue.channel)}: {text}"
    return text
