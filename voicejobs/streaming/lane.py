"""One recogniser of a stream: what waits for it, what it decodes now, and in which language."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from voicejobs.audio.types import Segment, Span, WindowResult, Word
from voicejobs.engines.base import RecogniseOptions, Recogniser
from voicejobs.steps.evidence import is_unfounded
from voicejobs.steps.merge import Piece, merge
from voicejobs.steps.recognise import Work, recognise
from voicejobs.steps.review import inside
from voicejobs.streaming.agreement import Agreement, words_of
from voicejobs.streaming.endpoints import Utterance
from voicejobs.streaming.events import Result
from voicejobs.streaming.together import Part, shares
from voicejobs.units import samples_to_seconds

_SURE = 0.8


@dataclass(slots=True)
class Track:
    """Follow the segment that lasts.

    Args:
        segment_id: its number.
        decoded_end: up to which sample a partial result heard it.
        looks: decodes for partial results so far.
        decode_start: the sample from which the next one listens.
        agreement: what is settled of it.
        early: a whole decode made in a pause that may turn out to be its end; its result is None where it failed.
    """

    segment_id: int
    decoded_end: int
    looks: int = 0
    decode_start: int = 0
    agreement: Agreement = field(default_factory=Agreement)
    early: tuple[Utterance, WindowResult | None] | None = None

    def result_of(self, utterance: Utterance) -> WindowResult | None:
        """Return the early decode, if it was one of just this window."""
        return self.early[1] if self.early is not None and self.early[0].window == utterance.window else None


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Hold one decode.

    Args:
        kind: `partial` a quick look, `early` a whole segment before its end is sure, `whole` one that has ended,
            `together` several that have.
        utterance: what to decode.
        track: of the segment, for `partial` and `early`.
        parts: the segments, for `together`.
    """

    kind: Literal["partial", "early", "whole", "together"]
    utterance: Utterance
    track: Track
    parts: tuple[Part, ...] = ()


class Lane:
    """Hold one recogniser and its options; it decodes one thing at a time. The lock around it is its owner's."""

    def __init__(self, recogniser: Recogniser, options: RecogniseOptions, *, doubt: bool) -> None:
        self.waiting: deque[tuple[Utterance, Track]] = deque()
        self.together: deque[tuple[Utterance, tuple[Part, ...]]] = deque()
        self.busy = False
        self._recogniser = recogniser
        self._options = options
        self._doubt = doubt
        self._known = options.language
        self._told: str | None = None

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing is decoded and nothing waits."""
        return not self.busy and not self.waiting and not self.together

    def clear(self) -> None:
        """Forget what waits."""
        self.waiting.clear()
        self.together.clear()

    def whole(self, utterance: Utterance) -> WindowResult:
        """Decode a whole segment as a job decodes a window; times count from the start of the window."""
        window = utterance.window
        work = Work([window], lambda span: utterance.samples, speech=utterance.speech, doubt=self._doubt)
        return recognise(work, self._recogniser, replace(self._options, language=self._known))[0]

    def glance(self, utterance: Utterance, options: RecogniseOptions) -> WindowResult:
        """Decode a part of a segment once, and leave out what no sound supports."""
        found = self._recogniser.recognise([utterance.samples], replace(options, language=self._known))[0]
        if not self._doubt:
            return found
        speech = inside(utterance.window, utterance.speech)
        return replace(found, segments=tuple(one for one in found.segments if not is_unfounded(one, speech)))

    def note_language(self, found: WindowResult) -> None:
        """Keep a language that two segments in a row were sure of: a word must not be spelt in another one."""
        if self._known is not None or not found.segments:
            return
        sure = found.language_probability is None or found.language_probability >= _SURE
        if sure and found.language == self._told:
            self._known = found.language
        self._told = found.language if sure else None


def placed(utterance: Utterance, found: WindowResult) -> tuple[Segment, ...]:
    """Return the segments of a window in the time of the stream: inside the window, none going back."""
    return merge([Piece([utterance.window], [found])], samples_to_seconds(utterance.window.end_samples))


def words_in(segments: Sequence[Segment]) -> list[Word]:
    """Return all words, with times that were spread where the engine gave none."""
    return [word for segment in segments for word in words_of(segment)]


def result(kind: Literal["final", "revised"], utterance: Utterance, found: WindowResult) -> Result:
    """Return the event of a whole decode."""
    return _result(kind, utterance.segment_id, utterance.window, placed(utterance, found), found.language)


def results(utterance: Utterance, parts: Sequence[Part], found: WindowResult) -> list[Result]:
    """Return a revised result for each segment that was decoded together with others."""
    heard = shares(placed(utterance, found), parts)
    return [
        _result("revised", part.segment_id, part.window, segments, found.language)
        for part, segments in zip(parts, heard, strict=True)
    ]


def _result(
    kind: Literal["final", "revised"],
    segment_id: int,
    window: Span,
    segments: Sequence[Segment],
    language: str | None,
) -> Result:
    """Return the event of a segment."""
    words = tuple(word for segment in segments for word in segment.words)
    return Result(
        kind=kind,
        segment_id=segment_id,
        start_s=samples_to_seconds(window.start_samples),
        heard_s=samples_to_seconds(window.end_samples),
        text="".join(segment.text for segment in segments).strip(),
        words=words,
        stable_words=len(words),
        segments=tuple(segments),
        language=language,
    )
