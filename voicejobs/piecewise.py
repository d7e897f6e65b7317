"""Read and write large texts piece by piece: `json.loads` is one call, during which no other thread runs.

What comes out is what `json.loads` makes of it. Containers that are long are gone through here, and what is short is
left to the reader of the standard library, so that it takes little longer.
"""

import json
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from itertools import islice
from json import JSONDecodeError
from re import compile as pattern
from typing import Any, Final

PIECE_CHARS: Final = 16_384
"""What is read in one call, but for single texts and numbers."""
PARTS_AT_ONCE: Final = 4_096
BLOCK_BYTES: Final = 1 << 20
_read = json.JSONDecoder().raw_decode
_blanks = pattern(r"[ \t\n\r]*").match


def loads(data: bytes | str) -> Any:
    """Return the value of a document; bytes are UTF-8, with a byte order mark or without.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it has too many levels.
    """
    text = data if isinstance(data, str) else _decoded(data)
    return _Reader(text).read()


def encoded(parts: Iterable[str]) -> bytes:
    """Return many short texts as one, in UTF-8, joined some at a time."""
    waiting = iter(parts)
    whole = bytearray()
    while some := list(islice(waiting, PARTS_AT_ONCE)):
        whole += "".join(some).encode()
    return bytes(whole)


def has_more_values(value: Any, most: int) -> bool:
    """Tell whether a value holds more than so many others, on all its levels together."""
    count = 0
    for inner in _containers(value):
        count += len(inner)
        if count > most:
            return True
    return False


def has_more_chars(value: Any, most: int) -> bool:
    """Tell whether the texts in a value have more than so many characters together."""
    count = 0
    for inner in _containers([value]):
        count += sum(map(len, inner)) if isinstance(inner, dict) else 0
        count += sum(len(text) for text in _inside(inner) if isinstance(text, str))
        if count > most:
            return True
    return False


def _containers(value: Any) -> Iterator[dict[str, Any] | list[Any]]:
    """Yield a value and all that is in it, those that hold others."""
    waiting = [value] if isinstance(value, dict | list) else []
    for one in waiting:  # which grows meanwhile
        yield one
        waiting += [inner for inner in _inside(one) if isinstance(inner, dict | list)]


def _inside(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    """Return what an object or a list holds."""
    return value.values() if isinstance(value, dict) else value


def _decoded(data: bytes) -> str:
    """Return bytes as text, decoded block by block.

    Raises:
        UnicodeDecodeError: they are not UTF-8.
    """
    decoder = getincrementaldecoder("utf-8-sig")()
    blocks = [decoder.decode(data[at : at + BLOCK_BYTES]) for at in range(0, len(data), BLOCK_BYTES)]
    return "".join([*blocks, decoder.decode(b"", final=True)])


class _Reader:
    """Read one text; `_piece` is a part of it, from `_base` on."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._base = 0
        self._piece = text[:PIECE_CHARS]

    def read(self) -> Any:
        """Return the value of the whole text."""
        value, end = self._value(self._next(0))
        if end != len(self._text):
            raise JSONDecodeError("Extra data", self._text, end)
        return value

    def _next(self, at: int) -> int:
        """Return where the blanks end that begin at a place."""
        match = _blanks(self._text, at)
        return match.end() if match else at

    def _value(self, at: int) -> tuple[Any, int]:
        """Return the value that begins at a place, and where what follows it and its blanks begins."""
        if not self._text.startswith(("{", "["), at):
            return self._whole(at)
        try:
            return self._short(at)
        except JSONDecodeError:
            self._base, self._piece = at, self._text[at : at + PIECE_CHARS]
        try:
            return self._short(at)
        except JSONDecodeError:
            if len(self._piece) < PIECE_CHARS:
                return self._whole(at)  # it is wrong: this tells where
        return self._object(at) if self._piece[0] == "{" else self._list(at)

    def _short(self, at: int) -> tuple[Any, int]:
        """Return a container that ends inside the piece.

        Raises:
            JSONDecodeError: it does not, or is wrong.
        """
        value, end = _read(self._piece, at - self._base)
        return value, self._next(self._base + end)

    def _whole(self, at: int) -> tuple[Any, int]:
        """Return a value that is read in one call."""
        value, end = _read(self._text, at)
        return value, self._next(end)

    def _list(self, at: int) -> tuple[list[Any], int]:
        """Return the list that begins at a place, and where it ends."""
        found: list[Any] = []
        at = self._next(at + 1)
        if self._text.startswith("]", at):
            return found, self._next(at + 1)
        while True:
            value, at = self._value(at)
            found.append(value)
            if self._text.startswith("]", at):
                return found, self._next(at + 1)
            at = self._past(at, ",")

    def _object(self, at: int) -> tuple[dict[str, Any], int]:
        """Return the object that begins at a place, and where it ends."""
        found: dict[str, Any] = {}
        at = self._next(at + 1)
        if self._text.startswith("}", at):
            return found, self._next(at + 1)
        while True:
            if not self._text.startswith('"', at):
                raise JSONDecodeError("Expecting property name enclosed in double quotes", self._text, at)
            name, at = self._whole(at)
            found[name], at = self._value(self._past(at, ":"))
            if self._text.startswith("}", at):
                return found, self._next(at + 1)
            at = self._past(at, ",")

    def _past(self, at: int, mark: str) -> int:
        """Return where what follows a mark begins.

        Raises:
            JSONDecodeError: the mark is not there.
        """
        if not self._text.startswith(mark, at):
            raise JSONDecodeError(f"Expecting {mark!r} delimiter", self._text, at)
        return self._next(at + 1)
