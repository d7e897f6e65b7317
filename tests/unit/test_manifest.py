"""Reading manifests: what a line says, and which lines are refused."""

import io
import tracemalloc
from collections.abc import Iterator
from typing import cast

import pytest

from voicejobs.errors import BadManifest
from voicejobs.manifest import Line, read_manifest

SHA = "ab" * 32


def read(data: str | bytes) -> list[Line]:
    """Return the lines of a manifest."""
    return list(read_manifest(io.BytesIO(data.encode() if isinstance(data, str) else data)))


def test_json_lines_say_what_they_say() -> None:
    """Every field is taken, others are passed over, empty lines count as lines and are none."""
    text = (
        '\n{"path": "a.wav"}\r\n\n'
        f'{{"path": "b.wav", "name": "x/b.wav", "sha256": "{SHA.upper()}", "size": 7, "out": "t/b", "text": "hi"}}'
    )
    assert read(text) == [Line(2, "a.wav"), Line(4, "b.wav", "x/b.wav", "t/b", SHA, 7)]


def test_csv_says_the_same() -> None:
    """Columns may come in any order, empty cells say nothing, and a quoted cell may hold a comma and a line break."""
    text = f'\ufeffsize,path,target,sha256,speaker\n7,"a, b.wav",,{SHA},me\n,"c\nd.wav",t/c,,\n\n,e.wav,,,\n'
    assert read(text) == [
        Line(2, "a, b.wav", "", "", SHA, 7),
        Line(4, "c\nd.wav", "", "t/c"),
        Line(6, "e.wav"),
    ]


def test_names_that_are_no_utf_8_keep_their_bytes() -> None:
    """A path is what the operating system has, in either form."""
    assert read(b'{"path": "a\xff.wav"}')[0].path == "a\udcff.wav"
    assert read(b"path\na\xff.wav\n")[0].path == "a\udcff.wav"


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_manifest_has_no_line(text: str) -> None:
    """It is no error here."""
    assert read(text) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"path": "a"}\n{"path": 1}', "Line 2 of the manifest: its `path` is no text"),
        ('{"path": "a"}\n[1]', "Line 2 of the manifest is no JSON object"),
        ('{"path": "a"}\npath', "Line 2 of the manifest is no JSON"),
        ('{"name": "a"}', "Line 1 of the manifest names no `path`"),
        ('{"path": ""}', "Line 1 of the manifest names no `path`"),
        ('{"path": "a\\u0000"}', "has a NUL in it"),
        ('{"path": "a", "size": -1}', "its `size` is no number of bytes"),
        ('{"path": "a", "size": true}', "its `size` is no number of bytes"),
        ('{"path": "a", "size": 9223372036854775808}', "larger than any file"),
        ('{"path": "a", "sha256": "ab"}', "its `sha256` is no 64 hexadecimal digits"),
        ('{"path": "a", "target": "b", "out": "c"}', "a `target` and another `out`"),
        ("file,size\na,1", "no header of CSV with a column `path`"),
        ("path,path\na,b", "names a column twice"),
        ("path,size\na,1\nb", "Line 3 of the manifest has 1 columns, its header 2"),
        ('path\n"a', "is no CSV"),
    ],
)
def test_what_cannot_be_understood_is_named(text: str, said: str) -> None:
    """The error tells the line, and what is wrong with it."""
    with pytest.raises(BadManifest, match="manifest") as raised:
        read(text)
    assert said in raised.value.message


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    """A recording that was named as a manifest is not read whole."""
    with pytest.raises(BadManifest, match="longer than"):
        read(b"\x00" * (3 << 20))


def test_a_manifest_is_read_in_flat_memory() -> None:
    """A hundred thousand lines take no more than a few."""

    class Endless(io.RawIOBase):
        def __init__(self, lines: int) -> None:
            self.parts: Iterator[bytes] = (b'{"path": "/archive/%07d.wav"}\n' % number for number in range(lines))

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object) -> int:
            part = next(self.parts, b"")
            cast("memoryview", buffer)[: len(part)] = part
            return len(part)

    tracemalloc.start()
    try:
        count = sum(1 for _ in read_manifest(cast("io.BufferedReader", io.BufferedReader(Endless(100_000)))))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 100_000
    assert peak < 500_000
