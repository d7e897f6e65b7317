"""Dates and times of day."""

import re
from datetime import date

from voicejobs.text import numbers
from voicejobs.text.rules import Rule, alternatives, rule
from voicejobs.text.tags import base_language, region
from voicejobs.text.wording import Wording

_CENTURY = 100
_TURN = 70
"""Years of two digits below it are of this century."""
_HOURS, _MINUTES, _TEN = 24, 60, 10
_NOON = 12
_JOINERS = {"es": " de ", "pt": " de "}
_MONTH_FIRST_REGIONS = frozenset({"", "US", "PH"})
_GERMAN_ENDING = {"de": "n"}
"""German dates stand in a case other than the first nearly always: am vierten März."""


def rules(language: str, wording: Wording) -> list[Rule]:
    """Return the rules for dates and times."""
    reader = _Dates(language, wording)
    found: list[Rule] = []
    if wording.months:
        found += reader.rules()
    return found + _clock_rules(language, wording)


class _Dates:
    """Say dates in one language."""

    def __init__(self, language: str, wording: Wording) -> None:
        self._language = language
        self._base = base_language(language)
        self._wording = wording
        self._numbers = {name.lower(): number for number, name in enumerate(wording.months, start=1)}
        if self._base == "en":
            self._numbers |= {name[:3].lower(): number for name, number in self._numbers.items()} | {"sept": 9}

    def rules(self) -> list[Rule]:
        """Return the rules for dates, those that are surest first."""
        months = alternatives(self._numbers)
        clock = r"(?:T(?P<time>\d{2}:\d{2})(?::\d{2})?(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})?)?"
        joiner = r"\.?\s(?:de\s)?" if self._base in _JOINERS else r"\.?\s"
        found = [
            rule(rf"(?<![\w-])(?P<y>\d{{4}})-(?P<m>\d{{2}})-(?P<d>\d{{2}}){clock}(?![\w-])", self._iso),
            rule(r"(?<![\w/.])(\d{1,2})([/.])(\d{1,2})\2(\d{4}|\d{2})(?![\w/]|\.\d)", self._slashed),
            rule(
                rf"(?<![\w/.,])(?P<the>the\s)?(?P<d>\d{{1,2}})(?:st|nd|rd|th|er)?{joiner}(?:of\s)?(?P<m>{months})(?!\w)"
                rf"(?:\.(?=[\s,]+\d))?(?:,?\s(?:de\s)?(?P<y>[12]\d{{3}})(?![\w%]|[.,:/]\d))?",
                self._day_first,
                re.IGNORECASE,
            ),
        ]
        if self._base == "en":
            found += [
                rule(
                    rf"\b(?P<m>{months})\.?\s(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?![\w%/]|[.,:]\d)"
                    rf"(?:,?\s(?P<y>[12]\d{{3}})(?![\w%]|[.,:/]\d))?",
                    self._month_first,
                    re.IGNORECASE,
                ),
                rule(
                    rf"\b(?P<m>{months})\.?,?\s(?P<y>1[1-9]\d\d|20\d\d)(?![\w%]|[.,:/]\d)",
                    self._month_year,
                    re.IGNORECASE,
                ),
            ]
        return found

    def _iso(self, found: re.Match[str]) -> str:
        words = self._words(found, int(found["y"]), int(found["m"]), int(found["d"]))
        return f"{words} {found['time']}" if found["time"] and words != found[0] else words

    def _slashed(self, found: re.Match[str]) -> str:
        first, second, year = int(found[1]), int(found[3]), int(found[4])
        if len(found[4]) == 2:  # noqa: PLR2004 - two digits
            year += 2000 if year < _TURN else 1900
        month_first = self._base == "en" and found[2] == "/" and region(self._language) in _MONTH_FIRST_REGIONS
        month, day = (first, second) if month_first and first <= _NOON else (second, first)
        if month > _NOON:
            month, day = day, month
        return self._words(found, year, month, day)

    def _day_first(self, found: re.Match[str]) -> str:
        month, day = self._numbers[found["m"].lower()], int(found["d"])
        if not 1 <= day <= 31:  # noqa: PLR2004 - days of a month
            return found[0]
        if self._base == "en" and not found["m"][0].isupper():
            return found[0]
        name = self._wording.months[month - 1]
        if self._base == "en":
            words = f"{found['the'] or 'the '}{numbers.ordinal(day, 'en')} of {name}"
        else:
            words = f"{self._day(day)}{_JOINERS.get(self._base, ' ')}{name}"
        return words + (self._year(int(found["y"])) if found["y"] else "")

    def _month_first(self, found: re.Match[str]) -> str:
        day = int(found["d"])
        if not 1 <= day <= 31 or not found["m"][0].isupper():  # noqa: PLR2004 - days of a month
            return found[0]
        name = self._wording.months[self._numbers[found["m"].lower()] - 1]
        return f"{name} {self._day(day)}" + (self._year(int(found["y"])) if found["y"] else "")

    def _month_year(self, found: re.Match[str]) -> str:
        if not found["m"][0].isupper():
            return found[0]
        name = self._wording.months[self._numbers[found["m"].lower()] - 1]
        return f"{name} {numbers.year(int(found['y']), self._language)}"

    def _words(self, found: re.Match[str], year: int, month: int, day: int) -> str:
        """Return a whole date in words, or as it is written where there is no such day."""
        try:
            date(year, month, day)
        except ValueError:
            return found[0]
        name = self._wording.months[month - 1]
        if self._base == "en":
            return f"{name} {self._day(day)}{self._year(year)}"
        return f"{self._day(day)}{_JOINERS.get(self._base, ' ')}{name}{self._year(year)}"

    def _day(self, day: int) -> str:
        ordinal = self._wording.day_is_ordinal == "all" or (self._wording.day_is_ordinal == "first" and day == 1)
        if not ordinal:
            return numbers.cardinal(day, self._language)
        return numbers.ordinal(day, self._language) + _GERMAN_ENDING.get(self._base, "")

    def _year(self, year: int) -> str:
        words = numbers.year(year, self._language)
        return f", {words}" if self._base == "en" else f"{_JOINERS.get(self._base, ' ')}{words}"


def _clock_rules(language: str, wording: Wording) -> list[Rule]:
    """Return the rules for times of day."""
    base = base_language(language)
    half = r"(?P<half>[AaPp])\.?\s?[Mm](?:\.(?=\S|\s+[a-z])|(?!\w))" if base == "en" else r"(?P<half>(?!))"
    word = {"de": r"\s?Uhr\b", "nl": r"\s?uur\b"}.get(base, "(?!)")

    def words(found: re.Match[str]) -> str:
        return _time(found, language, wording)

    seconds = r"(?::(?P<s>\d{2}))?"
    to = f" {wording.range_to} " if wording.range_to else " - "
    found = [
        rule(r"(?<![\w:.,])(\d{1,2}:\d{2})\s?[-–]\s?(?=\d{1,2}:\d{2}(?!\d))", lambda one: one[1] + to),
        rule(rf"(?<![\w:.,])(?P<h>\d{{1,2}}):(?P<m>\d{{2}}){seconds}(?!\d|:\d|[.,]\d)(?:\s?{half}|{word})?", words),
        rule(rf"(?<![\w:.,$€£])(?P<h>\d{{1,2}})\s?{half}", words),
    ]
    if base in {"de", "nl"}:
        found.append(rule(rf"(?<![\w:.,])(?P<h>\d{{1,2}})\.(?P<m>\d{{2}}){word}", words))
    if base == "fr":
        found.append(rule(r"(?<![\w:.,])(?P<h>\d{1,2})\s?h(?:\s?(?P<m>\d{2}))?(?!\w)", words))
    return found


def _time(found: re.Match[str], language: str, wording: Wording) -> str:
    """Return a time of day in words."""
    parts = found.groupdict()
    hour, minute, second = int(parts["h"]), int(parts.get("m") or 0), int(parts.get("s") or 0)
    half = (parts.get("half") or "").upper()
    if hour > _HOURS or minute >= _MINUTES or second >= _MINUTES or (half and not 1 <= hour <= _NOON):
        return found[0]
    if base_language(language) != "en":
        return _plain_time(hour, minute, second, language, wording)
    if parts.get("s"):
        units = ((hour, "hour"), (minute, "minute"), (second, "second"))
        said = [f"{numbers.cardinal(value, 'en')} {name}{'' if value == 1 else 's'}" for value, name in units if value]
        words = " ".join(said) or "zero seconds"
    elif minute:
        lead = "oh " if minute < _TEN else ""
        words = f"{numbers.cardinal(hour, 'en')} {lead}{numbers.cardinal(minute, 'en')}"
    elif half:
        words = numbers.cardinal(hour, "en")
    elif hour > _NOON or hour == 0:
        words = f"{numbers.cardinal(hour, 'en')} hundred" if hour else "midnight"
    else:
        words = f"{numbers.cardinal(hour, 'en')} o'clock"
    return f"{words} {half} M" if half else words


def _plain_time(hour: int, minute: int, second: int, language: str, wording: Wording) -> str:
    """Return hours, minutes and seconds in words, with what the language says between them."""
    parts = [numbers.cardinal(hour, language)]
    if minute or second:
        parts += [wording.clock, numbers.cardinal(minute, language)]
    else:
        parts.append(wording.o_clock)
    if second:
        parts.append(numbers.cardinal(second, language))
    return " ".join(part for part in parts if part)
