"""Read out: the words that a voice says for a text, numbers and signs included.

The rules are tried in order, each over the whole text; what one has turned into words no later one touches.
"""

from functools import lru_cache

from voicejobs.text import addresses, amounts, english, symbols, times
from voicejobs.text.rules import Rule, alternatives, rule
from voicejobs.text.tags import base_language
from voicejobs.text.wording import NO_WORDING, WORDINGS, Wording


def read_out(text: str, language: str) -> str:
    """Return `text` in words, on one line: numbers, money, dates, times, units, abbreviations, addresses, signs.

    English has all of it. German, French, Spanish, Italian, Portuguese, Dutch and Russian have the commonest of it,
    other languages the numbers, where their words are known. Emoji and ornaments are left out; punctuation stays, for
    engines hear pauses in it. What is in other scripts stays: `speakable` takes it out.

    Args:
        text: a piece of a text; markup is not looked for.
        language: its code; a region chooses between forms, as `en-GB` for days before months.
    """
    tag = language.replace("_", "-")
    said = symbols.clean(text)
    for pattern, words in _rules(tag):
        said = pattern.sub(words, said)
    return symbols.tidy(said, drops=bool(WORDINGS.get(base_language(tag), NO_WORDING).symbols))


@lru_cache(maxsize=64)
def _rules(language: str) -> tuple[Rule, ...]:
    """Return the rules of a language, in order."""
    base = base_language(language)
    wording = WORDINGS.get(base, NO_WORDING)
    is_english = base == "en"
    found = [*addresses.rules(base, wording), *symbols.early_rules()]
    if is_english:
        found += english.early_rules()
    found += _abbreviations(wording)
    found += times.rules(language, wording)
    figures = amounts.rules(language, wording)
    if is_english:
        money = len(amounts_of_money(figures))
        found += [*figures[:money], *english.late_rules(), *figures[money:]]
    else:
        found += figures
    if is_english:
        found += english.letter_rules()
    return (*found, *symbols.late_rules(wording))


def amounts_of_money(rules: list[Rule]) -> list[Rule]:
    """Return the rules at the head of those for amounts that are about money."""
    return [one for one in rules if "sym" in one.pattern.groupindex]


def _abbreviations(wording: Wording) -> list[Rule]:
    """Return the rule that writes abbreviations out; where one ends the text, the text ends with a full stop."""
    if not wording.abbreviations:
        return []
    known = wording.abbreviations
    return [
        rule(
            rf"(?<![\w.])(?:{alternatives(known)})(?!\w)",
            lambda found: (
                known[found[0]]
                + ("." if found[0].endswith(".") and not found.string[found.end() :].strip(" \"')") else "")
            ),
        )
    ]
