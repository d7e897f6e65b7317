"""The languages that whisper models know: codes, English names, and what people type for them."""

import re
from difflib import get_close_matches

from voicejobs.audio.languages import LANGUAGES
from voicejobs.errors import BadOption

__all__ = ["LANGUAGES", "language_code"]

_OTHER_NAMES = """
my burmese, es castilian, nl flemish, ht haitian, lb letzeburgesch, zh mandarin, ro moldavian, ro moldovan, pa
panjabi, ps pushto, si sinhalese, ca valencian, no norwegian bokmål, nn norwegian nynorsk,
ht haitian kreyol, he ivrit, fa farsi, zh simplified chinese, zh traditional chinese
"""

_AUTO = frozenset({"", "auto", "none"})
_SHAPE = re.compile(r"[a-z]{2,3}")


def _pairs(table: str) -> list[tuple[str, str]]:
    """Return the code and the name of each entry of a table."""
    entries = (" ".join(entry.split()).partition(" ") for entry in table.split(","))
    return [(code, name) for code, _, name in entries]


_CODES = {name: code for code, name in (*_pairs(_OTHER_NAMES), *LANGUAGES.items())} | {"jv": "jw"}


def language_code(text: str, *, strict: bool = True) -> str | None:
    """Return whisper's code of a language named by code, code with region (`pt-BR`) or English name.

    Nothing, `auto` and `none` mean that the language is to be told from the speech: None.

    Args:
        text: what a user wrote, in any case.
        strict: refuse codes that whisper does not know; other engines may know them.

    Raises:
        BadOption: there is no such language.
    """
    wanted = " ".join(text.lower().replace("_", "-").split())
    if wanted in _AUTO:
        return None
    for name in (wanted, wanted.partition("-")[0]):
        if name in LANGUAGES:
            return name
        if name in _CODES:
            return _CODES[name]
    if not strict and _SHAPE.fullmatch(wanted):
        return wanted
    near = get_close_matches(wanted, [*_CODES, *LANGUAGES], n=1, cutoff=0.6)
    suggestion = f"Did you mean {near[0]!r}? " if near else ""
    raise BadOption(
        f"{text!r} is no language that whisper models know",
        hint=f"{suggestion}Give a code such as en or de, an English name such as german, or auto.",
    )
