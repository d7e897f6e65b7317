"""Multipart bodies read as they come: short fields in memory, each file into a sink, in flat memory.

The framework's own form parser keeps whole files before a route sees them; here the bytes go where they stay.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from email.message import Message
from typing import Generic, Protocol, TypeVar

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser

from voicejobs.errors import BadMediaType, BadOption

MAX_FIELDS = 100
MAX_FIELD_BYTES = 64 * 1024
"""Bytes of one short field; a text longer than this is no parameter."""
MAX_NAME = 255
MAX_CONTENT_TYPE = 1024
"""Characters of a content type: the time that its parameters take to be read grows with the square of its length."""
_KEPT_BYTES = 1 << 20


class Sink(Protocol):
    """What takes the bytes of a file; it is discarded where the body turns out to be broken."""

    async def write(self, data: bytes) -> None:
        """Take some bytes."""
        ...

    async def discard(self) -> None:
        """Forget what was taken; does no harm twice, or after the end."""
        ...


S = TypeVar("S", bound=Sink)


@dataclass(slots=True)
class FilePart(Generic[S]):
    """Hold a file of a form: its sink, and what its part says of it."""

    name: str
    filename: str
    media_type: str
    sink: S


@dataclass(slots=True)
class Form(Generic[S]):
    """Hold a form: its fields in their order, and its files by the name of the field."""

    fields: list[tuple[str, str]] = field(default_factory=list)
    files: dict[str, FilePart[S]] = field(default_factory=dict)

    async def discard(self) -> None:
        """Forget all files."""
        for part in self.files.values():
            await part.sink.discard()


@dataclass(slots=True)
class _Part:
    """Hold what is known of the part that comes."""

    headers: dict[str, str] = field(default_factory=dict)
    header: bytearray = field(default_factory=bytearray)
    value: bytearray = field(default_factory=bytearray)
    name: str = ""
    filename: str | None = None
    text: bytearray = field(default_factory=bytearray)


async def read_form(
    content_type: str,
    chunks: AsyncIterator[bytes],
    open_sink: Callable[[], Awaitable[S]],
    *,
    file_fields: tuple[str, ...] = ("file",),
) -> Form[S]:
    """Return the form that a body holds; wherever in it the file stands.

    Args:
        content_type: header of the request.
        chunks: the body, as it comes.
        open_sink: makes a sink for a file.
        file_fields: names of fields that may be files.

    Raises:
        BadMediaType: it is no form.
        BadOption: it cannot be read, is broken off, or has too many or too long fields, or files that nobody wants.
    """
    reader = _Reader(boundary_of(content_type), open_sink, file_fields)
    try:
        async for chunk in chunks:
            await reader.feed(chunk)
        return reader.finish()
    except BaseException:
        await reader.form.discard()
        raise


def boundary_of(content_type: str) -> bytes:
    """Return the boundary that a content type names.

    Raises:
        BadMediaType: it is no `multipart/form-data`, names none, or is too long.
    """
    if len(content_type) > MAX_CONTENT_TYPE:
        raise BadMediaType(f"The content type has more than {MAX_CONTENT_TYPE} characters")
    message = Message()
    message["content-type"] = content_type.replace("\r", " ").replace("\n", " ")
    boundary = message.get_param("boundary")
    if message.get_content_type() != "multipart/form-data" or not isinstance(boundary, str) or not boundary:
        raise BadMediaType(
            "The body is no form", hint="Send multipart/form-data, with the recording as the field `file`."
        )
    try:
        return boundary.encode("latin-1")
    except UnicodeEncodeError:
        raise _broken("its boundary has characters that no boundary has") from None


def _broken(why: str) -> BadOption:
    """Return the error for a body that cannot be read."""
    return BadOption(f"The form cannot be read: {why}", hint="Send the request again.")


class _Reader(Generic[S]):
    """Turn the parser's callbacks, which cannot wait, into steps that are taken after each chunk."""

    def __init__(self, boundary: bytes, open_sink: Callable[[], Awaitable[S]], file_fields: tuple[str, ...]) -> None:
        self.form: Form[S] = Form()
        self._open_sink = open_sink
        self._file_fields = file_fields
        self._steps: list[tuple[str, bytes]] = []
        self._part = _Part()
        self._ended = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._note("begin"),
                    "on_header_field": self._note_data("header"),
                    "on_header_value": self._note_data("value"),
                    "on_header_end": self._note("header_end"),
                    "on_headers_finished": self._note("headers"),
                    "on_part_data": self._note_data("data"),
                    "on_part_end": self._note("part_end"),
                    "on_end": self._note("end"),
                },
            )
        except (FormParserError, ValueError) as error:
            raise _broken(str(error)) from None

    def _note(self, what: str) -> Callable[[], None]:
        """Return a callback without data."""
        return lambda: self._steps.append((what, b""))

    def _note_data(self, what: str) -> Callable[[bytes, int, int], None]:
        """Return a callback that keeps the stretch of the chunk that it is told of."""
        return lambda data, start, end: self._steps.append((what, data[start:end]))

    async def feed(self, chunk: bytes) -> None:
        """Take a chunk of the body."""
        for first in range(0, len(chunk), _KEPT_BYTES):
            try:
                self._parser.write(chunk[first : first + _KEPT_BYTES])
            except FormParserError as error:
                raise _broken(str(error)) from None
            steps, self._steps = self._steps, []
            for what, data in steps:
                await self._step(what, data)

    def finish(self) -> Form[S]:
        """Return the form, once no more comes."""
        if not self._ended:
            raise _broken("it ends before its last boundary")
        return self.form

    async def _step(self, what: str, data: bytes) -> None:
        """Take one step."""
        part = self._part
        if what == "data":
            await self._take(part, data)
        elif what == "begin":
            self._part = _Part()
        elif what == "header":
            part.header += data
        elif what == "value":
            part.value += data
        elif what == "header_end":
            part.headers[_decoded(part.header).lower()] = _decoded(part.value)
            part.header, part.value = bytearray(), bytearray()
        elif what == "headers":
            await self._begin(part)
        elif what == "part_end" and part.filename is None:
            self.form.fields.append((part.name, _field_text(part.name, part.text)))
        elif what == "end":
            self._ended = True

    async def _begin(self, part: _Part) -> None:
        """Look at the headers of a part, and open a sink if it is a file."""
        part.name, part.filename = names_of(part.headers.get("content-disposition", ""))
        if len(self.form.fields) + len(self.form.files) >= MAX_FIELDS:
            raise _broken(f"it has more than {MAX_FIELDS} fields")
        if part.filename is None:
            return
        if part.name not in self._file_fields or part.name in self.form.files:
            raise BadOption(f"{part.name} is no file that this endpoint takes", param=part.name)
        media_type = part.headers.get("content-type", "application/octet-stream")[:MAX_NAME]
        self.form.files[part.name] = FilePart(part.name, part.filename, media_type, await self._open_sink())

    async def _take(self, part: _Part, data: bytes) -> None:
        """Take some of the content of a part."""
        if part.filename is not None:
            await self.form.files[part.name].sink.write(data)
            return
        part.text += data
        if len(part.text) > MAX_FIELD_BYTES:
            raise BadOption(f"{part.name} has more than {MAX_FIELD_BYTES} bytes", param=part.name)


def names_of(disposition: str) -> tuple[str, str | None]:
    """Return the name of the field and that of the file, None where the part is no file.

    Raises:
        BadOption: the header names no field, or the file in characters that cannot be read.
    """
    message = Message()
    message["content-disposition"] = disposition.replace("\r", " ").replace("\n", " ")
    name = message.get_param("name", header="content-disposition")
    if message.get_content_disposition() != "form-data" or not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        raise _broken("a part of it has no name")
    try:
        return name, message.get_filename()
    except ValueError:  # the part names the encoding itself, one that Python cannot use here among them
        raise _broken("the name of its file is in no encoding that can be read") from None


def _decoded(data: bytes | bytearray) -> str:
    """Return the text of a header, whatever bytes it holds."""
    return bytes(data).decode("utf-8", "replace")


def _field_text(name: str, data: bytearray) -> str:
    """Return the text of a field."""
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError:
        raise BadOption(f"{name} is no text in UTF-8", param=name) from None
