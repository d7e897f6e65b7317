"""WebVTT subtitles."""

from voicejobs.audio.types import Transcript
from voicejobs.formats.clean import channel_label
from voicejobs.formats.cues import Cue, cues_of
from voicejobs.formats.options import RenderOptions
from voicejobs.formats.timestamps import vtt_time

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def write_vtt(transcript: Transcript, options: RenderOptions) -> bytes:
    """Return UTF-8 cues, `<v Channel 1>` where channels were kept apart; the header alone without speech."""
    blocks = [
        f"\n{vtt_time(cue.start_ms)} --> {vtt_time(cue.end_ms)}\n{_text(cue, options)}\n"
        for cue in cues_of(transcript, options)
    ]
    return ("WEBVTT\n" + "".join(blocks)).encode()


def _text(cue: Cue, options: RenderOptions) -> str:
    """Return the text with markup escaped; the voice span may stay open, as it fills the cue."""
    text = cue.text.translate(_ESCAPES)
    if options.channel_labels and cue.channel is not None:
        return f"<v {channel_label(cue.channel)}>{text}"
    return text
