"""Immutable values of audio and text, and their JSON form."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Pcm = NDArray[np.int16]
"""Mono PCM, int16, 16 kHz, shape (samples,), full scale 32768."""


def _dump(value: Any) -> bytes:
    """Write compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _shallow(value: Any) -> dict[str, Any]:
    """Return the fields of a value by name, as they are."""
    return {name: getattr(value, name) for name in value.__slots__}


@dataclass(frozen=True, slots=True, eq=False)
class Sound:
    """Hold mono sound of any rate: `samples` are float32, shape (samples,), full scale 1.0."""

    samples: NDArray[np.float32]
    rate_hz: int

    @property
    def duration_s(self) -> float:
        """Return its length in seconds."""
        return len(self.samples) / self.rate_hz


@dataclass(frozen=True, slots=True)
class Span:
    """Name a stretch of samples `[start, end)` at 16 kHz, counted from the start of the recording."""

    start_samples: int
    end_samples: int

    @property
    def length_samples(self) -> int:
        """Return the number of samples."""
        return self.end_samples - self.start_samples


@dataclass(frozen=True, slots=True)
class Word:
    """Hold one word; times in seconds from the start of the recording (or of the window, from an engine).

    `text` keeps the leading space that whisper gives it. `probability` is 0..1 or None.
    `channel` is 0-based and None where channels were mixed.
    """

    start_s: float
    end_s: float
    text: str
    probability: float | None = None
    channel: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """Hold a phrase as the engine gave it; times as in `Word`. None means that the engine does not say."""

    start_s: float
    end_s: float
    text: str
    words: tuple[Word, ...] = ()
    tokens: tuple[int, ...] = ()
    temperature: float | None = None
    avg_logprob: float | None = None
    compression_ratio: float | None = None
    no_speech_prob: float | None = None
    channel: int | None = None

    def shifted(self, offset_s: float) -> Self:
        """Return the segment and its words moved by `offset_s` seconds."""
        words = tuple(
            replace(word, start_s=word.start_s + offset_s, end_s=word.end_s + offset_s) for word in self.words
        )
        return replace(self, start_s=self.start_s + offset_s, end_s=self.end_s + offset_s, words=words)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `asdict` gives the same, and copies every token on the way."""
        return {**_shallow(self), "words": [_shallow(word) for word in self.words], "tokens": list(self.tokens)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Build a segment from `to_json`."""
        values = dict(data)
        values["words"] = tuple(Word(**word) for word in values.get("words", ()))
        values["tokens"] = tuple(values.get("tokens", ()))
        return cls(**values)


@dataclass(frozen=True, slots=True)
class WindowResult:
    """Hold what a recogniser heard in one window; times count from the start of the window."""

    segments: tuple[Segment, ...] = ()
    language: str | None = None
    language_probability: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**_shallow(self), "segments": [segment.to_json() for segment in self.segments]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Build a result from `to_json`."""
        return cls(
            segments=tuple(Segment.from_json(item) for item in data["segments"]),
            language=data["language"],
            language_probability=data["language_probability"],
        )


@dataclass(frozen=True, slots=True)
class Transcript:
    """Hold the text of a recording; segments ordered by start, times in seconds from its start.

    `duration_s` comes from the decoded samples. `language` is an ISO 639-1 code (whisper's spelling) or
    None where there was no speech to tell it from. `warnings` are short codes such as `no_speech`.
    """

    segments: tuple[Segment, ...]
    language: str | None
    duration_s: float
    language_probability: float | None = None
    engine: str = ""
    model: str = ""
    model_sha256: str = ""
    source_name: str = ""
    source_sha256: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the whole text, segments joined as the engine spaced them, outer blanks removed."""
        return "".join(segment.text for segment in self.segments).strip()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            **_shallow(self),
            "segments": [segment.to_json() for segment in self.segments],
            "options": dict(self.options),
            "warnings": list(self.warnings),
        }

    def dump(self) -> bytes:
        """Return `to_json` as compact UTF-8 JSON, written segment by segment: hours of speech have many."""
        whole = replace(self, segments=()).to_json()
        del whole["segments"]
        segments = b",".join(_dump(segment.to_json()) for segment in self.segments)
        return b'{"segments":[' + segments + b"]," + _dump(whole)[1:]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Build a transcript from `to_json`."""
        values = dict(data)
        values["segments"] = tuple(Segment.from_json(item) for item in values["segments"])
        values["warnings"] = tuple(values.get("warnings", ()))
        return cls(**values)
