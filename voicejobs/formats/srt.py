"""SubRip subtitles."""

import codecs
import re

from voicejobs.audio.types import Transcript
from voicejobs.formats.clean import channel_label, one_line
from voicejobs.formats.cues import Cue, cues_of
from voicejobs.formats.options import RenderOptions
from voicejobs.formats.timestamps import srt_time

_MARKUP = re.compile(r"(<(?=[A-Za-z/!])|\{(?=\\))")
"""What begins a tag, or an override of the kind that other subtitle formats have."""


def write_srt(transcript: Transcript, options: RenderOptions) -> bytes:
    """Return UTF-8 cues numbered from 1, `Channel 1: ...` where channels were kept apart; empty without speech."""
    blocks = [
        f"{number}\n{srt_time(cue.start_ms)} --> {srt_time(cue.end_ms)}\n{_text(cue, options)}\n"
        for number, cue in enumerate(cues_of(transcript, options, srt_text), start=1)
    ]
    content = "\n".join(blocks)
    if options.srt_crlf:
        content = content.replace("\n", "\r\n")
    return (codecs.BOM_UTF8 if options.srt_bom else b"") + content.encode()


def srt_text(text: str) -> str:
    r"""Return a text on one line with what is not text in SRT broken up by a blank, since SRT cannot escape it.

    That is the arrow between times, and what players take for markup and do not show: `<i>`, `</font>`, `{\an8}`.
    """
    return _MARKUP.sub(r"\1 ", one_line(text).replace("-->", "-- >"))


def _text(cue: Cue, options: RenderOptions) -> str:
    """Return the lines, the first behind the name of the channel."""
    if options.channel_labels and cue.channel is not None:
        return f"{channel_label(cue.channel)}: {cue.text}"
    return cue.text
