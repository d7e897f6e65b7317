"""Numbers as words, in the languages that num2words knows; digits stay digits in the others."""

import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from voicejobs.errors import ExtraMissing
from voicejobs.text.tags import base_language, region

MAX_DIGITS = 15
"""Longer numbers are read digit by digit."""

_COMMA_GROUPS = frozenset("en zh ja ko th he hi bn te kn am".split())
_SPACE_GROUPS = frozenset("fr ru uk be bg pl cs sk hu fi sv no nn et lv lt kk".split())
_CODES = {"kk": "kz", "nn": "no", "yue": "zh"}
_REGIONS = {("pt", "BR"): "pt_BR", ("fr", "CH"): "fr_CH", ("fr", "BE"): "fr_BE", ("en", "IN"): "en_IN"}
_POINTS = {
    "en": "point", "de": "Komma", "fr": "virgule", "es": "coma", "it": "virgola", "pt": "vírgula", "nl": "komma",
    "pl": "przecinek", "sv": "komma", "da": "komma", "no": "komma", "ca": "coma", "ro": "virgulă", "cs": "celá",
}  # fmt: skip


def number_pattern(language: str) -> str:
    """Return a pattern for a number without its sign as the language writes it, with groups of three or without."""
    group, point = _signs(language)
    return rf"(?:\d{{1,3}}(?:{group}\d{{3}})+(?!\d)|\d+)(?:{point}\d+)?"


def _signs(language: str) -> tuple[str, str]:
    """Return the patterns of what groups digits and of the decimal sign."""
    base = base_language(language)
    if base in _COMMA_GROUPS or region(language) in {"GB", "US", "AU"}:
        return ",", r"\."
    if base in _SPACE_GROUPS:
        return " ", "[,.]"
    return r"[.\u2019' ]", ","


def plain_number(written: str, language: str) -> str:
    """Return a number as digits with a point, whatever the language writes."""
    group, point = _signs(language)
    whole, mark, rest = re.sub(point if point != "[,.]" else ",", ".", written, count=1).partition(".")
    if re.fullmatch(rf"\d{{1,3}}(?:{group}\d{{3}})+(?:{point}\d+)?", written):
        cut = max(written.rfind(sign) for sign in ",.") if re.search(rf"{point}\d+$", written) else -1
        if cut > 0 and re.search(rf"{group}\d{{3}}$", written[:cut]):
            return re.sub(r"\D", "", written[:cut]) + "." + written[cut + 1 :]
        return re.sub(r"\D", "", written)
    return re.sub(r"\D", "", whole) + (f".{rest}" if mark else "")


def say(number: str, language: str) -> str:
    """Return a number, given as digits with or without a point, as words."""
    whole, _, rest = number.partition(".")
    if len(whole) > MAX_DIGITS or (len(whole) > 1 and whole.startswith("0") and not rest):
        words = digits(whole, language)
    else:
        words = cardinal(int(whole), language)
    if not rest:
        return words
    point = _POINTS.get(base_language(language))
    if point is None:
        return _decimal(whole, rest, language)
    return f"{words} {point} {digits(rest, language)}"


def _decimal(whole: str, rest: str, language: str) -> str:
    """Return a decimal as the language's own rules have it, where it has some."""
    if len(whole) + len(rest) > MAX_DIGITS:
        return f"{digits(whole, language)} {digits(rest, language)}"
    return _words(Decimal(f"{whole}.{rest}"), language, "cardinal") or f"{whole}.{rest}"


def cardinal(value: int, language: str) -> str:
    """Return a whole number as words; as digits where nobody knows the words."""
    return _words(value, language, "cardinal") or str(value)


def ordinal(value: int, language: str) -> str:
    """Return an ordinal as words; as a cardinal where nobody knows it."""
    return _words(value, language, "ordinal") or cardinal(value, language)


def year(value: int, language: str) -> str:
    """Return a year as words."""
    return _words(value, language, "year") or cardinal(value, language)


def digits(text: str, language: str) -> str:
    """Return digits read one by one."""
    return " ".join(cardinal(int(character), language) for character in text if character.isdecimal())


def point_word(language: str) -> str:
    """Return what the sign between a whole number and its fraction is called; empty where it is not known."""
    return _POINTS.get(base_language(language), "")


def has_words(language: str) -> bool:
    """Tell whether numbers of the language become words."""
    return bool(_words(1, language, "cardinal"))


@lru_cache(maxsize=8192)
def _words(value: int | Decimal, language: str, form: str) -> str:
    """Return what num2words makes of a number; empty where it cannot."""
    code = _REGIONS.get((base_language(language), region(language))) or _CODES.get(
        base_language(language), base_language(language)
    )
    try:
        found = _converter()(value, lang=code, to=form)
    except (NotImplementedError, OverflowError, ValueError, TypeError, KeyError, IndexError, AttributeError):
        return ""
    if not isinstance(found, str) or re.search(r"\d", found):
        return ""
    return " ".join(found.replace(",", " ").split())


def _converter() -> Callable[..., Any]:
    """Return the function of the library, which only workers have.

    Raises:
        ExtraMissing: it is not installed.
    """
    try:
        from num2words import num2words  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ExtraMissing("num2words is not installed", hint="pip install 'voicejobs[worker]'") from error
    words: Callable[..., Any] = num2words
    return words
