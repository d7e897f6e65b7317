"""Parts and conditions of content, each corner of RFC 9110 by itself."""

import asyncio
from io import BytesIO
from typing import Any

import pytest
from fastapi import Request

from voicejobs.api.ranges import Content, serve
from voicejobs.errors import RangeRefused

TAG = '"sha256-ab"'


def ask(data: bytes = b"0123456789", method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of the answer to a request."""
    sent: list[dict[str, Any]] = []
    file = BytesIO(data)

    async def run(act: Any, *arguments: Any) -> Any:
        return act(*arguments)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def answer() -> None:
        named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "headers": named, "asgi": {"spec_version": "2.4"}}
        response = serve(Request(scope), Content(file, len(data), "ab", "text/plain", "a.txt"), run)
        await response(scope, receive, send)

    asyncio.run(answer())
    assert file.closed
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], told, b"".join(one.get("body", b"") for one in sent[1:])


@pytest.mark.parametrize(
    ("wanted", "status", "body", "place"),
    [
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=0-0", 206, b"0", "bytes 0-0/10"),
        ("bytes=9-", 206, b"9", "bytes 9-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=8-9999999999999999999", 206, b"89", "bytes 8-9/10"),
        ("bytes=5-2", 200, b"0123456789", None),
        ("bytes=-", 200, b"0123456789", None),
        ("bytes=1-2,4-5", 200, b"0123456789", None),
        ("bytes=99999999999999999999-", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
    ],
)
def test_a_range_is_served_or_passed_over(wanted: str, status: int, body: bytes, place: str | None) -> None:
    """One range gives those bytes and says which; what is none, or several, gives the whole."""
    found, headers, data = ask(range=wanted)
    assert (found, data, headers.get("content-range")) == (status, body, place)
    assert headers["content-length"] == str(len(body))


@pytest.mark.parametrize(("data", "wanted"), [(b"0123", "bytes=4-"), (b"0123", "bytes=-0"), (b"", "bytes=0-")])
def test_a_range_behind_the_end_is_refused(data: bytes, wanted: str) -> None:
    """Where none of the bytes is there the answer says how many there are."""
    with pytest.raises(RangeRefused) as caught:
        ask(data, range=wanted)
    assert caught.value.details["headers"] == {"Content-Range": f"bytes */{len(data)}"}


def test_conditions_come_before_ranges() -> None:
    """A known validator needs no body, whatever range is asked for; a range of another version gives the whole."""
    assert ask(if_none_match=f'"x", W/{TAG}', range="bytes=0-1")[0] == 304
    assert ask(if_none_match="*")[0] == 304
    assert ask(if_none_match='"x"')[0] == 200
    assert ask(if_range=TAG, range="bytes=0-1")[0] == 206
    assert ask(if_range=f"W/{TAG}", range="bytes=0-1")[0] == 200
    assert ask(if_range="Tue, 01 Dec 2026 00:00:00 GMT", range="bytes=0-1")[0] == 200


@pytest.mark.parametrize("wanted", ["bytes=2-4", "bytes=99-", "none"])
def test_head_tells_of_the_whole(wanted: str) -> None:
    """HEAD has no body and no ranges: it tells the length of the whole."""
    status, headers, data = ask(method="HEAD", range=wanted)
    assert (status, headers["content-length"], headers["etag"], data) == (200, "10", TAG, b"")
