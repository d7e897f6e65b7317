"""Weigh text against sound: how much speech there was where the recogniser wrote words, and how sure it was.

Recognisers write words where nobody speaks: thanks to viewers, credits of subtitles, the prompt. No word is suspect by
itself. What counts is the speech that the detector heard there; only where that is weak or missing do the figures of
the recogniser and the wording decide.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from voicejobs.audio.types import Segment, Span
from voicejobs.steps.plan import Speech
from voicejobs.units import samples_to_seconds

_NEAR_S = 0.5
"""Times of segments are off by as much."""
_STRONG_PEAK = 0.85
"""The shortest real words that were measured reach 0.93; hum and loud hiss at their worst 0.79."""
_STRONG_S = 0.5
_WIDE_LETTER = 2.5
"""A Chinese, Japanese or Korean character takes as long to say as so many letters."""
_DIGIT = 4.0
"""A digit is a word of about so many letters."""
_FASTEST_LETTERS_PER_S = 25.0
_IMPOSSIBLE_LETTERS_PER_S = 45.0
_SHORTEST_SPEECH_S = 0.3
_STILL_S = 0.05
_SAME_WORDS = 0.6
_SHORTEST_MATCH = 3
_LONG_PROMPT = 12

_HABIT = re.compile(
    r"(thanks?|thank you|thank you (so|very) much)( for (watching|listening))?|you|bye|bye bye|the end|okay|oh|hmm?"
    r"|(please )?(like and )?subscribe.*|.*\b(subtitles|captions|captioning|transcribed|transcript(ion)?)\b.*\bby\b.*"
    r"|.*amara ?org.*|untertitel.*|vielen dank.*|sous titr.*|merci d avoir.*|subtitulos.*|gracias por ver.*"
    r"|sottotitoli.*|legendas?.*|napisy.*|продолжение следует|субтитры.*|спасибо за просмотр"
    r"|ご視聴ありがとうございました|字幕.*|請不吝.*|谢谢观看|謝謝觀看|시청해주셔서감사합니다"
)
"""What whisper models learnt to write under silence; it counts only where there is little or no speech."""


@dataclass(frozen=True, slots=True)
class Confidence:
    """Hold what a recogniser says of its own text; what it does not say counts as sure."""

    logprob: float
    no_speech: float

    @classmethod
    def of(cls, segment: Segment) -> "Confidence":
        """Return the figures of a segment."""
        logprob = 0.0 if segment.avg_logprob is None else segment.avg_logprob
        return cls(logprob, segment.no_speech_prob or 0.0)

    def is_below(self, logprob: float, no_speech: float) -> bool:
        """Tell whether the text is less sure, or silence more likely, than that."""
        return self.logprob < logprob or self.no_speech > no_speech


def is_unfounded(segment: Segment, speech: Sequence[Speech] | None) -> bool:
    """Tell whether a segment says more than the sound supports; times as those of `speech`.

    Args:
        segment: from the recogniser.
        speech: speech in the window; None where that is not to count.
    """
    if not words_of(segment.text):
        return True  # only marks or notes of music
    if speech is None:
        return False
    near = [one for one in speech if _overlap_s(one.span, segment.start_s - _NEAR_S, segment.end_s + _NEAR_S) > 0]
    sure = Confidence.of(segment)
    habit = bool(_HABIT.fullmatch(" ".join(words_of(segment.text))))
    if not near:
        return habit or sure.is_below(-0.6, 0.3)
    if not any(one.peak >= _STRONG_PEAK or samples_to_seconds(one.span.length_samples) >= _STRONG_S for one in near):
        return sure.is_below(-0.5, 0.3) if habit else sure.is_below(-0.9, 0.5)
    heard_s = sum(_overlap_s(one.span, segment.start_s - _NEAR_S, segment.end_s + _NEAR_S) for one in near)
    rate = weight(segment.text) / max(heard_s, _SHORTEST_SPEECH_S)
    return rate > _IMPOSSIBLE_LETTERS_PER_S and sure.is_below(-0.8, 0.6)


def without_echoes(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Return the segments without those that take no time and say what the one before them said."""
    kept: list[Segment] = []
    for segment in segments:
        still = segment.end_s - segment.start_s < _STILL_S
        if still and kept and words_of(segment.text) == words_of(kept[-1].text):
            continue
        kept.append(segment)
    return tuple(kept)


def may_repeat(text: str, prompt: str) -> bool:
    """Tell whether a text may be the prompt, or a part of it, or hold it: then it is worth a second look."""
    said, given = words_of(text), words_of(prompt)
    if not said or not given:
        return False
    letters, all_letters = "".join(said), "".join(given)
    holds_all = len(all_letters) >= _LONG_PROMPT and all_letters in letters
    return holds_all or letters in all_letters or set(said) <= set(given)


def is_heard_in(text: str, whole: str) -> bool:
    """Tell whether the words of a text are in another, spelling aside: `voicejobs` is in `run Voice Jobs here`."""
    wanted, letters = "".join(words_of(text)), "".join(words_of(whole))
    shortest = min(_SHORTEST_MATCH, len(wanted))
    blocks = SequenceMatcher(None, wanted, letters, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks if block.size >= shortest) >= _SAME_WORDS * len(wanted)


def speech_s(speech: Sequence[Speech], start_s: float, end_s: float) -> float:
    """Return the seconds of speech between two times."""
    return sum(_overlap_s(one.span, start_s, end_s) for one in speech)


def most_letters(seconds: float) -> float:
    """Return the weight of what the fastest speaker says in so many seconds of speech."""
    return max(seconds, _SHORTEST_SPEECH_S) * _FASTEST_LETTERS_PER_S


def words_of(text: str) -> list[str]:
    """Return the words, without marks, in lower case."""
    return re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower().replace("_", " "))


def weight(text: str) -> float:
    """Return how much there is to say, in letters: digits and characters that are whole syllables count as several."""
    return sum(
        _DIGIT if letter.isdigit() else _WIDE_LETTER if is_wide(letter) else 1.0 for letter in text if letter.isalnum()
    )


def is_wide(letter: str) -> bool:
    """Tell whether a character is of a script that writes no spaces between words, or whole syllables."""
    return unicodedata.east_asian_width(letter) in {"W", "F"}


def _overlap_s(span: Span, start_s: float, end_s: float) -> float:
    """Return how long a span lies between two times."""
    first, last = samples_to_seconds(span.start_samples), samples_to_seconds(span.end_samples)
    return max(0.0, min(last, end_s) - max(first, start_s))
