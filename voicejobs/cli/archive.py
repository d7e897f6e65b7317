"""The archive of a user: one line for each recording that is done, by the hash of its content.

    sha256:<64 hex digits> <name>

The name is for people. A recording whose hash stands in it is skipped, wherever it lies and however it is called, and
even if its outputs were moved away; one that was changed is done again.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from voicejobs.errors import BadOption
from voicejobs.store.paths import display_name

_LINE = re.compile(rb"sha256:([0-9a-f]{64})(?:\s.*)?")


@dataclass(slots=True)
class Archive:
    """Know the hashes of a file, and add to it line by line, so that a killed command loses none.

    Args:
        path: the file.
        hashes: what it names.
    """

    path: Path
    hashes: set[str] = field(default_factory=set)
    _descriptor: int = -1

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read an archive; one that does not exist is empty.

        Raises:
            BadOption: it cannot be read, or a line is none of ours.
        """
        try:
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:
            lines = []
        except OSError as error:
            raise BadOption(f"The archive {display_name(path)} cannot be read: {error.strerror}") from error
        hashes = set()
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith(b"#"):
                continue
            found = _LINE.fullmatch(line)
            if found is None:
                raise BadOption(
                    f"{display_name(path)} is no archive of voicejobs: see its line {number}",
                    hint="Name another file with --archive; a new one is made where there is none.",
                )
            hashes.add(found[1].decode())
        return cls(path, hashes)

    def open(self) -> None:
        """Make sure, before any work, that lines can be added.

        Raises:
            BadOption: they cannot.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            size = os.fstat(self._descriptor).st_size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                os.write(self._descriptor, b"\n")  # somebody's editor left the last line open
        except OSError as error:
            raise BadOption(
                f"The archive {display_name(self.path)} cannot be written: {error.strerror}",
                hint="Name a file in a folder that you can write.",
            ) from error

    def add(self, digest: str, name: str) -> None:
        """Note a recording that is done; one write for each line, so that two commands can share a file.

        Raises:
            OSError: the disk is full, for example.
        """
        if digest and digest not in self.hashes:
            self.hashes.add(digest)
            os.write(self._descriptor, f"sha256:{digest} {display_name(name)}\n".encode())

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
