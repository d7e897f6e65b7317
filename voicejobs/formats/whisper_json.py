"""JSON as OpenAI's whisper writes it, so that tools made for that read ours."""

from typing import Any

from voicejobs.audio.types import Segment, Transcript, Word
from voicejobs.formats.json_values import dump, rounded_s
from voicejobs.formats.options import RenderOptions

_FRAMES_PER_SECOND = 100


def write_json(transcript: Transcript, options: RenderOptions) -> bytes:
    """Return `{"text", "segments", "language"}` as UTF-8.

    `words` is there where the engine gave words. Beyond whisper's keys, `channel` (from 0) is there where channels
    were kept apart. `seek` is the start of the segment in frames of 10 ms, since a window of ours is no seek of
    whisper's. A number that is none (NaN, infinity, nothing said) is null.
    """
    document = {
        "text": "".join(segment.text for segment in transcript.segments),
        "segments": [_segment(number, segment) for number, segment in enumerate(transcript.segments)],
        "language": transcript.language,
    }
    return dump(document)


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    """Return a segment with its words."""
    values = segment_values(number, segment)
    if segment.words:
        values["words"] = [word_values(word) for word in segment.words]
    return values | channel_value(segment.channel)


def segment_values(number: int, segment: Segment) -> dict[str, Any]:
    """Return what whisper says of a segment, under its names and in its order, but for the words."""
    start_s = rounded_s(segment.start_s)
    return {
        "id": number,
        "seek": None if start_s is None else int(start_s * _FRAMES_PER_SECOND + 0.5),
        "start": start_s,
        "end": rounded_s(segment.end_s),
        "text": segment.text,
        "tokens": segment.tokens,
        "temperature": segment.temperature,
        "avg_logprob": segment.avg_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
    }


def word_values(word: Word) -> dict[str, Any]:
    """Return a word under whisper's names; the leading blank of its text is whisper's, too."""
    values: dict[str, Any] = {
        "word": word.text,
        "start": rounded_s(word.start_s),
        "end": rounded_s(word.end_s),
        "probability": word.probability,
    }
    return values | channel_value(word.channel)


def channel_value(channel: int | None) -> dict[str, int]:
    """Return the extra key, where there is something to say."""
    return {} if channel is None else {"channel": channel}
