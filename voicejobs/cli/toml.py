"""Read a file of the configuration, and tell on which line it says something."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voicejobs.errors import BadConfiguration

_IN_PYPROJECT = ("tool", "voicejobs")
_HEADER = re.compile(r"^\s*\[([^\[\]]+)\]\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*(?:"([^"]+)"|'([^']+)'|([A-Za-z0-9_-]+))\s*=""")


@dataclass(frozen=True, slots=True)
class Document:
    """Hold a file: what it says, and its text, to name lines."""

    path: Path
    content: Mapping[str, Any]
    text: str

    @property
    def root(self) -> tuple[str, ...]:
        """Return the table that is ours."""
        return _IN_PYPROJECT if self.path.name == "pyproject.toml" else ()

    @property
    def is_ours(self) -> bool:
        """Tell whether the file says anything to us; a pyproject.toml may not."""
        return not self.root or bool(self.table(()))

    def table(self, place: Sequence[str]) -> Mapping[str, Any]:
        """Return a table below ours, empty where there is none."""
        here: Any = self.content
        for name in (*self.root, *place):
            here = here.get(name) if isinstance(here, Mapping) else None
        return here if isinstance(here, Mapping) else {}

    def where(self, place: Sequence[str], key: str) -> str:
        """Return `file:line key`, or the file and the full key where the line is hard to tell."""
        line = self._line((*self.root, *place), key)
        name = ".".join((*self.root, *place, key))
        return f"{self.path}:{line} {name}" if line else f"{self.path} {name}"

    def _line(self, table: tuple[str, ...], key: str) -> int:
        """Return the number of the line that sets `key`, or that opens the table of this name; 0 where unknown."""
        here: tuple[str, ...] = ()
        for number, line in enumerate(self.text.splitlines(), 1):
            header = _HEADER.match(line)
            if header:
                here = tuple(part.strip().strip("\"'") for part in header[1].split("."))
                if here[: len(table) + 1] == (*table, key):
                    return number
                continue
            found = _KEY.match(line)
            if found and here == table and key in found.groups():
                return number
        return 0


def read(path: Path) -> Document:
    """Read a file of the configuration.

    Raises:
        BadConfiguration: it cannot be read, or is no TOML.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return Document(path, tomllib.loads(text), text)
    except OSError as error:
        raise BadConfiguration(f"{path} cannot be read: {error.strerror}", hint="Check its rights.") from error
    except UnicodeDecodeError as error:
        raise BadConfiguration(f"{path} is no UTF-8", hint="Save it as UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise BadConfiguration(f"{path} is no TOML: {error}", hint='Text stands in quotes: model = "base".') from error
