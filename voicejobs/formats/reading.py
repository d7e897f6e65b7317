"""Transcripts read back from JSON: of voicejobs, of whisper, and of OpenAI's audio endpoints.

Files come from anywhere: what is missing is taken as unknown, what has another form is refused.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from voicejobs.audio.languages import LANGUAGES
from voicejobs.audio.types import Segment, Transcript, Word
from voicejobs.errors import NotTranscript
from voicejobs.formats.clean import one_line
from voicejobs.formats.native import SCHEMA
from voicejobs.formats.pieces import spelled

_NUMBERS = ("temperature", "avg_logprob", "compression_ratio", "no_speech_prob")
_CODES = {name: code for code, name in LANGUAGES.items()}


class _Malformed(Exception):  # noqa: N818 - becomes an error of the tree before it leaves
    """A value has not the form that a transcript needs."""


def read_transcript(data: bytes, name: str) -> Transcript:
    """Return the transcript in a JSON file.

    Args:
        data: the bytes of the file.
        name: what errors call it.

    Raises:
        NotTranscript: it is no JSON, or holds no transcript of a known form.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotTranscript(f"{name} is no JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("segments"), list):
        raise NotTranscript(f"{name} holds no transcript: it has no list of segments")
    schema = document.get("schema")
    if schema is not None and schema != SCHEMA:
        raise NotTranscript(
            f"{name} has the schema {schema!r}, which this version does not know",
            hint="Read it with the version of voicejobs that wrote it, or a newer one.",
        )
    try:
        return _transcript(document, is_native=schema is not None)
    except _Malformed as error:
        raise NotTranscript(f"{name} holds no transcript: {error}") from error


def _transcript(document: Mapping[str, Any], *, is_native: bool) -> Transcript:
    """Build a transcript of any of the three forms."""
    segments = [_segment(item, number) for number, item in enumerate(document["segments"], start=1)]
    if document.get("words") and not any(segment.words for segment in segments):
        segments = _shared_out(segments, _words(document["words"], "words"))
    media = document.get("media")
    media = media if isinstance(media, dict) else {}
    said = _number(media.get("duration") if is_native else document.get("duration"), "duration")
    options = document.get("options")
    task = document.get("task")
    return Transcript(
        segments=tuple(segments),
        language=_language(document),
        duration_s=said if math.isfinite(said) else _end(segments),
        language_probability=_optional(document.get("language_probability"), "language_probability"),
        engine=_text(document.get("engine", ""), "engine"),
        model=_text(document.get("model", ""), "model"),
        model_sha256=_text(document.get("model_sha256", ""), "model_sha256"),
        source_sha256=_text(media.get("sha256", ""), "sha256"),
        options=options if isinstance(options, dict) else {"task": task} if isinstance(task, str) else {},
        warnings=_codes(document.get("warnings")),
    )


def _segment(item: Any, number: int) -> Segment:
    """Build a segment."""
    place = f"segment {number}"
    if not isinstance(item, dict):
        raise _Malformed(f"{place} is no object")
    tokens = item.get("tokens") or []
    if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
        raise _Malformed(f"the tokens of {place} are no list of whole numbers")
    return Segment(
        start_s=_number(item.get("start"), place),
        end_s=_number(item.get("end"), place),
        text=_text(item.get("text"), place),
        words=tuple(_words(item.get("words") or [], place)),
        tokens=tuple(tokens),
        channel=_channel(item.get("channel"), place),
        **{name: _optional(item.get(name), place) for name in _NUMBERS},
    )


def _words(items: Any, place: str) -> list[Word]:
    """Build the words of a segment, or of a whole transcript."""
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise _Malformed(f"the words of {place} are no list of objects")
    return [
        Word(
            start_s=_number(item.get("start"), place),
            end_s=_number(item.get("end"), place),
            text=_text(item.get("word", item.get("text")), place),
            probability=_optional(item.get("probability", item.get("score")), place),
            channel=_channel(item.get("channel"), place),
        )
        for item in items
    ]


def _shared_out(segments: Sequence[Segment], words: Sequence[Word]) -> list[Segment]:
    """Give each segment those of the words that spell its text, in order, with the blanks of the text."""
    found: list[Segment] = []
    place = 0
    for segment in segments:
        wanted = len("".join(one_line(segment.text).split()))
        end, letters = place, 0
        while end < len(words) and letters < wanted:
            letters += len("".join(one_line(words[end].text).split()))
            end += 1
        own = words[place:end]
        pieces = spelled(one_line(segment.text), own, one_line)
        if pieces and len(pieces) == len(own):
            lead = " " if segment.text[:1].isspace() else ""
            texts = [lead + pieces[0][0], *(text for text, _, _ in pieces[1:])]
            respelled = [replace(word, text=text) for word, text in zip(own, texts, strict=True)]
            found.append(replace(segment, words=tuple(respelled)))
            place = end
            continue
        found.append(segment)
        while place < len(words) and not words[place].start_s >= segment.end_s:
            place += 1
    return found


def _language(document: Mapping[str, Any]) -> str | None:
    """Return the code of the language, which may be given as an English word."""
    for value in (document.get("language_code"), document.get("language")):
        if isinstance(value, str) and value:
            return _CODES.get(value.lower(), value)
    return None


def _end(segments: Sequence[Segment]) -> float:
    """Return the end of the last segment or word, as the length of a recording of which nothing else is known."""
    words = (word for segment in segments for word in segment.words)
    ends = [
        end_s for end_s in (*(one.end_s for one in segments), *(one.end_s for one in words)) if math.isfinite(end_s)
    ]
    # A hair more, so that whole milliseconds stay whole when they are counted from it.
    return math.nextafter(max(ends), math.inf) if ends and max(ends) > 0 else 0.0


def _number(value: Any, place: str) -> float:
    """Return a number; NaN where there is none."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _Malformed(f"{value!r} in {place} is no number")
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _optional(value: Any, place: str) -> float | None:
    """Return a number, or None where there is none."""
    number = _number(value, place)
    return number if math.isfinite(number) else None


def _text(value: Any, place: str) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise _Malformed(f"{place} has no text")
    return value


def _codes(value: Any) -> tuple[str, ...]:
    """Return a list of short codes."""
    if value is not None and not isinstance(value, list):
        raise _Malformed("the warnings are no list")
    return tuple(_text(code, "a warning") for code in value or ())


def _channel(value: Any, place: str) -> int | None:
    """Return the number of a channel, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _Malformed(f"the channel {value!r} of {place} is no number from 0")
    return value
