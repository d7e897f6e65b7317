"""What only English needs: telephone numbers, years, decades, fractions, Roman numerals, initialisms."""

import re
from collections.abc import Callable

from voicejobs.text import numbers
from voicejobs.text.rules import Rule, alternatives, rule

_TITLES = {"No.": "number", "Nos.": "numbers", "no.": "number", "nos.": "numbers", "Fig.": "figure", "fig.": "figure",
    "Vol.": "volume", "vol.": "volume", "Ch.": "chapter", "ch.": "chapter", "Sec.": "section", "sec.": "section",
    "pp.": "pages", "p.": "page", "Art.": "article", "art.": "article", "Eq.": "equation", "eq.": "equation",
    "ext.": "extension", "Ext.": "extension"}  # fmt: skip
_NUMBERED = (
    "Chapter|Part|Act|Scene|Volume|Book|Section|Article|Appendix|Phase|Type|Class|Stage|Level|Tier|Title|Figure|Table"
    "|World War|Super Bowl|Rocky|Mark|Schedule|Annex|Canto|Episode|Season"
)
_RULERS = (
    "Henry|Louis|Charles|George|Edward|Richard|William|James|John|Paul|Pius|Benedict|Elizabeth|Leo|Gregory|Innocent"
    "|Clement|Urban|Alexander|Nicholas|Peter|Catherine|Frederick|Philip|Ferdinand|Napoleon|Ramesses|Mary|Carl|Gustav"
    "|Christian|Haakon|Olaf|Otto|Leopold|Victor|Francis|Robert|David|Malcolm|Boniface|Julius|Sixtus|Darius|Xerxes"
    "|Wilhelm|Ludwig|Rudolf|Albert|Baldwin|Cosimo|Ivan|Constantine|Theodosius|Ptolemy|Cleopatra|Juan|Felipe|Carlos"
)
_ROMAN = r"(?:X{0,3})(?:IX|IV|V?I{0,3})"
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10}
_SPELLED = frozenset(
    "FBI CIA USA UK EU UN API CPU GPU AI TV PC BBC CNN NBC HBO IBM UFO CEO CFO CTO PhD DNA RNA HIV USB HTML CSS SQL"
    " HTTP HTTPS URL URI SDK IDE RPC DVD CD DJ MC VIP ATM GPS SMS FAQ PDF XML JSONL AWS IP TCP UDP SSH SSL TLS IT ID HR"
    " PR QA UI UX VR AR MIT UCLA NYC DC LA NHS MP MPs RAF GDP VAT ISBN ETA DIY RSVP TBA TBD AKA BBQ ADHD PTSD".split()
) - {"AI", "IT", "AKA", "ID", "LA", "AR"} | {"AI"}
_PHONE_WORDS = r"(?:call|phone|tel|telephone|dial|fax|text|number|at|mobile)[.:]?\s"
_DIGITS = re.compile(r"\d+")
_FRACTIONS = {2: ("half", "halves"), 4: ("quarter", "quarters")}
_MAX_DENOMINATOR = 20


def early_rules() -> list[Rule]:
    """Return the rules that come before dates and amounts."""
    return [
        rule(rf"(?<![\w.])(?:{alternatives(_TITLES)})\s?(?=\d)", lambda found: f"{_TITLES[found[0].strip()]} "),
        rule(r"(?<![\w.])Dr\.?\s(?=[A-Z])", lambda found: "Doctor "),
        rule(r"(?<=[a-z]\s)Dr\.(?=\W|$)", _street("Drive")),
        rule(r"(?<![\w.])St\.?\s(?=[A-Z])", lambda found: "Saint "),
        rule(r"(?<=[a-z]\s)St\.(?=\W|$)", _street("Street")),
        rule(r"(?<![\w.+])\+\d{1,3}(?:[\s.-]?\(?\d{1,5}\)?){2,6}(?![\w])", _phone),
        rule(r"(?<![\w.(])\(\d{3}\)\s?\d{3}[-.\s]\d{4}(?![\w-])", _phone),
        rule(r"(?<![\w.-])(?:1[-.\s])?\d{3}([-.\s])\d{3}\1\d{4}(?![\w-])", _phone),
        rule(r"(?<![\w.-])\d{3}-0\d{3}(?![\w-])", _phone),
        rule(rf"(?<=\b)(?P<lead>{_PHONE_WORDS})(?P<number>\d{{3}}-\d{{4}})(?![\w-])", _called, re.IGNORECASE),
        rule(r"(?<!\w)(1[1-9]|20)(\d)0['’]?s(?!\w)", _decade),
        rule(r"(?<![\w])['’](\d)0s(?!\w)", lambda found: _tens(found[1])),
        rule(r"(?<=\b[Tt]he )([2-9])0s(?!\w)", lambda found: _tens(found[1])),
        rule(r"(?<![\w.,])(?P<h>\d{1,3})\s?h\s?(?P<m>\d{1,2})\s?m(?:in)?(?:\s?(?P<s>\d{1,2})\s?s)?(?!\w)", _time_span),
        rule(r"(?<![\w.,])(\d{1,2})\s?['’′]\s?(\d{1,2})\s?(?:[\"”″]|'')", lambda found: f"{found[1]} foot {found[2]}"),
        rule(r"(?<![\w.,\"“])(\d{1,3})[″]", lambda found: f"{found[1]} inches"),
        rule(r"(?<![\w.,])(\d{1,3})[′]", lambda found: f"{found[1]} feet"),
        rule(r"~(?=\s?\d)", lambda found: "about "),
        rule(r"(?<![\w.-])[2-9]\d{2}-\d{3}[1-9](?![\w-])", _phone),
        rule(rf"\b(?P<name>{_NUMBERED})\s(?P<roman>(?=[IVX]){_ROMAN})(?![\w'’])", _numbered),
        rule(rf"\b(?P<name>{_RULERS})\s(?P<roman>(?=[VX]|II|I(?:[,.;:)]|\sof\b)){_ROMAN})(?!\w)", _ruler),
        rule(r"\b24/7\b", lambda found: "twenty-four seven"),
        rule(r"#(?=\d)", lambda found: "number "),
        rule(r"(?<!\w)#(?=[A-Za-z])", lambda found: "hashtag "),
        rule(r"\bC#(?!\w)", lambda found: "C sharp"),
        rule(r"\bC\+\+(?!\w)", lambda found: "C plus plus"),
    ]


def late_rules() -> list[Rule]:
    """Return the rules that come after dates and money, before other numbers."""
    when = "in|since|until|till|by|before|after|during|year|circa|early|late|mid|summer|winter|spring|autumn|fall"
    year = r"(?P<year>1[1-9]\d\d|20\d\d)"
    after = r"(?![\w%°/]|[.,:]\d|-\d|\s(?:[a-z]{2,}s\b|%|km|kg|m\b))"
    return [
        rule(rf"(?P<lead>\b(?:{when})\s|\(){year}{after}", _year, re.IGNORECASE),
        rule(rf"\b(?P<lead>between\s){year}(?P<mid>\sand\s)(?P<end>1[1-9]\d\d|20\d\d){after}", _years, re.IGNORECASE),
        rule(
            rf"\b(?P<lead>from\s){year}(?P<mid>\s(?:to|until)\s)(?P<end>1[1-9]\d\d|20\d\d){after}",
            _years,
            re.IGNORECASE,
        ),
        rule(r"(?<![\w/.,])(?:(?P<whole>\d{1,3})\s)?(?P<a>\d{1,2})/(?P<b>\d{1,2})(?![\w/]|[.,]\d)", _fraction),
        rule(r"(?<![\w.,])(?P<a>\d{1,3}(?:,\d{3})+|\d+)(?:st|nd|rd|th)(?!\w)", _ordinal),
        rule(r"(?<![\w:])(?P<a>\d{1,3}):(?P<b>\d{1,3})(?![\w:])", lambda found: f"{found['a']} to {found['b']}"),
        rule(r"(?<=\d)\s-\s(?=\d)", lambda found: " minus "),
        rule(r"(?<=[\d)])\s?\*\s?(?=[\d(])", lambda found: " times "),
        rule(r"(?<=[\w)])\^(?=[\d(])", lambda found: " to the power of "),
        rule(r"(?<![\w.,\d])\.(?=\d)", lambda found: "point "),
        rule(r"(?<=[A-Za-z])-(?=\d)", lambda found: " "),
    ]


def letter_rules() -> list[Rule]:
    """Return the rules for words that are spelled, last of all: they need the numbers to be words."""
    return [
        rule(r"(?<![\w.])(?:[A-Z]\.){2,}(?:[A-Z](?![\w]))?", _dotted_letters),
        rule(r"(?<![\w'’-])[A-Z]{2,5}(?=s?(?!\w))", _letters),
    ]


def _street(name: str) -> Callable[[re.Match[str]], str]:
    """Return the words for the abbreviation of a street, keeping the full stop that ends a sentence."""
    return lambda found: name + ("." if not found.string[found.end() :].strip() else "")


def _phone(found: re.Match[str]) -> str:
    """Return the digits of a telephone number one by one, with a pause between its groups."""
    groups = [numbers.digits(group, "en") for group in _DIGITS.findall(found[0])]
    return ("plus " if found[0].startswith("+") else "") + ", ".join(groups)


def _called(found: re.Match[str]) -> str:
    first, _, second = found["number"].partition("-")
    return f"{found['lead']}{numbers.digits(first, 'en')}, {numbers.digits(second, 'en')}"


def _time_span(found: re.Match[str]) -> str:
    """Return hours, minutes and seconds of a stretch of time."""
    parts = ((found["h"], "hour"), (found["m"], "minute"), (found["s"], "second"))
    return " ".join(f"{text} {name}{'' if int(text) == 1 else 's'}" for text, name in parts if text)


def _decade(found: re.Match[str]) -> str:
    century, tens = int(found[1]), found[2]
    if tens == "0":
        return f"{numbers.cardinal(century, 'en')} hundreds" if century != 20 else "two thousands"  # noqa: PLR2004
    return f"{numbers.cardinal(century, 'en')} {_tens(tens)}"


def _tens(digit: str) -> str:
    """Return `nineties` for 9; zero and one have no such word."""
    words = numbers.cardinal(int(digit) * 10, "en")
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"


def _value(roman: str) -> int:
    values = [_ROMAN_VALUES[letter] for letter in roman]
    return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))


def _numbered(found: re.Match[str]) -> str:
    return f"{found['name']} {numbers.cardinal(_value(found['roman']), 'en')}"


def _ruler(found: re.Match[str]) -> str:
    return f"{found['name']} the {numbers.ordinal(_value(found['roman']), 'en')}"


def _year(found: re.Match[str]) -> str:
    return f"{found['lead']}{numbers.year(int(found['year']), 'en')}"


def _years(found: re.Match[str]) -> str:
    start, end = (numbers.year(int(found[name]), "en") for name in ("year", "end"))
    return f"{found['lead']}{start}{found['mid']}{end}"


def _fraction(found: re.Match[str]) -> str:
    """Return a fraction; what is none, such as `7/11`, keeps its numbers with a slash between them."""
    above, below = int(found["a"]), int(found["b"])
    if not 1 < below <= _MAX_DENOMINATOR or not 0 < above < below:
        return f"{found[0].replace('/', ' slash ')}"
    name = numbers.ordinal(below, "en")
    one, many = _FRACTIONS.get(below, (name, f"{name}s"))
    whole = f"{numbers.say(found['whole'], 'en')} and " if found["whole"] else ""
    return f"{whole}{numbers.cardinal(above, 'en')} {one if above == 1 else many}"


def _ordinal(found: re.Match[str]) -> str:
    digits = found["a"].replace(",", "")
    return numbers.ordinal(int(digits), "en") if len(digits) <= numbers.MAX_DIGITS else numbers.digits(digits, "en")


def _dotted_letters(found: re.Match[str]) -> str:
    """Return initials as letters; a full stop stays where the text ends with it."""
    letters = " ".join(found[0].replace(".", " ").split())
    return letters + ("." if not found.string[found.end() :].strip() else "")


def _letters(found: re.Match[str]) -> str:
    """Spell what is known to be spelled, and what nobody can say for lack of vowels."""
    word = found[0]
    if word in _SPELLED or (not set(word) & set("AEIOUY") and not set(word) <= set("IVXLCDM")):
        plural = found.string[found.end() : found.end() + 1] == "s"
        return " ".join(word) + ("'" if plural else "")
    return word
