"""Which scripts a language is written in, and what of a text is in none of them."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from voicejobs.text.tags import base_language

_LATIN = "LATIN"
_SCIENCE = "GREEK"
"""Single letters of it stand in texts of every language, and voices know their names."""
_HAN = "CJK"
_KANA = ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "FULLWIDTH", "HALFWIDTH", "IDEOGRAPHIC")
_OF_LANGUAGE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("ru uk be bg mk kk ky mn tg tt ba".split(), ("CYRILLIC",)),
    "sr": ("CYRILLIC", _LATIN),
    **dict.fromkeys("ar fa ur ps sd".split(), ("ARABIC",)),
    **dict.fromkeys("hi mr ne sa".split(), ("DEVANAGARI",)),
    "zh": (_HAN, "BOPOMOFO"),
    "ja": (_HAN, *_KANA),
    "ko": ("HANGUL", _HAN),
    "el": ("GREEK",),
    "he": ("HEBREW",),
    "yi": ("HEBREW",),
    "th": ("THAI",),
    "ka": ("GEORGIAN",),
    "hy": ("ARMENIAN",),
    "bn": ("BENGALI",),
    "as": ("BENGALI",),
    "ta": ("TAMIL",),
    "te": ("TELUGU",),
    "kn": ("KANNADA",),
    "ml": ("MALAYALAM",),
    "gu": ("GUJARATI",),
    "pa": ("GURMUKHI",),
    "si": ("SINHALA",),
    "my": ("MYANMAR",),
    "km": ("KHMER",),
    "lo": ("LAO",),
    "bo": ("TIBETAN",),
    "am": ("ETHIOPIC",),
}


@dataclass(frozen=True, slots=True)
class Speakable:
    """Hold what of a text a voice can say, and what it cannot.

    Args:
        text: the text without runs of letters in other scripts; a blank stands where one was.
        skipped: those runs, in order.
    """

    text: str
    skipped: tuple[str, ...] = ()


def speakable(text: str, languages: Sequence[str]) -> Speakable:
    """Return `text` without the letters that no voice of `languages` knows.

    Digits, marks and symbols stay: they belong to no script. Languages whose script is not in the table are written
    in Latin letters.

    Args:
        text: any text.
        languages: codes of the languages of the voice; none: everything is taken to be known.
    """
    if not languages:
        return Speakable(text)
    known = {script for language in languages for script in _OF_LANGUAGE.get(base_language(language), (_LATIN,))}
    known.add(_SCIENCE)
    kept: list[str] = []
    skipped: list[str] = []
    for is_known, run in groupby(text, key=lambda character: _script(character) in known or not _script(character)):
        part = "".join(run)
        if is_known:
            kept.append(part)
        else:
            kept.append(" ")
            skipped.append(part)
    return Speakable("".join(kept), tuple(skipped))


@lru_cache(maxsize=4096)
def _script(character: str) -> str:
    """Return the first word of a letter's name, which is its script; empty for what is no letter."""
    if not unicodedata.category(character).startswith("L"):
        return ""
    return unicodedata.name(character, "UNKNOWN").split()[0]
