"""Where the bytes of uploads go: into the store of blobs, as they come, a megabyte at a time in memory."""

from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from voicejobs.api.context import Context
from voicejobs.api.multipart import Form, read_form
from voicejobs.errors import BadOption
from voicejobs.store.blobs import BlobWriter, Stored

HELD_BYTES = 1 << 20


class BlobSink:
    """Write a blob from a coroutine: each megabyte takes one trip to a thread."""

    def __init__(self, context: Context, writer: BlobWriter) -> None:
        self._context = context
        self.writer = writer
        self._held = bytearray()

    async def write(self, data: bytes) -> None:
        """Take some bytes.

        Raises:
            TooLarge, DiskFull: there are too many.
        """
        self._held += data
        if len(self._held) >= HELD_BYTES:
            await self.flush()

    async def flush(self) -> None:
        """Write what is held."""
        if self._held:
            data, self._held = self._held, bytearray()
            await self._context.run(self.writer.write, data)

    async def commit(self) -> Stored:
        """Make the blob durable, and return what it is."""
        await self.flush()
        return await self._context.run(self.writer.commit)

    async def discard(self) -> None:
        """Forget what was taken; does no harm twice, or after the end."""
        self._held = bytearray()
        await self._context.run(self.writer.discard)


async def received(
    request: Request, context: Context, limit_bytes: int, file_fields: tuple[str, ...] = ("file",)
) -> Form[BlobSink]:
    """Return the form that a request brings; its files are written, and not yet kept.

    Raises:
        BadMediaType, BadOption: it is no form, or one that cannot be read.
        TooLarge, DiskFull: there is no room for its file.
    """

    async def opened() -> BlobSink:
        return BlobSink(context, await context.run(context.blobs.writer, limit_bytes=limit_bytes, taken_in=True))

    return await read_form(request.headers.get("content-type", ""), _body(request), opened, file_fields=file_fields)


async def _body(request: Request) -> AsyncIterator[bytes]:
    """Yield the body of a request.

    Raises:
        BadOption: the client has left in the middle of it.
    """
    try:
        async for chunk in request.stream():
            yield chunk
    except ClientDisconnect:
        raise BadOption("The body broke off", hint="Send the request again.") from None
