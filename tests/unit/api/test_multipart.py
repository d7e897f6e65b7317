"""Forms that are read as they come."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicejobs.api.multipart import Form, boundary_of, names_of, read_form
from voicejobs.errors import BadMediaType, BadOption

CONTENT_TYPE = 'multipart/form-data; boundary="b-1"'


class Kept:
    """Keep what is written."""

    def __init__(self) -> None:
        self.data = b""
        self.discarded = False

    async def write(self, data: bytes) -> None:
        """Keep some bytes."""
        self.data += data

    async def discard(self) -> None:
        """Forget them."""
        self.discarded = True


def part(disposition: str, content: bytes, more: str = "") -> bytes:
    """Return one part of a body."""
    return f"--b-1\r\nContent-Disposition: form-data; {disposition}\r\n{more}\r\n".encode() + content + b"\r\n"


def read(body: bytes, size: int = 7, opened: list[Kept] | None = None) -> Form[Kept]:
    """Read a body in pieces of a size."""

    async def chunks() -> AsyncIterator[bytes]:
        for first in range(0, len(body), size):
            yield body[first : first + size]

    async def open_sink() -> Kept:
        sink = Kept()
        (opened if opened is not None else []).append(sink)
        return sink

    return asyncio.run(read_form(CONTENT_TYPE, chunks(), open_sink))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300).filter(lambda data: b"--b-1" not in data), st.integers(1, 400))
def test_a_file_is_what_was_sent_wherever_it_stands(content: bytes, size: int) -> None:
    """Whatever the sizes of the pieces, and whether fields stand before or behind it."""
    file = part('name="file"; filename="a b.wav"', content, "Content-Type: audio/wav\r\n")
    form = read(part('name="model"', b"base") + file + part('name="prompt"', "Köln".encode()) + b"--b-1--\r\n", size)
    assert form.fields == [("model", "base"), ("prompt", "Köln")]
    found = form.files["file"]
    assert (found.filename, found.media_type, found.sink.data) == ("a b.wav", "audio/wav", content)


def test_a_form_that_breaks_off_is_refused_and_its_file_forgotten() -> None:
    """Half a recording is none."""
    opened: list[Kept] = []
    with pytest.raises(BadOption, match="ends before its last boundary"):
        read(part('name="file"; filename="a.wav"', b"RIFF"), opened=opened)
    assert [one.discarded for one in opened] == [True]


@pytest.mark.parametrize(
    "body",
    [
        b"no form",
        b"--b-1\r\nContent-Type: text/plain\r\n\r\nx\r\n--b-1--\r\n",
        part('name="other"; filename="a.wav"', b"x") + b"--b-1--\r\n",
        part('name="file"; filename="a"', b"x") * 2 + b"--b-1--\r\n",
        part('name="model"', b"\xff") + b"--b-1--\r\n",
        part('name="model"', b"x" * 70_000) + b"--b-1--\r\n",
        part('name="model"', b"x") * 101 + b"--b-1--\r\n",
        b"--b-1\r\n" + b"X: y\r\n" * 1000 + b"\r\nx\r\n--b-1--\r\n",
    ],
)
def test_what_is_no_form_of_ours_is_refused(body: bytes) -> None:
    """Parts without a name, files that nobody wants, and more than a request needs."""
    with pytest.raises(BadOption):
        read(body, 4096)


@pytest.mark.parametrize("content_type", ["", "application/json", "multipart/form-data", "multipart/mixed; boundary=b"])
def test_a_content_type_without_a_boundary_is_refused(content_type: str) -> None:
    """The body is not looked at."""
    with pytest.raises(BadMediaType, match="no form"):
        boundary_of(content_type)


def test_a_content_type_that_would_take_long_to_read_is_refused() -> None:
    """Its parameters take time by the square of their number, on the loop that serves everybody."""
    with pytest.raises(BadMediaType, match="more than 1024"):
        boundary_of("multipart/form-data; boundary=b; x=" + ";" * 30_000)


@pytest.mark.parametrize("encoding", ["idna", "a\0b", "punycode", "undefined"])
def test_a_file_name_in_an_encoding_of_no_use_is_refused(encoding: str) -> None:
    """The part names the encoding; one that Python knows and cannot use here is the fault of the sender."""
    with pytest.raises(BadOption, match="no encoding"):
        names_of(f"form-data; name=file; filename*={encoding}''%ff%fe")


def test_names_of_files_are_read_in_every_spelling() -> None:
    """Quoted, with an escape, and in the extended form."""
    assert names_of('form-data; name="file"; filename="a\\"b.wav"') == ("file", 'a"b.wav')
    assert names_of("form-data; name=file; filename*=UTF-8''K%C3%B6ln.wav") == ("file", "Köln.wav")
    assert names_of('form-data; name="model"') == ("model", None)
