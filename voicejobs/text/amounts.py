"""Money, units, percent, ranges, and numbers as such."""

import re

from voicejobs.text import numbers
from voicejobs.text.abbreviations import ORDINAL_DOT
from voicejobs.text.rules import Rule, alternatives, rule
from voicejobs.text.tags import base_language
from voicejobs.text.wording import Wording

_BEFORE = r"(?<![\w.,])"
_SIGN = r"(?P<sign>(?<![\w)\]\d.,])[-−])?"
_ONES = {"de": "ein", "es": "un", "it": "un", "pt": "um", "nl": "een"}
_YEAR = re.compile(r"1[1-9]\d\d|20\d\d")
_CENTS = 2
_WITHOUT_BLANKS = frozenset("ja zh ko th".split())


def rules(language: str, wording: Wording) -> list[Rule]:
    """Return the rules for amounts and numbers, in the order in which they must be tried."""
    if not numbers.has_words(language):
        return []
    reader = _Amounts(language, wording)
    return [*reader.money(), *reader.measures(), *reader.plain()]


class _Amounts:
    """Say amounts in one language."""

    def __init__(self, language: str, wording: Wording) -> None:
        self._language = language
        self._base = base_language(language)
        self._wording = wording
        self._number = numbers.number_pattern(language)

    def money(self) -> list[Rule]:
        """Return the rules for money, and for ranges of it."""
        money = self._wording.money
        if not money:
            return []
        symbols = alternatives(money)
        many = alternatives(self._wording.magnitudes) or "(?!)"
        magnitude = rf"(?:\s?(?P<mag>{many})(?![\w/]))?"
        return [
            rule(
                rf"(?<!\w)(?P<sym>{symbols})\s?(?P<a>{self._number})\s?[-–—]\s?(?:{symbols})?(?P<b>{self._number})"
                rf"{magnitude}(?!\w)",
                self._money_range,
            ),
            rule(rf"(?<!\w){_SIGN}(?P<sym>{symbols})\s?(?P<a>{self._number}){magnitude}(?!\w)", self._money),
            rule(rf"{_BEFORE}{_SIGN}(?P<a>{self._number}){magnitude}\s?(?P<sym>{symbols})(?!\w)", self._money),
        ]

    def measures(self) -> list[Rule]:
        """Return the rules for ranges, percent and units."""
        number, wording = self._number, self._wording
        found = []
        if wording.range_to:
            ends = rf"{_BEFORE}(?<![-–—/:])(?P<a>{number})(?:\s?[–—]\s?|-)(?P<b>{number})(?![\d-]|[.,–—/:]\d)"
            found.append(rule(ends, self._range))
        if wording.percent:
            found.append(rule(rf"{_BEFORE}{_SIGN}(?P<a>{number})\s?%", self._percent))
        if wording.units:
            units = alternatives(wording.units)
            found.append(rule(rf"{_BEFORE}{_SIGN}(?P<a>{number})[ -]?(?P<unit>{units})(?![\w²³/°])", self._measure))
        return found

    def plain(self) -> list[Rule]:
        """Return the rules for numbers that are nothing else."""
        found = []
        if self._base in ORDINAL_DOT:
            found.append(rule(r"(?<=\s)(?P<a>\d{1,3})\.(?=\s+[^\W\d_])", self._ordinal))
        if self._base == "fr":
            found.append(rule(r"(?<!\w)(?P<a>\d{1,3})(?:ers?|ères?|re|e|ème|èmes)(?!\w)", self._ordinal))
        if self._base in {"es", "it", "pt"}:
            found.append(rule(r"(?<!\w)(?P<a>\d{1,3})\.?[ºª]", self._ordinal))
        if self._base in _ONES:
            found.append(rule(r"(?<![\w.,])1(?=\s[^\W\d_])", lambda one: _ONES[self._base]))
        return [
            *found,
            rule(r"(?<![\d.,])\d+(?:\.\d+){2,}(?![\w])", self._dotted),
            rule(r"(?<=\d)[-–](?=\d)", lambda _: " "),
            rule(rf"{_SIGN}(?P<a>{self._number})", self._signed),
        ]

    def _say(self, written: str) -> str:
        return numbers.say(numbers.plain_number(written, self._language), self._language)

    def _money(self, found: re.Match[str]) -> str:
        """Return an amount of money in words."""
        money = self._wording.money[found["sym"]]
        number = numbers.plain_number(found["a"], self._language)
        whole, _, rest = number.partition(".")
        sign = f"{self._wording.minus} " if found["sign"] else ""
        if found["mag"]:
            one, many = self._wording.magnitudes[found["mag"]]
            return f" {sign}{self._count(number)} {one if number == '1' else many} {money.many} "
        if len(rest) == _CENTS and money.cents:
            cents = int(rest)
            if cents and not int(whole):
                return f" {sign}{self._count(str(cents))} {money.cent if cents == 1 else money.cents} "
            words = f"{self._count(whole)} {money.one if int(whole) == 1 else money.many}"
            if cents:
                also = self._wording.symbols.get("&", "")
                words += f" {also} {self._count(str(cents))} {money.cent if cents == 1 else money.cents}"
            return f" {sign}{words} "
        return f" {sign}{self._count(number)} {money.one if number == '1' else money.many} "

    def _money_range(self, found: re.Match[str]) -> str:
        """Return a range of money in words."""
        magnitude = f" {self._wording.magnitudes[found['mag']][1]}" if found["mag"] else ""
        ends = f"{self._say(found['a'])} {self._wording.range_to or '-'} {self._say(found['b'])}"
        return f" {ends}{magnitude} {self._wording.money[found['sym']].many} "

    def _count(self, number: str) -> str:
        """Return a number before a noun: languages have a short form of one."""
        return (
            _ONES.get(self._base, "") or numbers.say("1", self._language)
            if number == "1"
            else numbers.say(number, self._language)
        )

    def _range(self, found: re.Match[str]) -> str:
        """Return a range; its second number is left to the rules that know what it counts."""
        first, second = found["a"], found["b"]
        if _YEAR.fullmatch(first) and _YEAR.fullmatch(second):
            start, end = (numbers.year(int(text), self._language) for text in (first, second))
            return f"{start} {self._wording.range_to} {end}"
        if _YEAR.fullmatch(first) and len(second) == _CENTS:
            return f"{numbers.year(int(first), self._language)} {self._wording.range_to} {second}"
        return f"{self._say(first)} {self._wording.range_to} {second}"

    def _percent(self, found: re.Match[str]) -> str:
        sign = f"{self._wording.minus} " if found["sign"] else ""
        return f"{sign}{self._say(found['a'])} {self._wording.percent}"

    def _measure(self, found: re.Match[str]) -> str:
        number = numbers.plain_number(found["a"], self._language)
        one, many = self._wording.units[found["unit"]]
        sign = f"{self._wording.minus} " if found["sign"] else ""
        return f"{sign}{self._count(number)} {one if number == '1' else many}"

    def _ordinal(self, found: re.Match[str]) -> str:
        return numbers.ordinal(int(found["a"]), self._language)

    def _dotted(self, found: re.Match[str]) -> str:
        """Return a version or an address: its numbers with the word for the point between them."""
        point = numbers.point_word(self._language)
        words = f" {point} ".join(numbers.say(part, self._language) for part in found[0].split("."))
        return f" {words}" if found.string[: found.start()][-1:].isalpha() else words

    def _signed(self, found: re.Match[str]) -> str:
        """Return a number in words, apart from the letters around it."""
        sign = f"{self._wording.minus} " if found["sign"] and self._wording.minus else found["sign"] or ""
        text, (start, end) = found.string, found.span()
        if self._base in _WITHOUT_BLANKS:
            return f"{sign}{self._say(found['a'])}"
        before = " " if start and (text[start - 1].isalpha() or text[start - 1] == ".") else ""
        after = " " if text[end : end + 1].isalpha() else ""
        return f"{before}{sign}{self._say(found['a'])}{after}"
