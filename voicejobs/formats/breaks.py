"""How good a place is for the end of a line or a cue."""

import re
from collections.abc import Sequence

from voicejobs.formats.pieces import Piece

SENTENCE = 0.0
CLAUSE = 1.0
BEFORE_LINK = 2.0
ORDINARY = 4.0
INSIDE_WORD = 7.0
BOUND = 9.0

# Quotes and brackets may close after the mark.
_SENTENCE_END = re.compile(
    "[.?!\u2026\u3002\uff0e\uff1f\uff01\u061f\u06d4\u0964\uff61][\"'\u2019\u201d\u00bb)\\]\u300d\u300f]*$"
)
_CLAUSE_END = re.compile(
    "[,;:\u2014\u2013\u3001\uff0c\uff1b\uff1a\uff64\u060c\u061b][\"'\u2019\u201d\u00bb)\\]\u300d\u300f]*$"
)
_ABBREVIATION = re.compile(r"(?:^|\W)(?:[A-Za-z]|[Mm]rs?|[Mm]s|[Dd]r|[Pp]rof|[Ss]t|[Nn]r|[Nn]o|vs|etc|bzw|ca)\.$")

# Words that bind to what follows: articles, prepositions, possessives, pronouns before their verb, auxiliaries,
# negations. Words that link: conjunctions, before which a line breaks well and after which it does not.
_BINDING: dict[str, str] = {
    "en": "a an the this that these those my your his her its our their of to in on at by for from with as into "
    "about than no not don't doesn't didn't won't can't isn't aren't wasn't i you he she it we they i'm "
    "you're he's she's it's we're they're i've you've we've they've i'll you'll we'll they'll is are was were "
    "be been am has have had do does did will would can could should may might must very so too mr mrs ms dr",
    "de": "der die das den dem des ein eine einen einem einer eines mein dein sein ihr unser kein keine in im an am "
    "auf aus bei mit nach von vom zu zum zur für über unter durch um ich du er sie es wir nicht sehr ist sind "
    "war hat haben",
    "fr": "le la les un une des du de d l à au aux en dans sur sous par pour avec sans mon ma mes ton ta tes son sa "
    "ses notre nos votre vos leur leurs ce cet cette ces je tu il elle on nous vous ils elles ne n est sont a "
    "ont très",
    "es": "el la los las un una unos unas de del al a en con por para sin sobre mi tu su mis tus sus este esta yo "
    "tú él ella no se me te le lo es son está ha han muy",
    "it": "il lo la i gli le un uno una di del della dei delle a al alla in nel nella da dal con su per tra fra mio "
    "mia suo sua non è sono ha hanno molto",
    "pt": "o a os as um uma de do da dos das em no na nos nas por para com sem meu minha seu sua eu ele ela não é "
    "são muito",
    "nl": "de het een van in op aan bij met voor door uit naar mijn jouw zijn haar ons ik jij hij zij wij niet geen "
    "is was heeft heel te",
}  # fmt: skip
_LINKS: dict[str, str] = {
    "en": "and or but because although though while when where which who if unless until since so that",
    "de": "und oder aber weil obwohl während wenn dass denn sondern damit ob",
    "fr": "et ou mais car parce quand lorsque si que qui dont où donc",
    "es": "y e o u pero porque cuando si que quien donde aunque mientras",
    "it": "e o ma perché quando se che chi dove mentre anche",
    "pt": "e ou mas porque quando se que quem onde enquanto embora",
    "nl": "en of maar want omdat terwijl als dat die wanneer hoewel",
}

_BARE = re.compile(r"[^\w'\u2019]+")


class Breaks:
    """Judge the places between the pieces of a text in one language.

    Args:
        language: ISO 639-1; of other languages than those in the tables, punctuation alone is known.
    """

    def __init__(self, language: str | None) -> None:
        code = (language or "").lower().partition("-")[0]
        self._binding = frozenset(_BINDING.get(code, "").split())
        self._links = frozenset(_LINKS.get(code, "").split())

    def costs(self, pieces: Sequence[Piece]) -> list[float]:
        """Return the cost of a break after each piece; the last place is free."""
        bare = [_BARE.sub("", piece.text).replace("\u2019", "'").lower() for piece in pieces]
        costs = [
            self._cost(pieces[index], pieces[index + 1], bare[index], bare[index + 1])
            for index in range(len(pieces) - 1)
        ]
        return [*costs, SENTENCE]

    def _cost(self, before: Piece, after: Piece, word: str, following: str) -> float:
        """Judge the place between two pieces."""
        if ends_sentence(before.text):
            return SENTENCE
        if _CLAUSE_END.search(before.text):
            return CLAUSE
        if not after.is_spaced:
            return _unspaced_cost(before.text[-1], after.text[0], is_word=after.is_word)
        if word in self._binding or word in self._links or word.isdigit() or _is_name(before, after):
            return BOUND
        if following in self._links:
            return BEFORE_LINK
        # Before a preposition or an article a new phrase begins.
        return ORDINARY - 1 if following in self._binding else ORDINARY


def _unspaced_cost(last: str, first: str, *, is_word: bool) -> float:
    """Judge a place without a blank; in Japanese a phrase tends to end with hiragana, and begin with anything else."""
    if _is_hiragana(last):
        return INSIDE_WORD if _is_hiragana(first) else ORDINARY - 1
    if _is_hiragana(first) or (_is_katakana(last) and _is_katakana(first)):
        return BOUND
    return ORDINARY if is_word else INSIDE_WORD


def _is_hiragana(char: str) -> bool:
    """Tell whether a character is a Japanese syllable of the cursive kind."""
    return "\u3041" <= char <= "\u309f"


def _is_katakana(char: str) -> bool:
    """Tell whether a character is a Japanese syllable of the angular kind, of either width."""
    return "\u30a1" <= char <= "\u30ff" or "\uff66" <= char <= "\uff9f"


def ends_sentence(text: str) -> bool:
    """Tell whether a sentence ends with this piece of text."""
    if text[-1:].isalnum():  # most words
        return False
    return _SENTENCE_END.search(text) is not None and _ABBREVIATION.search(text) is None


def _is_name(before: Piece, after: Piece) -> bool:
    """Tell whether two words look like a first and a last name."""
    return before.text[:1].isupper() and after.text[:1].isupper() and before.text[1:].islower() and after.is_spaced
