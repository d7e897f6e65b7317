"""Signs that are no letters: named, left out, or kept because an engine hears a pause in them."""

import re
import unicodedata
from functools import lru_cache

from voicejobs.text.rules import Rule, rule
from voicejobs.text.wording import Wording

_FULL_WIDTH = {code: code - 0xFEE0 for code in (*range(0xFF10, 0xFF1A), *range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B))}
_LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}
_QUOTES = {0x2018: "'", 0x2019: "'", 0x201B: "'", 0x02BC: "'", 0x00AD: None, 0x2060: None, 0xFEFF: None, 0x2011: "-"}
_TABLE = _FULL_WIDTH | _LIGATURES | _QUOTES
_BLANKS = re.compile(r"\s+")
_GAPS = re.compile(r"\s+([,.;:!?…])|([(])\s+|\s+([)])")
_DOUBLED = re.compile(r"(?:,\s*){2,}|,\s*(?=[.;:!?])|(?<=[;:!?])\s*,(?=\s|$)")
_KEYCAP = re.compile("([0-9#*])\ufe0f?\u20e3")
_REMOVED = frozenset(("So", "Sk", "Co", "Cn", "Cs", "Cc", "Cf", "Me", "Lm_"))
_JOINERS = "\u200c\u200d"
_DROPPED = frozenset("*_`{}[]|~^\\<>=+#@&$%/")
_COMPARISONS = "<>≤≥≈≠"
_ASCII_SIGNS = {"<=": "≤", ">=": "≥", "!=": "≠", "==": "=", "+/-": "±", "(c)": "©", "(C)": "©"}


def clean(text: str) -> str:
    """Return the text in composed form, on one line, with wide digits, ligatures and quotes as the plain ones."""
    text = unicodedata.normalize("NFC", text).translate(_TABLE)
    text = _KEYCAP.sub(r"\1", text)
    return _BLANKS.sub(" ", text).strip()


def early_rules() -> list[Rule]:
    """Return the rules that come first: signs made of several, and marks of quoted lines."""
    return [
        rule(r"^(?:>\s?)+", lambda found: ""),
        rule(r"\s?<?(?:-{1,3}|={1,3})>\s?|\s?<-{1,2}\s", lambda found: ", "),
        rule(
            "|".join(re.escape(sign) for sign in _ASCII_SIGNS) + r"(?!=)",
            lambda found: _ASCII_SIGNS.get(found[0], found[0]),
        ),
        rule(r"\s*--+\s*|\s+[–—]\s+|\s*—\s*", lambda found: ", "),
    ]


def late_rules(wording: Wording) -> list[Rule]:
    """Return the rules that name the signs which are left, and take away those without a name."""
    named = "".join(re.escape(sign) for sign in wording.symbols)
    found = []
    if named:
        found.append(rule(rf"[{named}]", lambda one: _named(one, wording)))
    return found


def _named(found: re.Match[str], wording: Wording) -> str:
    """Return the name of a sign; a comparison with nothing before it has no verb."""
    name = wording.symbols[found[0]]
    before = found.string[: found.start()].rstrip()[-1:]
    if found[0] in _COMPARISONS and not (before and (before.isalnum() or before in ")]'\"%")):
        name = name.removeprefix("is ")
    return f" {name} "


def tidy(text: str, *, drops: bool) -> str:
    """Return the text without emoji and signs nobody says, blanks and commas in order.

    Args:
        text: what the rules have made.
        drops: leave out ASCII signs too, which the rules of the language have named where they mean something.
    """
    kept = "".join(_kept(text, drops=drops))
    kept = _BLANKS.sub(" ", kept).strip()
    kept = _GAPS.sub(lambda found: found[1] or found[2] or found[3], kept)
    return _DOUBLED.sub(lambda found: ", " if found[0].count(",") > 1 else "", kept).strip(" ,")


def _kept(text: str, *, drops: bool) -> list[str]:
    """Return the characters that stay, and blanks for those that part words."""
    found = []
    for place, character in enumerate(text):
        if character in _JOINERS:  # part of words in some scripts, of emoji elsewhere
            if 0 < place < len(text) - 1 and text[place - 1].isalpha() and text[place + 1].isalpha():
                found.append(character)
        elif _is_removed(character) or (drops and character in _DROPPED):
            found.append(" ")
        elif not (unicodedata.category(character) == "Mn" and 0xFE00 <= ord(character) <= 0xFE0F):  # noqa: PLR2004
            found.append(character)
    return found


@lru_cache(maxsize=4096)
def _is_removed(character: str) -> bool:
    """Tell whether a character is an emoji, an ornament or a control."""
    return character not in "^`" and unicodedata.category(character) in _REMOVED
