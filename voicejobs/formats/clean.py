"""Text that cannot break the file it is written to."""

import re
import unicodedata

_LINE_BREAKS = re.compile("[\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029]+")
# What is left of the control characters, and the mark that a reader at the start of a file takes for its encoding.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ufeff]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANKS = re.compile(" {2,}")


def encodable(text: str) -> str:
    """Return `text` with halves of characters, which UTF-8 cannot hold, as U+FFFD."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Return `text` on one line: breaks become blanks, control characters go, runs and ends of blanks shrink.

    Everything visible stays, and so do joiners and the no-break spaces of French punctuation.
    """
    text = _UNPRINTABLE.sub("", _LINE_BREAKS.sub(" ", encodable(text)))
    return _BLANKS.sub(" ", text).strip(" ")


def is_blank(text: str) -> bool:
    """Tell whether nothing of the text can be seen: it holds blanks and invisible marks alone."""
    return not text or all(char.isspace() or unicodedata.category(char) == "Cf" for char in text)


def channel_label(channel: int) -> str:
    """Return the name of a channel for people, who count from 1."""
    return f"Channel {channel + 1}"
