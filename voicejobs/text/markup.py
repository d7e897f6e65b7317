"""Markup: tags and Markdown are covered up, so that every character keeps its place.

`mask` returns a text of the same length. What is markup has become `FILLER`, which no text contains: whoever reads
the masked text leaves it out, and whoever wants the source finds it at the same place.
"""

import html
import re
from dataclasses import dataclass
from typing import Literal, get_args

from voicejobs.errors import BadOption
from voicejobs.text.markdown import mask_markdown

Markup = Literal["plain", "markdown", "ssml"]
MARKUPS: tuple[str, ...] = get_args(Markup)

FILLER = "\0"
MAX_BREAK_S = 10.0

_TAG = re.compile(
    r"""<(?P<close>/?)(?P<name>[A-Za-z][\w:.-]{0,40})(?P<rest>(?:\s+[\w:.-]+\s*=\s*(?:"[^"<]*"|'[^'<]*'))*)\s*/?>"""
    r"""|<!--.*?-->|<\?xml[^>]*\?>""",
    re.DOTALL,
)
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,7}|#x[0-9a-fA-F]{1,6});")
_TIME = re.compile(r"""time\s*=\s*["']\s*([\d.]+)\s*(ms|s)\s*["']""")
_STRENGTH = re.compile(r"""strength\s*=\s*["']([\w-]+)["']""")
_STRENGTHS_S = {"none": 0.0, "x-weak": 0.1, "weak": 0.2, "medium": 0.4, "strong": 0.8, "x-strong": 1.2}
_DEFAULT_BREAK_S = 0.4
_PARAGRAPH_TAGS = frozenset({"p", "div", "br", "li", "h1", "h2", "h3", "h4", "h5", "h6", "paragraph", "tr"})
_SENTENCE_TAGS = frozenset({"s", "sentence", "td", "th"})
_KNOWN_TAGS = (
    frozenset(
        "speak voice prosody emphasis break sub phoneme say-as audio mark lang lexicon metadata meta desc w token b i"
        " em strong u del ins mark small big sup span font code pre blockquote ul ol table thead tbody a img hr html"
        " body head title center".split()
    )
    | _PARAGRAPH_TAGS
    | _SENTENCE_TAGS
)


@dataclass(frozen=True, slots=True)
class Break:
    """Ask for a pause at a place in the text; None: the pause between sentences."""

    place: int
    pause_s: float | None = None
    is_paragraph: bool = False


@dataclass(frozen=True, slots=True)
class Masked:
    """Hold a text of the length of its source in which markup is `FILLER`, and the breaks that the markup asks for."""

    text: str
    breaks: tuple[Break, ...] = ()


def markup_of(text: str, name: str = "") -> Markup:
    """Return how a text is marked up: by the ending of its file, or SSML by its first tag."""
    if name.lower().endswith((".md", ".markdown")):
        return "markdown"
    return "ssml" if re.match(r"\ufeff?\s*(?:<\?xml[^>]*\?>\s*)?<speak\b", text) else "plain"


def mask(text: str, markup: str) -> Masked:
    """Cover up the markup of a text.

    Plain text and Markdown lose the tags of SSML and the common ones of HTML, which nobody wants to hear; SSML loses
    every tag. What merely looks like one, as `5 < 6` or `List<Car>`, stays.

    Raises:
        BadOption: there is no such markup.
    """
    if markup not in MARKUPS:
        raise BadOption(f"The markup {markup!r} is not known", hint=f"Take {', '.join(MARKUPS)}.")
    places: list[Break] = []
    if markup == "markdown":
        text, ends = mask_markdown(text, FILLER)
        places += [Break(place, is_paragraph=True) for place in ends]
    breaks: list[Break] = []

    def cover(found: re.Match[str]) -> str:
        name = (found["name"] or "").lower()
        if name and markup != "ssml" and name not in _KNOWN_TAGS:
            return found[0]
        breaks.extend(_breaks(found, name))
        return FILLER * len(found[0])

    text = _TAG.sub(cover, text)
    text = _ENTITY.sub(_entity, text)
    return Masked(text, tuple(sorted([*places, *breaks], key=lambda one: one.place)))


def _entity(found: re.Match[str]) -> str:
    """Return the character of an entity, filled up to its length."""
    character = html.unescape(found[0])
    if len(character) != 1 or character == FILLER or not (character.isprintable() or character.isspace()):
        character = " "
    return character + FILLER * (len(found[0]) - len(character))


def _breaks(found: re.Match[str], name: str) -> list[Break]:
    """Return the break that a tag asks for, if it does."""
    if name in _PARAGRAPH_TAGS:
        return [Break(found.start(), is_paragraph=True)]
    if name in _SENTENCE_TAGS:
        return [Break(found.start())]
    if name != "break" or found["close"]:
        return []
    time = _TIME.search(found["rest"])
    strength = _STRENGTH.search(found["rest"])
    pause_s = _DEFAULT_BREAK_S
    if time is not None:
        pause_s = _seconds(time[1]) / (1000 if time[2] == "ms" else 1)
    elif strength is not None:
        pause_s = _STRENGTHS_S.get(strength[1], _DEFAULT_BREAK_S)
    return [Break(found.start(), min(pause_s, MAX_BREAK_S))]


def _seconds(digits: str) -> float:
    """Return a number; 0 for what is none."""
    try:
        return float(digits)
    except ValueError:
        return 0.0
