"""Plain text: one line for each segment, as whisper writes it."""

from voicejobs.audio.types import Transcript
from voicejobs.formats.clean import channel_label, one_line
from voicejobs.formats.options import RenderOptions


def write_txt(transcript: Transcript, options: RenderOptions) -> bytes:
    """Return UTF-8 lines, `Channel 1: ...` where channels were kept apart; nothing where nothing was said."""
    lines = []
    for segment in transcript.segments:
        text = one_line(segment.text)
        if text and options.channel_labels and segment.channel is not None:
            text = f"{channel_label(segment.channel)}: {text}"
        if text:
            lines.append(text + "\n")
    return "".join(lines).encode()
