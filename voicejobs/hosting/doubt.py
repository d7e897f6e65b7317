"""Results of a batch that may have lost or repeated passages, and are decoded again alone."""

from collections import Counter

from voicejobs.audio.types import WindowResult

_SPEECH_S = 1.0
_FEWEST_CHARACTERS_PER_S = 1.0
_MOST_CHARACTERS_PER_S = 45.0
_PHRASE_WORDS = 3
_PHRASE_TIMES = 4


def is_doubtful(seconds: float, result: WindowResult) -> bool:
    """Tell whether the text of a window of speech of `seconds` looks wrong for its length.

    Characters are counted rather than words, since not all scripts put blanks between words: people speak 4
    (Chinese) to 20 (English) characters a second.
    """
    text = "".join(segment.text for segment in result.segments).strip()
    if seconds > _SPEECH_S and not text:
        return True
    rate = len(text) / max(seconds, _SPEECH_S)
    too_few = seconds > _SPEECH_S and rate < _FEWEST_CHARACTERS_PER_S
    return too_few or rate > _MOST_CHARACTERS_PER_S or _repeats(text)


def _repeats(text: str) -> bool:
    """Tell whether a phrase comes so often that it makes up most of the text."""
    words = text.lower().split()
    phrases = Counter(zip(*(words[start:] for start in range(_PHRASE_WORDS)), strict=False))
    if not phrases:
        return False
    _, times = phrases.most_common(1)[0]
    return times >= _PHRASE_TIMES and times * _PHRASE_WORDS * 2 > len(words)
