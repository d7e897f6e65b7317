"""JSON as OpenAI's whisper writes it, so that tools made for that read ours."""

import json
import math
from typing import Any

import numpy as np

from voicejobs.audio.types import Segment, Transcript, Word
from voicejobs.formats.clean import encodable
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
    text = json.dumps(plain(document), ensure_ascii=False, allow_nan=False, indent=2)
    return (text + "\n").encode()


def plain(value: Any) -> Any:
    """Return `value` made of what JSON has: numpy's numbers become plain, and numbers that are none become None."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    """Return a segment under whisper's names, in whisper's order."""
    start_s = _seconds(segment.start_s)
    values: dict[str, Any] = {
        "id": number,
        "seek": None if start_s is None else int(start_s * _FRAMES_PER_SECOND + 0.5),
        "start": start_s,
        "end": _seconds(segment.end_s),
        "text": segment.text,
        "tokens": segment.tokens,
        "temperature": segment.temperature,
        "avg_logprob": segment.avg_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
    }
    if segment.words:
        values["words"] = [_word(word) for word in segment.words]
    return values | _channel(segment.channel)


def _word(word: Word) -> dict[str, Any]:
    """Return a word under whisper's names; the leading blank of its text is whisper's, too."""
    values: dict[str, Any] = {
        "word": word.text,
        "start": _seconds(word.start_s),
        "end": _seconds(word.end_s),
        "probability": word.probability,
    }
    return values | _channel(word.channel)


def _channel(channel: int | None) -> dict[str, int]:
    """Return the extra key, where there is something to say."""
    return {} if channel is None else {"channel": channel}


def _seconds(seconds: float | None) -> float | None:
    """Round to milliseconds, halves up, so that order is kept."""
    if seconds is None or not math.isfinite(seconds):
        return None
    return math.floor(float(seconds) * 1000 + 0.5) / 1000
