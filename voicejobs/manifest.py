"""Read manifests: lists of recordings, as JSON Lines or as CSV with a header, line by line and in flat memory."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from voicejobs.errors import BadManifest

FIELDS = ("path", "name", "sha256", "size", "target", "out")
"""What a line may say; other fields are none of our business."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_BYTES = 1 << 20
"""Length of a line at most: what has no end of line is no manifest."""


@dataclass(frozen=True, slots=True)
class Line:
    """Name one recording of a manifest.

    Args:
        number: where it stands: 1 for the first line of the file, whatever that holds.
        path: the recording.
        name: how people know it; empty where the manifest does not say.
        target: place of its outputs without their endings; empty where the manifest does not say.
        sha256: hash of its content, in lower case; empty where the manifest does not say.
        size: its length in bytes; None where the manifest does not say.
    """

    number: int
    path: str
    name: str = ""
    target: str = ""
    sha256: str = ""
    size: int | None = None


def read_manifest(stream: BinaryIO) -> Iterator[Line]:
    """Yield the recordings of a manifest; JSON Lines begin with a brace, anything else is the header of a CSV file.

    Bytes that are no UTF-8 stay what they are, so that every name of a file can be written.

    Raises:
        BadManifest: a line cannot be understood; those before it have been yielded.
    """
    text = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")
    try:
        numbered = _numbered(text)
        number, first = next(((number, line) for number, line in numbered if line.strip()), (0, ""))
        if first.lstrip().startswith("{"):
            yield _json_line(number, first)
            for number, line in numbered:
                if line.strip():
                    yield _json_line(number, line)
        elif first:
            yield from _csv_lines(number, first, numbered)
    finally:
        text.detach()


def _numbered(text: io.TextIOWrapper) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers.

    Raises:
        BadManifest: one is longer than any line of a manifest.
    """
    number = 0
    while line := text.readline(_MOST_BYTES):
        number += 1
        if len(line) >= _MOST_BYTES:
            raise BadManifest(f"Line {number} of the manifest is longer than {_MOST_BYTES} characters")
        yield number, line


def _json_line(number: int, text: str) -> Line:
    """Return what a line of JSON says."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadManifest(f"Line {number} of the manifest is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadManifest(f"Line {number} of the manifest is no JSON object")
    return _line(number, found)


def _csv_lines(number: int, header: str, rest: Iterator[tuple[int, str]]) -> Iterator[Line]:
    """Yield the rows of a CSV file."""
    last = number

    def lines() -> Iterator[str]:
        nonlocal last
        yield header
        for at, line in rest:
            last = at
            yield line

    reader = csv.reader(lines(), strict=True)
    try:
        names = [name.strip() for name in next(reader)]
        if "path" not in names:
            raise BadManifest(f"Line {number} of the manifest is no JSON, and no header of CSV with a column `path`")
        if len(names) != len(set(names)):
            raise BadManifest(f"Line {number} of the manifest names a column twice")
        for row in reader:
            if not row:
                continue
            if len(row) != len(names):
                raise BadManifest(f"Line {last} of the manifest has {len(row)} columns, its header {len(names)}")
            yield _line(last, dict(zip(names, row, strict=True)))
    except csv.Error as error:
        raise BadManifest(f"Line {last} of the manifest is no CSV: {error}") from None


def _line(number: int, found: Mapping[str, Any]) -> Line:
    """Return a line of which we know what it says.

    Raises:
        BadManifest: a value has another form, there is no path, or two fields contradict each other.
    """
    path = _text(number, found, "path")
    if not path:
        raise BadManifest(f"Line {number} of the manifest names no `path`")
    target, out = _text(number, found, "target"), _text(number, found, "out")
    if target and out and target != out:
        raise BadManifest(f"Line {number} of the manifest has a `target` and another `out`: they are one thing")
    sha256 = _text(number, found, "sha256").lower()
    if sha256 and not _SHA256.fullmatch(sha256):
        raise BadManifest(f"Line {number} of the manifest: its `sha256` is no 64 hexadecimal digits")
    return Line(number, path, _text(number, found, "name"), target or out, sha256, _size(number, found.get("size")))


def _text(number: int, found: Mapping[str, Any], field: str) -> str:
    """Return a field that holds text; empty where it is missing."""
    value = found.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadManifest(f"Line {number} of the manifest: its `{field}` is no text")
    if "\0" in value:
        raise BadManifest(f"Line {number} of the manifest: its `{field}` has a NUL in it")
    return value


def _size(number: int, value: Any) -> int | None:
    """Return a number of bytes, None where there is none."""
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not str(value).isdecimal():
        raise BadManifest(f"Line {number} of the manifest: its `size` is no number of bytes")
    size = int(value)
    if size >= 1 << 63:
        raise BadManifest(f"Line {number} of the manifest: its `size` is larger than any file")
    return size
