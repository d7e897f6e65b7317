"""NIST CTM: a line for each word, for scoring tools."""

from voicejobs.audio.types import Transcript
from voicejobs.formats.channels import by_channel
from voicejobs.formats.clean import one_line
from voicejobs.formats.moments import last_moment
from voicejobs.formats.options import RenderOptions
from voicejobs.formats.pieces import Piece, words_of

HEADER = ";; file channel start duration word [confidence]\n"


def write_ctm(transcript: Transcript, options: RenderOptions) -> bytes:
    """Return `file channel start duration word [confidence]`, ordered by channel and start.

    The file is named after the recording, blanks as `_`; channels count from 1. Every line has a confidence if the
    engine gave one for every word, and none has otherwise. Where the engine gave no words, the time of a segment is
    shared out among its words.
    """
    limit = last_moment(transcript)
    name = _name(transcript.source_name)
    words = [
        ((channel or 0) + 1, word)
        for channel, segments in by_channel(transcript.segments).items()
        for word in words_of(segments, limit)
    ]
    if not words:
        return b""
    words.sort(key=lambda one: (one[0], one[1].span[0]))
    is_sure = all(word.probability is not None for _, word in words)
    lines = [f"{name} {channel} {_fields(word, is_sure=is_sure)}\n" for channel, word in words]
    return (HEADER + "".join(lines)).encode()


def _fields(word: Piece, *, is_sure: bool) -> str:
    """Return the fields of a word but for file and channel; no field holds a blank."""
    start, end = word.span
    text = "_".join(word.text.split())
    fields = f"{start / 1000:.3f} {(end - start) / 1000:.3f} {text}"
    return f"{fields} {word.probability:.3f}" if is_sure else fields


def _name(source: str) -> str:
    """Return the name of a recording as one field, which must not look like a comment."""
    name = "_".join(one_line(source).split()) or "recording"
    return f"_{name}" if name.startswith(";;") else name
