"""Plain text: one line for each segment, as whisper writes it, or paragraphs to read."""

from collections.abc import Iterator

from voicejobs.audio.types import Transcript
from voicejobs.formats.breaks import ends_sentence
from voicejobs.formats.clean import channel_label, is_blank, one_line
from voicejobs.formats.options import RenderOptions
from voicejobs.formats.pieces import starts_free
from voicejobs.formats.tables import spoken

PARAGRAPH_PAUSE_MS = 2000
"""A pause as long as this after a sentence begins a paragraph."""

PARAGRAPH_CHARS = 600
"""A paragraph as long as this ends with its sentence."""


def write_txt(transcript: Transcript, options: RenderOptions) -> bytes:
    """Return UTF-8 lines, `Channel 1: ...` where channels were kept apart; nothing where nothing was said."""
    if options.paragraphs:
        return "\n".join(f"{_label(channel, options)}{text}\n" for channel, text in _paragraphs(transcript)).encode()
    lines = []
    for segment in transcript.segments:
        text = one_line(segment.text)
        if not is_blank(text):
            lines.append(f"{_label(segment.channel, options)}{text}\n")
    return "".join(lines).encode()


def _label(channel: int | None, options: RenderOptions) -> str:
    """Return what stands before the text of a channel."""
    return f"{channel_label(channel)}: " if options.channel_labels and channel is not None else ""


def _paragraphs(transcript: Transcript) -> Iterator[tuple[int | None, str]]:
    """Yield passages joined: a paragraph ends with a channel, at a long pause, or with a sentence once it is long."""
    channel: int | None = None
    paragraph = ""
    ended = 0
    for segment, (start, end), text in spoken(transcript):
        is_new = segment.channel != channel or (
            ends_sentence(paragraph) and (start - ended >= PARAGRAPH_PAUSE_MS or len(paragraph) >= PARAGRAPH_CHARS)
        )
        if paragraph and is_new:
            yield channel, paragraph
            paragraph = ""
        blank = "" if not paragraph or starts_free(segment.text, text) else " "
        channel, paragraph, ended = segment.channel, paragraph + blank + text, end
    if paragraph:
        yield channel, paragraph
