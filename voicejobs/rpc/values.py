"""Our values as messages of the voice engine, and back."""

from collections.abc import Sequence
from math import inf, isinf
from typing import Any

import numpy as np

from voicejobs.audio.types import Segment, WindowResult, Word
from voicejobs.errors import BadOption
from voicejobs.proto import voice_engine_pb2 as pb

_FIGURES = ("temperature", "avg_logprob", "compression_ratio", "no_speech_prob")
_NUMBERS = (
    "beam_size", "best_of", "patience", "length_penalty", "repetition_penalty", "no_repeat_ngram_size",
    "condition_on_previous_text",
)  # fmt: skip
_LIMITS = ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold")
_TEXTS = ("task", "initial_prompt", "hotwords")
_LISTS = ("suppress_tokens", "temperatures")
_PRECISE = 6
"""Digits after the point that a float32 between 0 and 16 keeps: what a client wrote as 0.2 must be 0.2 here."""


def options_of(message: pb.RecognitionOptions) -> dict[str, Any]:
    """Return the options of recognition that a request names, as the step `recognise` calls them.

    Raises:
        BadOption: the task is none, or a number is no number.
    """
    found: dict[str, Any] = {"word_timestamps": message.word_times if message.HasField("word_times") else True}
    found |= {name: _plain(name, getattr(message, name)) for name in _NUMBERS if message.HasField(name)}
    found |= {name: _limit(name, getattr(message, name)) for name in _LIMITS if message.HasField(name)}
    found |= {name: getattr(message, name) for name in _TEXTS if getattr(message, name)}
    found |= {name: [_plain(name, one) for one in getattr(message, name)] for name in _LISTS if getattr(message, name)}
    if found.get("task", "transcribe") not in {"transcribe", "translate"}:
        raise BadOption(f"task {found['task']!r} is unknown", hint="It is transcribe or translate.")
    return found


def options_message(options: Any) -> pb.RecognitionOptions:
    """Return the message for options with the attributes of `RecogniseOptions`."""
    message = pb.RecognitionOptions(word_times=options.word_timestamps)
    for name in (*_NUMBERS, *_TEXTS):
        setattr(message, name, getattr(options, name))
    for name in _LIMITS:
        value = getattr(options, name)
        none = -inf if name == "logprob_threshold" else inf
        setattr(message, name, none if value is None else value)
    for name in _LISTS:
        getattr(message, name).extend(getattr(options, name))
    return message


def _plain(name: str, value: Any) -> Any:
    """Return a number without the noise that float32 adds to it."""
    if not isinstance(value, float):
        return value
    if not np.isfinite(value):
        raise BadOption(f"option {name} is {value}, which is no number")
    return round(value, _PRECISE)


def _limit(name: str, value: float) -> float | None:
    """Return a limit, None where it is infinite."""
    return None if isinf(value) else float(_plain(name, value))


def segment_message(segment: Segment, limit_s: float = inf) -> pb.SegmentInfo:
    """Return the message for a segment; no time of it is above `limit_s`, whatever float32 makes of that."""
    message = pb.SegmentInfo(
        text=segment.text,
        start_time=time_below(segment.start_s, limit_s),
        end_time=time_below(segment.end_s, limit_s),
        words=[word_message(word, limit_s) for word in segment.words],
        tokens=segment.tokens,
    )
    for name in _FIGURES:
        value = getattr(segment, name)
        if value is not None:
            setattr(message, name, value)
    return message


def word_message(word: Word, limit_s: float = inf) -> pb.WordInfo:
    """Return the message for a word, its times as in `segment_message`."""
    message = pb.WordInfo(
        word=word.text.strip(),
        start_time=time_below(word.start_s, limit_s),
        end_time=time_below(word.end_s, limit_s),
        leading_space=word.text[:1].isspace(),
    )
    if word.probability is not None:
        message.probability = word.probability
    return message


def segment_of(message: pb.SegmentInfo) -> Segment:
    """Return the segment of a message."""
    return Segment(
        start_s=message.start_time,
        end_s=message.end_time,
        text=message.text,
        words=tuple(word_of(word) for word in message.words),
        tokens=tuple(message.tokens),
        **{name: getattr(message, name) if message.HasField(name) else None for name in _FIGURES},
    )


def word_of(message: pb.WordInfo) -> Word:
    """Return the word of a message, with the space that stands before it."""
    return Word(
        start_s=message.start_time,
        end_s=message.end_time,
        text=f"{' ' if message.leading_space else ''}{message.word}",
        probability=message.probability if message.HasField("probability") else None,
    )


def result_of(message: pb.RecognizeResponse) -> WindowResult:
    """Return an answer as the result of one window."""
    return WindowResult(
        segments=tuple(segment_of(one) for one in message.segments),
        language=message.language or None,
        language_probability=message.language_probability if message.HasField("language_probability") else None,
    )


def confidence_of(segments: Sequence[Segment]) -> float | None:
    """Return how sure the engine is of a text, 0 to 1; None where it does not say.

    The mean over the words where they have probabilities; else over the segments, weighted by their length, of the
    probability of a token.
    """
    words = [word.probability for segment in segments for word in segment.words if word.probability is not None]
    if words:
        return _share(sum(words) / len(words))
    told = [(len(one.text), float(np.exp(one.avg_logprob))) for one in segments if one.avg_logprob is not None]
    letters = sum(count for count, _ in told)
    return _share(sum(count * sure for count, sure in told) / letters) if letters else None


def _share(value: float) -> float:
    """Return a value moved into 0..1."""
    return min(max(value, 0.0), 1.0)


def time_below(time_s: float, limit_s: float) -> float:
    """Return a time that as float32 is not above `limit_s`: the nearest one may be."""
    near = np.float32(min(time_s, limit_s))
    # Compared as float64: beside a float32 numpy would round the limit first.
    return float(near) if float(near) <= limit_s else float(np.nextafter(near, np.float32(-inf)))
