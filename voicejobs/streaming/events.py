"""What a stream tells: a phrase began, what is heard of it so far, what it was, and that the stream has ended."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from voicejobs.audio.types import Segment, Word

ResultKind = Literal["partial", "final", "revised"]


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """Say that a segment began; its first result comes once something was decoded.

    Args:
        segment_id: counts from 1 and rises by 1 with each segment of the stream.
        start_s: where its window begins, in seconds from the start of the stream.
    """

    segment_id: int
    start_s: float

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"event": "speech_started", **asdict(self)}


@dataclass(frozen=True, slots=True)
class Result:
    """Hold what was heard in a segment; times in seconds from the start of the stream.

    A segment has any number of partial results, then one final one, then at most one revised one: where it was decoded
    again together with its neighbours, or by a second recogniser. The text of a final or revised result is empty where
    a closer look found no words.

    Args:
        kind: `partial` (more may come), `final`, or `revised` (after `final`, which it replaces).
        segment_id: as in `SpeechStarted`.
        start_s: where the window of the segment begins.
        heard_s: up to where the sound was listened to for this result.
        text: outer blanks removed.
        words: in order, none before `start_s` or after `heard_s`. In a final result empty where the options ask for
            no word times.
        stable_words: how many of `words`, from the first, no later partial result changes.
        stability: the same as a share 0..1; 1 in a final or revised result.
        segments: what the recogniser wrote, in a final or revised result; none in a partial one.
        language: ISO 639-1 code; None where the recogniser does not say.
    """

    kind: ResultKind
    segment_id: int
    start_s: float
    heard_s: float
    text: str
    words: tuple[Word, ...] = ()
    stable_words: int = 0
    stability: float = 1.0
    segments: tuple[Segment, ...] = ()
    language: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, without the segments, which say nothing new."""
        values = {name: getattr(self, name) for name in self.__slots__ if name not in {"kind", "words", "segments"}}
        return {"event": self.kind, **values, "words": [asdict(word) for word in self.words]}


@dataclass(frozen=True, slots=True)
class End:
    """Say that everything was heard, `duration_s` seconds of it, and no event follows."""

    duration_s: float

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"event": "end", "duration_s": self.duration_s}


Event = SpeechStarted | Result | End


def is_newer(event: Event, before: Event) -> bool:
    """Tell whether both are partial results of one segment."""
    both = (event, before)
    partials = [one for one in both if isinstance(one, Result) and one.kind == "partial"]
    return len(partials) == len(both) and partials[0].segment_id == partials[1].segment_id
