"""Lists of paths: `@list.txt` names a file with one path on each line, or separated by NUL."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from voicejobs.cli.inputs import STDIN, Argument
from voicejobs.errors import BadOption
from voicejobs.store.paths import display_name

SIGN = "@"
_BOM = b"\xef\xbb\xbf"


def expand_lists(paths: Sequence[str]) -> list[Argument]:
    """Return the arguments, each `@list` replaced by the paths in it, which are taken as they are.

    Raises:
        BadOption: a list cannot be read, or standard input is to be two things.
    """
    if sum(path in {STDIN, SIGN + STDIN} for path in paths) > 1:
        raise BadOption("Standard input can be one thing only", hint="Name `-` or `@-` once.")
    return [argument for path in paths for argument in _expand(path)]


def _expand(path: str) -> Iterator[Argument]:
    """Yield what one argument stands for."""
    if not path.startswith(SIGN) or path == SIGN or (os.path.lexists(path) and not os.path.lexists(path[1:])):
        yield Argument(path)
        return
    yield from (Argument(one, is_literal=True) for one in split_list(_read(path[1:])))


def split_list(data: bytes) -> list[str]:
    """Return the paths of a list; blank lines count for nothing, and CR LF ends a line where every line ends so."""
    data = data.removeprefix(_BOM)
    if b"\0" in data:
        parts = data.split(b"\0")
    else:
        parts = data.split(b"\n")
        if all(part.endswith(b"\r") for part in parts[:-1]):
            parts = [part.removesuffix(b"\r") for part in parts]
    return [os.fsdecode(part) for part in parts if part.strip()]


def _read(name: str) -> bytes:
    """Return the content of a list.

    Raises:
        BadOption: it cannot be read.
    """
    try:
        return sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    except OSError as error:
        raise BadOption(
            f"The list {display_name(name)} cannot be read: {error.strerror}",
            hint="@FILE names a list of paths; write ./@FILE for a recording of that name.",
        ) from error
