"""The JSON of voicejobs itself: all that is known of a transcript, and all that the other formats are made from.

It holds whisper's keys, so that tools made for whisper read it too. schemas/transcript-1.json describes it.
"""

from functools import cache
from importlib.resources import files
from typing import Any

from voicejobs.audio.types import Segment, Transcript, Word
from voicejobs.formats.json_values import dump, plain
from voicejobs.formats.options import RenderOptions
from voicejobs.formats.whisper_json import channel_value, segment_values, word_values

SCHEMA = "voicejobs.transcript/1"
"""Name and version; a change that a reader of the old form could not take makes a new number."""


def write_native(transcript: Transcript, options: RenderOptions) -> bytes:
    """Return the transcript with what made it: media, engine, model, options and warnings.

    Times are rounded to milliseconds, as in the other formats; a number that is none is null.
    """
    return dump(
        {
            "schema": SCHEMA,
            "text": transcript.text,
            "language": transcript.language,
            "language_probability": transcript.language_probability,
            "media": {"duration": transcript.duration_s, "sha256": transcript.source_sha256},
            "engine": transcript.engine,
            "model": transcript.model,
            "model_sha256": transcript.model_sha256,
            "options": dict(transcript.options),
            "channels": sorted({one.channel for one in transcript.segments if one.channel is not None}),
            "warnings": transcript.warnings,
            "segments": [_segment(number, segment) for number, segment in enumerate(transcript.segments)],
        }
    )


@cache
def schema_text() -> str:
    """Return the JSON Schema of what `write_native` writes."""
    return files("voicejobs.formats").joinpath("schemas/transcript-1.json").read_text(encoding="utf-8")


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    """Return a segment; its words are an empty list where the engine gave none."""
    values = segment_values(number, segment)
    return {**values, "words": [_word(word) for word in segment.words]} | channel_value(segment.channel)


def _word(word: Word) -> dict[str, Any]:
    """Return a word as whisper writes it, its blanks kept."""
    values: dict[str, Any] = plain(word_values(word))
    return values
