"""Find the files that `convert` and `lint` read: those that are named, and those in folders by their endings."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from voicejobs.errors import NotFound, Unreadable, VoicejobsError
from voicejobs.store.paths import display_name

STDIN = "-"
MAX_BYTES = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Document:
    """Name a file: how to reach it, and its place below the folder that was named (its own name, if it was named)."""

    path: str
    relative: str

    @property
    def shown(self) -> str:
        """Return the name for people."""
        return "standard input" if self.path == STDIN else display_name(self.path)

    def read(self) -> bytes:
        """Return the content.

        Raises:
            NotFound, Unreadable: the file cannot be read.
        """
        if self.path == STDIN:
            return sys.stdin.buffer.read()
        path = Path(self.path)
        try:
            if not path.is_file():
                raise (NotFound if not path.exists() else Unreadable)(f"{self.shown} is no file")
            if path.stat().st_size > MAX_BYTES:
                raise Unreadable(f"{self.shown} is larger than {MAX_BYTES:,} bytes", hint="Cut it.")
            return path.read_bytes()
        except OSError as error:
            raise Unreadable(f"{self.shown} cannot be read: {error.strerror}") from error


def find_documents(paths: Sequence[str], endings: Sequence[str]) -> tuple[list[Document], list[VoicejobsError]]:
    """Return the files, each once, and what is wrong with paths that lead to none.

    In folders, searched to their leaves, the files with one of `endings` count; hidden ones are passed over.
    """
    found: dict[str, Document] = {}
    errors: list[VoicejobsError] = []
    for path in paths:
        if path != STDIN and os.path.isdir(path):  # noqa: PTH112 - pathlib raises where it may not look
            for one in _walk(path, endings, errors):
                found.setdefault(one.path, one)
        elif path == STDIN or os.path.lexists(path):
            found.setdefault(path, Document(path, Path(path).name))
        else:
            errors.append(NotFound(f"{display_name(path)} is not there"))
    return list(found.values()), errors


def _walk(folder: str, endings: Sequence[str], errors: list[VoicejobsError]) -> list[Document]:
    """Return the files of a folder in the order of their names; what cannot be listed is an error."""
    found: list[Document] = []

    def note(error: OSError) -> None:
        errors.append(Unreadable(f"{display_name(error.filename)} cannot be listed: {error.strerror}"))

    for current, folders, names in os.walk(folder, onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and name.lower().endswith(tuple(endings)):
                path = os.path.join(current, name)  # noqa: PTH118 - pathlib would tidy names that must stay as they are
                found.append(Document(path, os.path.relpath(path, folder)))
    return found
