"""What is text at all, and what of it can be said."""

import re

from voicejobs.errors import BadText, EmptyText

_SAYABLE = re.compile(r"[^\W_]")
_CONTROLS = re.compile("[\x01-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_CONTROL_SHARE = 0.05
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def decode_text(data: bytes, name: str) -> str:
    """Return the bytes of a text file as text: UTF-8, or UTF-16 with its byte order mark.

    Args:
        data: the whole file.
        name: what errors call it.

    Raises:
        BadText: it is neither, or no text.
    """
    try:
        text = data.decode("utf-16" if data.startswith(_UTF16_MARKS) else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadText(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    return require_text(text, name)


def require_text(text: str, name: str = "The text") -> str:
    """Return `text` where it is one.

    Raises:
        BadText: it holds NUL, halves of characters, or more control characters than a text has.
    """
    place = text.find("\0")
    if place >= 0:
        raise BadText(f"{name} is no text: character {place + 1} is NUL")
    half = _LONE_SURROGATE.search(text)
    if half is not None:
        raise BadText(f"{name} is no text: character {half.start() + 1} is half of one")
    controls = len(_CONTROLS.findall(text))
    if controls > _MAX_CONTROL_SHARE * len(text):
        raise BadText(f"{name} is no text: {controls} of its {len(text)} characters are control characters")
    return text


def is_sayable(text: str) -> bool:
    """Tell whether there is a letter or a digit of any script in it."""
    return _SAYABLE.search(text) is not None


def require_sayable(text: str, name: str = "The text") -> str:
    """Return `text` where there is something to say in it.

    Raises:
        EmptyText: it is empty, or holds blanks, punctuation or emoji alone.
    """
    if not is_sayable(text):
        what = "is empty" if not text.strip() else "holds nothing that can be said"
        raise EmptyText(f"{name} {what}")
    return text
