"""What OpenAI-compatible servers answer to a transcription, as our values: with segments, words, or text alone."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any
from unicodedata import east_asian_width

from voicejobs.audio.types import Segment, WindowResult, Word
from voicejobs.engines.languages import language_code
from voicejobs.errors import BadOption, EngineUnavailable

_WIDE = frozenset("WF")


def result_of(answer: Any, duration_s: float, language: str | None) -> WindowResult:
    """Return the answer to one window.

    Args:
        answer: `{"text"}`, or with `segments`, `words` and `language` besides; further names do not matter.
        duration_s: length of the window; no time lies outside of it.
        language: the one that was asked for; None takes that of the answer.

    Raises:
        EngineUnavailable: the answer has another form.
    """
    if not isinstance(answer, Mapping) or not isinstance(answer.get("text", ""), str):
        raise EngineUnavailable("the server's transcription has no text")
    try:
        segments = [_segment(item, duration_s) for item in answer.get("segments") or ()]
        loose = [_word(item, duration_s) for item in answer.get("words") or ()]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise EngineUnavailable(f"the server's segments have another form: {error!r}") from None
    text = str(answer.get("text", ""))
    if not segments and text.strip():
        segments = [Segment(0.0, duration_s, _spaced(text))]
    found = _with_words(segments, loose)
    probability = _number(answer.get("language_probability"))
    told = language or code_of(answer.get("language"))
    return WindowResult(tuple(one for one in found if one.text.strip()), told, None if language else probability)


def code_of(name: Any) -> str | None:
    """Return the code of a language that a server names by code or in English; None where it names none we know."""
    if not isinstance(name, str):
        return None
    try:
        return language_code(name, strict=False)
    except BadOption:
        return None


def _segment(item: Mapping[str, Any], duration_s: float) -> Segment:
    """Return one segment of an answer; what the server does not say stays open."""
    start_s, end_s = _times(item, duration_s)
    return Segment(
        start_s,
        end_s,
        _spaced(str(item["text"])),
        tuple(_word(word, duration_s) for word in item.get("words") or ()),
        tokens=tuple(int(token) for token in item.get("tokens") or ()),
        temperature=_number(item.get("temperature")),
        avg_logprob=_number(item.get("avg_logprob")),
        compression_ratio=_number(item.get("compression_ratio")),
        no_speech_prob=_number(item.get("no_speech_prob")),
    )


def _word(item: Mapping[str, Any], duration_s: float) -> Word:
    """Return one word of an answer."""
    start_s, end_s = _times(item, duration_s)
    return Word(start_s, end_s, str(item["word"]), _number(item.get("probability")))


def _times(item: Mapping[str, Any], duration_s: float) -> tuple[float, float]:
    """Return start and end inside the window, the second not before the first."""
    start_s, end_s = (_number(item.get(name)) for name in ("start", "end"))
    start_s = min(max(start_s or 0.0, 0.0), duration_s)
    return start_s, min(max(duration_s if end_s is None else end_s, start_s), duration_s)


def _number(value: Any) -> float | None:
    """Return a finite number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) else None


def _spaced(text: str) -> str:
    """Return a segment's text with the blank in front that whisper writes between segments, where words have blanks."""
    bare = text.strip()
    return bare if not bare or east_asian_width(bare[0]) in _WIDE else f" {bare}"


def _with_words(segments: Sequence[Segment], loose: Sequence[Word]) -> list[Segment]:
    """Return the segments, each with its words in the spelling of its text.

    Some servers list the words beside the segments: each belongs to the segment that its middle lies in or is nearest
    to. OpenAI's have neither blanks nor punctuation; the text of the segment has both.
    """
    groups: list[list[Word]] = [list(segment.words) for segment in segments]
    if segments and not any(groups):
        for word in loose:
            middle_s = (word.start_s + word.end_s) / 2
            nearest = min(range(len(segments)), key=lambda at: _distance_s(segments[at], middle_s))
            groups[nearest].append(word)
    return [
        Segment(**{**_fields(segment), "words": tuple(_spelled(segment.text, words))})
        for segment, words in zip(segments, groups, strict=True)
    ]


def _fields(segment: Segment) -> dict[str, Any]:
    """Return the fields of a segment as they are."""
    return {name: getattr(segment, name) for name in segment.__slots__}


def _distance_s(segment: Segment, at_s: float) -> float:
    """Return how far a time is from a segment, 0 inside of it."""
    return max(segment.start_s - at_s, at_s - segment.end_s, 0.0)


def _spelled(text: str, words: Sequence[Word]) -> list[Word]:
    """Return the words with the blanks and the punctuation around them in `text`; as they are where they differ."""
    borders: list[int] = []
    at = 0
    for word in words:
        found = text.lower().find(word.text.strip().lower(), at)
        if found < 0 or not word.text.strip():
            return [_renamed(word, _spaced(word.text)) for word in words]
        at = found + len(word.text.strip())
        borders.append(at)
    spelled: list[Word] = []
    start = 0
    for number, (word, border) in enumerate(zip(words, borders, strict=True)):
        end = border
        last = number + 1 == len(words)
        while end < len(text) and (last or not (text[end].isspace() or text[end].isalnum())):
            end += 1
        spelled.append(_renamed(word, text[start:end]))
        start = end
    return spelled


def _renamed(word: Word, text: str) -> Word:
    """Return the word with another text."""
    return Word(word.start_s, word.end_s, text, word.probability, word.channel)
