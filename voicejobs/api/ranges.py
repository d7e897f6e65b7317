"""Parts and conditions of immutable content: ETag, If-None-Match, Range, If-Range, HEAD (RFC 9110, sections 13 and 14).

One range is served. A request for several gets the whole, which the standard allows and which nobody can abuse.
"""

import re
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Final
from urllib.parse import quote

from fastapi import Request
from starlette.background import BackgroundTask
from starlette.responses import Response, StreamingResponse

from voicejobs.errors import RangeRefused

CHUNK_BYTES: Final = 1 << 18
_RANGE: Final = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")
_MAX_AGE_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class Content:
    """Describe immutable content.

    Args:
        file: the bytes, which can be sought; closed when the answer ends.
        size_bytes: how many they are.
        tag: what tells it from all other content, in hexadecimal.
        sha256: of the bytes in hexadecimal; empty where that is not known.
        media_type: one of our own list.
        filename: name to save it under.
    """

    file: BinaryIO
    size_bytes: int
    tag: str
    media_type: str
    filename: str
    sha256: str = ""

    @property
    def etag(self) -> str:
        """Return the strong validator."""
        return f'"sha256-{self.tag}"'


def disposition(filename: str) -> str:
    """Return the header that lets browsers save content under a name, whatever characters it has."""
    plain = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "-_. ") else "_" for letter in filename
    )
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"


def serve(request: Request, content: Content, run: Callable[..., Awaitable[Any]]) -> Response:
    """Return the answer to GET or HEAD for content.

    Args:
        request: whose conditions and range count.
        content: the content.
        run: calls a function that may block in a thread.

    Raises:
        RangeRefused: none of what is asked for is there.
    """
    headers = {
        "ETag": content.etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": f"private, max-age={_MAX_AGE_S}, immutable",
        "Content-Disposition": disposition(content.filename),
        "X-Content-Type-Options": "nosniff",
    }
    if content.sha256:
        headers["Repr-Digest"] = f"sha-256=:{b64encode(bytes.fromhex(content.sha256)).decode()}:"
    if _is_known(request.headers.get("if-none-match", ""), content.etag):
        content.file.close()
        return Response(status_code=304, headers=headers)
    try:
        first, end, status = _part(request, content)
    except RangeRefused:
        content.file.close()
        raise
    if status == 206:  # noqa: PLR2004 - Partial Content
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{content.size_bytes}"
    headers["Content-Length"] = str(end - first)
    if request.method == "HEAD":
        content.file.close()
        return Response(status_code=status, headers=headers, media_type=content.media_type)
    return StreamingResponse(
        _pieces(content.file, first, end, run),
        status,
        headers=headers,
        media_type=content.media_type,
        background=BackgroundTask(run, content.file.close),
    )


def _is_known(header: str, etag: str) -> bool:
    """Tell whether a list of validators has this one; weak ones count here."""
    tags = [one.strip().removeprefix("W/") for one in header.split(",")]
    return etag in tags or "*" in tags


def _part(request: Request, content: Content) -> tuple[int, int, int]:
    """Return first byte and end of what is sent, and the status; HEAD has no ranges (RFC 9110, 14.2).

    Raises:
        RangeRefused: the range begins behind the end.
    """
    size = content.size_bytes
    condition = request.headers.get("if-range")
    match = _RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    if (
        request.method != "GET"
        or match is None
        or not (match[1] or match[2])
        or (condition is not None and condition.strip() != content.etag)
    ):
        return 0, size, 200
    if match[1]:
        first, end = int(match[1]), min(int(match[2]) + 1, size) if match[2] else size
        if match[2] and int(match[2]) < first:
            return 0, size, 200  # that is no range, and is passed over
    else:
        first, end = max(0, size - int(match[2])), size
    if first >= size or first >= end:
        raise RangeRefused(
            f"there are {size} bytes, and none at that place", headers={"Content-Range": f"bytes */{size}"}
        )
    return first, end, 206


async def _pieces(file: BinaryIO, first: int, end: int, run: Callable[..., Awaitable[Any]]) -> AsyncIterator[bytes]:
    """Yield the bytes from `first` to `end`, read in a thread, in flat memory."""
    try:
        await run(file.seek, first)
        left = end - first
        while left > 0:
            data = await run(partial(file.read, min(CHUNK_BYTES, left)))
            if not data:
                return
            left -= len(data)
            yield data
    finally:
        file.close()
