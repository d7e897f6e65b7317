"""E-mail and web addresses, read sign by sign where they are not words."""

import re

from voicejobs.text.rules import Rule, rule
from voicejobs.text.wording import Wording

_DOMAINS = (
    "com|org|net|edu|gov|mil|int|io|dev|app|ai|co|info|biz|eu|uk|de|fr|es|it|nl|ru|cn|jp|ch|at|be|pl|se|no|fi|dk|ca|au"
)
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}"
_MAIL = rf"(?<![\w.+-])[A-Za-z0-9._%+-]{{1,64}}@{_HOST}[A-Za-z]{{2,24}}(?![\w@])"
_URL = r"(?<![\w@])(?:(?:https?|ftp)://|www\.)[^\s<>\"'“”‘’«»(){}\[\]，。！？、]{1,2000}"
_BARE = rf"(?<![\w@.-]){_HOST}(?:{_DOMAINS})(?![\w@.-]*\w)(?:/[^\s<>\"'(){{}}\[\]]{{0,500}})?"
_TRAILING = ".,;:!?…*_~"
_PARTS = re.compile(r"[A-Za-z]+|\d+|.", re.DOTALL)

_ENGLISH = {
    ".": "dot", "@": "at", "/": "slash", "-": "dash", "_": "underscore", "?": "question mark", "=": "equals",
    "&": "and", "#": "hash", "%": "percent", "+": "plus", ":": "colon", "~": "tilde", ",": "comma",
}  # fmt: skip
_OTHERS: dict[str, dict[str, str]] = {
    "de": {".": "Punkt", "@": "at", "/": "Schrägstrich", "-": "Bindestrich", "_": "Unterstrich"},
    "fr": {".": "point", "@": "arobase", "/": "slash", "-": "tiret", "_": "tiret bas"},
    "es": {".": "punto", "@": "arroba", "/": "barra", "-": "guion", "_": "guion bajo"},
    "it": {".": "punto", "@": "chiocciola", "/": "barra", "-": "trattino", "_": "trattino basso"},
    "pt": {".": "ponto", "@": "arroba", "/": "barra", "-": "hífen", "_": "sublinhado"},
    "nl": {".": "punt", "@": "apenstaartje", "/": "schuine streep", "-": "streepje", "_": "laag streepje"},
    "ru": {".": "точка", "@": "собака", "/": "слэш", "-": "дефис", "_": "подчёркивание"},
}


def rules(base: str, wording: Wording) -> list[Rule]:
    """Return the rules for addresses; of languages without words for the signs they stay as they are."""
    names = _ENGLISH if base == "en" else _OTHERS.get(base)
    if names is None:
        return []

    def words(found: re.Match[str]) -> str:
        address = found[0].rstrip(_TRAILING)
        trailing = found[0][len(address) :]
        address = re.sub(r"^(?:https?|ftp)://", "", address, flags=re.IGNORECASE).rstrip("/")
        address = re.sub(r"^www\.", "W W W.", address, flags=re.IGNORECASE)
        parts = (names.get(part, wording.symbols.get(part, part)) for part in _PARTS.findall(address))
        return " ".join(part for part in " ".join(parts).split()) + trailing

    return [rule(_MAIL, words), rule(_URL, words, re.IGNORECASE), rule(_BARE, words)]
