"""Find the texts that a command speaks: words on the command line, files, folders, and the rows of tables."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from voicejobs.audio import encode
from voicejobs.cli.inputs import STDIN, TEXT_ENDINGS, Found, Search, Selection, find_inputs
from voicejobs.cli.lists import SIGN, expand_lists
from voicejobs.cli.patterns import is_pattern
from voicejobs.errors import BadText, BadUsage, EmptyText, InputError, NotFound, Unreadable
from voicejobs.formats.text_table import TextRow, read_text_table
from voicejobs.store.paths import display_name
from voicejobs.text import decode_text, require_sayable, require_text

NAME = "speech"
"""What outputs of a text without a name are called."""
TABLE = ".csv"
CAPTIONS = (".srt", ".vtt")
MAX_TABLE_BYTES = 256_000_000
_PLACEHOLDER = ".txt"
"""Ending of the place of a text, which names of outputs leave out."""


def find_texts(arguments: Sequence[str], search: Search) -> Selection:
    """Return what the arguments name or hold: the texts themselves, or files; tables as their rows.

    An argument is a text where it names nothing that is there and does not look like a path. Several of them are the
    words of one text.

    Raises:
        BadUsage: texts and files are mixed.
        BadOption: a list of paths cannot be read.
    """
    words = [one for one in arguments if is_text(one)]
    if words and len(words) < len(arguments):
        raise BadUsage(
            f"{words[0]!r} is a text, and {next(one for one in arguments if one not in words)!r} a file",
            hint="Speak one or the other: put a text in quotes, or pipe it to `voicejobs speak -`.",
        )
    if words:
        return Selection(found=[_given(" ".join(words))])
    selection = find_inputs(expand_lists(arguments), search)
    selection.found = [one for found in selection.found for one in _with_rows(found)]
    return selection


def is_text(argument: str) -> bool:
    """Tell whether an argument is a text and no path: nothing of that name is there, and it does not look like one."""
    if argument == STDIN or os.path.lexists(argument[:4096]):
        return False
    if argument.startswith(SIGN) and os.path.lexists(argument[1:4096]):
        return False
    if argument.lower().endswith(tuple(f".{ending}" for ending in TEXT_ENDINGS)):
        return False
    has_blanks = len(argument.split()) != 1 or "\n" in argument
    return has_blanks or not (os.sep in argument or is_pattern(argument.rstrip("?")) or argument.startswith(SIGN))


def text_of_stdin(data: bytes, name: str) -> Found:
    """Return the text that standard input holds, or what is wrong with it."""
    try:
        text = require_sayable(decode_text(data, "standard input"), "standard input")
    except InputError as error:
        return Found(STDIN, name, error)
    return Found(STDIN, name if "." in name else name + _PLACEHOLDER, text=text)


def _given(text: str) -> Found:
    """Return a text of the command line."""
    try:
        return Found(NAME, NAME + _PLACEHOLDER, text=require_sayable(require_text(text)), shown="text")
    except InputError as error:
        return Found(NAME, NAME + _PLACEHOLDER, error, shown="text")


def _with_rows(found: Found) -> list[Found]:
    """Return an input, a table as its rows; an empty file is a text without anything to say."""
    if found.error is not None or found.text is not None:
        return [found]
    name = display_name(found.relative)
    try:
        return _rows(found, name)
    except InputError as error:
        return [replace(found, error=error)]
    except FileNotFoundError:
        return [replace(found, error=NotFound(f"{name} is not there"))]
    except OSError as error:
        return [replace(found, error=Unreadable(f"{name} cannot be read: {error.strerror}"))]


def _rows(found: Found, name: str) -> list[Found]:
    """Return what is in a file: itself, or the rows of a table.

    Raises:
        EmptyText, BadText: there is nothing in it, or it is no table.
        OSError: it cannot be read.
    """
    size = Path(found.path).stat().st_size
    if not size:
        raise EmptyText(f"{name} is empty")
    if not found.path.lower().endswith(TABLE):
        return [found]
    if size > MAX_TABLE_BYTES:
        raise BadText(f"{name} is larger than {MAX_TABLE_BYTES:,} bytes", hint="Cut the table.")
    rows = read_text_table(decode_text(Path(found.path).read_bytes(), name), name)
    if not rows:
        raise EmptyText(f"{name} has no rows")
    width = max(4, len(str(len(rows))))
    return [_row(found, row, f"{number:0{width}}") for number, row in enumerate(rows, start=1)]


def _row(table: Found, row: TextRow, number: str) -> Found:
    """Return a row of a table as an input."""
    shown = f"{table.relative}:{row.line}"
    stem = os.path.splitext(table.relative)[0]  # noqa: PTH122 - as names of outputs are cut
    place = f"{stem}/{number}"
    options: dict[str, dict[str, Any]] = {}
    if row.voice:
        options["synthesise"] = {"voice": row.voice}
    error: InputError | None = None
    try:
        require_sayable(require_text(row.text, shown), shown)
        if row.out:
            place, form = _place(row.out, shown)
            if form:
                options["join"] = {"formats": [form]}
    except InputError as problem:
        error = problem
    # The path only tells rows apart: no file has a name with this sign in front of a number of a line.
    return Found(f"{table.path}:{row.line}", place + _PLACEHOLDER, error, row.text, shown, options)


def _place(out: str, shown: str) -> tuple[str, str]:
    """Return the place that a row names, without its ending, and the format that the ending asks for.

    Raises:
        BadText: it leads out of the output folder, or names no file.
    """
    stem, ending = os.path.splitext(out)  # noqa: PTH122 - as names of outputs are cut
    form = ending[1:].lower()
    if form not in encode.FORMATS:
        stem, form = out, ""
    normal = PurePath(os.path.normpath(stem))
    if normal.is_absolute() or ".." in normal.parts or not normal.name or out.endswith(os.sep):
        raise BadText(f"{shown}: {out!r} names no file below the output folder", hint="Name the folder itself with -o.")
    return str(normal), form
