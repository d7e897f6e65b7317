"""Frames of server-sent events, and streams whose readers leave or stand still."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from voicejobs.api import sse
from voicejobs.api.sse import EventStream, Streams, frame
from voicejobs.client.service import parse_events
from voicejobs.errors import RateLimited


def test_an_event_is_one_frame() -> None:
    """Kind, id and data are a line each, whatever line ends the data holds; without an id there is none."""
    whole = frame("job.failed", {"text": "two\nlines\r\ndata: x"}, "evt_1").decode()
    lines = whole.split("\n")
    assert lines[:2] == ["event: job.failed", "id: evt_1"]
    assert json.loads(lines[2].removeprefix("data: ")) == {"text": "two\nlines\r\ndata: x"}
    assert whole.endswith("\n\n")
    assert whole.count("\n\n") == 1
    assert b"id:" not in frame("progress", {})


def test_what_a_client_takes_for_a_line_end_stays_in_its_line() -> None:
    """Characters at which Python breaks lines, and an event stream does not, reach clients that break there whole."""
    names = {"name": "a\u2028b\u2029c\x85d\x0be\x1cf"}
    lines = httpx.Response(200, content=frame("snapshot", names, "evt_1")).iter_lines()
    (event,) = parse_events(lines)
    assert (event.type, event.id) == ("snapshot", "evt_1")
    assert json.loads(event.data) == names


def test_streams_are_counted() -> None:
    """A name may hold so many streams, gets room again when one ends, and 0 is no limit."""
    streams = Streams()
    for _ in range(2):
        streams.enter("a", 2)
    with pytest.raises(RateLimited):
        streams.enter("a", 2)
    streams.enter("b", 2)
    streams.leave("a")
    streams.enter("a", 2)
    streams.enter("c", 0)
    assert streams.total == 4


async def serve(send: Any, receive: Any, closed: list[bool]) -> Streams:
    """Serve an endless stream and return its counter."""

    async def frames() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b": x\n\n"
                await asyncio.sleep(0)
        finally:
            closed.append(True)

    streams = Streams()
    streams.enter("a", 1)
    await EventStream(frames(), streams, "a")({"type": "http"}, receive, send)
    return streams


def test_a_reader_that_stands_still_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not take what it is sent loses its stream, which is closed and counted no more."""
    monkeypatch.setattr(sse, "PATIENCE_S", 0.05)

    async def main() -> None:
        closed: list[bool] = []

        async def send(message: Any) -> None:
            if message.get("body"):
                await asyncio.sleep(60)

        async def receive() -> Any:
            await asyncio.sleep(60)

        streams = await asyncio.wait_for(serve(send, receive, closed), 5)
        assert (streams.total, closed) == (0, [True])

    asyncio.run(main())


def test_a_reader_that_leaves_ends_its_stream() -> None:
    """When the connection is closed, the stream ends at once, and what makes it is closed."""

    async def main() -> None:
        closed: list[bool] = []
        sent = asyncio.Event()

        async def send(message: Any) -> None:
            sent.set()

        async def receive() -> Any:
            await sent.wait()
            return {"type": "http.disconnect"}

        streams = await asyncio.wait_for(serve(send, receive, closed), 5)
        assert (streams.total, closed) == (0, [True])

    asyncio.run(main())
