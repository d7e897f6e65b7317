"""Server-sent events: frames, a stream that ends when its reader does, and how many streams a key may hold."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from voicejobs.errors import RateLimited

MEDIA_TYPE: Final = "text/event-stream"
KEEP_ALIVE_S: Final = 15.0
RETRY_MS: Final = 2_000
PATIENCE_S: Final = 30.0
"""Time in which a reader must take what it is sent."""
KEEP_ALIVE: Final = b": keep-alive\n\n"
_BREAKS: Final = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""What many a program takes for the end of a line, though event streams and JSON do not, as JSON writes it too."""
_HEADERS: Final = {"X-Accel-Buffering": "no", "Cache-Control": "no-store", "Connection": "keep-alive"}


def frame(event: str, data: Any, event_id: str = "") -> bytes:
    """Return one event; its data is JSON on one line. One without an id leaves the reader's last id as it was."""
    lines = [f"event: {event}", *([f"id: {event_id}"] if event_id else [])]
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).translate(_BREAKS)
    return "\n".join([*lines, f"data: {text}", "", ""]).encode()


def retry_frame() -> bytes:
    """Return what tells a reader how long to wait before it comes back."""
    return f"retry: {RETRY_MS}\n\n".encode()


class Streams:
    """Count the open streams of keys; used on the event loop alone."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Return how many streams are open."""
        return self._open.total()

    def enter(self, name: str, most: int) -> None:
        """Count one more.

        Raises:
            RateLimited: the key has as many as it may; 0 is no limit.
        """
        if most and self._open[name] >= most:
            raise RateLimited(f"{most} event streams are open for this key already", retry_after_s=5)
        self._open[name] += 1

    def leave(self, name: str) -> None:
        """Count one less."""
        self._open[name] -= 1
        if self._open[name] <= 0:
            del self._open[name]


class EventStream(Response):
    """Send frames as they are made; ends when the reader is gone, or does not take them in time.

    Args:
        frames: what is sent; closed in the end, however that comes.
        streams: where the stream is counted; it has been entered there.
        name: for whom.
    """

    media_type = MEDIA_TYPE

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        streams: Streams,
        name: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._frames = frames
        self._streams = streams
        self._name = name
        self.status_code = 200
        self.background = None
        self.init_headers({**_HEADERS, **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream."""
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            sending.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            outcome = (await asyncio.gather(sending, return_exceptions=True))[0]
            self._streams.leave(self._name)
        if isinstance(outcome, Exception) and not isinstance(outcome, (TimeoutError, OSError)):
            raise outcome

    async def _send(self, send: Send) -> None:
        """Send all frames, each within its time."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._frames) as frames:
            async for one in frames:
                await _in_time(send, {"type": "http.response.body", "body": one, "more_body": True})
        await _in_time(send, {"type": "http.response.body", "body": b"", "more_body": False})


async def _in_time(send: Send, message: Message) -> None:
    """Send a message.

    Raises:
        TimeoutError: the reader does not take it.
    """
    async with asyncio.timeout(PATIENCE_S):
        await send(message)


async def _left(receive: Receive) -> None:
    """Return when the reader has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
