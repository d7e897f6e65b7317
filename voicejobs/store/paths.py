"""Paths in rows: text where the name is UTF-8, and the very bytes where it is not."""

import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

HASH8 = "\0hash8\0"
"""Stands in the path of an output for the first digits of its input's SHA-256, until the input has been read."""

UNREAD = "unread"
"""Marks the source of a job whose input nobody has read yet: its worker does so, and notes size, time and hash."""

BLOB = "blob"
"""Names the blob of a source that lies in no file of its own, by its SHA-256."""


def encode_path(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return JSON values that keep every byte of `path`, which must be absolute."""
    raw = os.fsencode(path)
    try:
        return {"path": raw.decode("utf-8")}
    except UnicodeDecodeError:
        return {"path_base64": b64encode(raw).decode("ascii")}


def decode_path(values: Mapping[str, Any]) -> str:
    """Return the path that `encode_path` was given."""
    if "path" in values:
        return str(values["path"])
    return os.fsdecode(b64decode(values["path_base64"]))


def display_name(path: str | os.PathLike[str]) -> str:
    """Return `path` as text that any terminal and any database takes: odd bytes and controls are escaped."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:  # text that is no name here: one from a service, in a locale that lacks its letters
        name = os.fspath(path).encode("utf-8", "surrogateescape")
    text = name.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
