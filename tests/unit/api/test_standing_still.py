"""Callers that take nothing of their answer."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from unittest.mock import Mock

import pytest
import uvicorn
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from tests.waiting import patience
from voicejobs.api.server import guarded

CHUNK = b"x" * (1 << 18)
LITTLE_BYTES = 4096
SEND_WAIT_S = 0.2


class Endless:
    """Answer every request with bytes without end, and note when an answer is given up."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve."""
        try:
            await StreamingResponse(self._bytes())(scope, receive, send)
        finally:
            self.ended.set()

    async def _bytes(self) -> AsyncIterator[bytes]:
        """Yield bytes."""
        while True:
            await asyncio.sleep(0)  # a caller that has gone is noticed by another task
            yield CHUNK


def open_port(host: str = "127.0.0.1") -> socket.socket:
    """Return a socket that takes connections."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LITTLE_BYTES)  # what the kernel holds is no answer yet
    listener.bind((host, 0))
    listener.listen()
    listener.setblocking(False)
    return listener


async def ask(listener: socket.socket) -> socket.socket:
    """Return a connection on which a request was sent, and nothing is read."""
    caller = socket.socket()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LITTLE_BYTES)
    caller.setblocking(False)
    await asyncio.get_running_loop().sock_connect(caller, listener.getsockname())
    await asyncio.get_running_loop().sock_sendall(caller, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    return caller


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, pytest.importorskip("uvloop").new_event_loop])
def test_who_takes_nothing_is_cut_off(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """A caller that stands still holds its answer no longer than the time that it has."""

    async def main() -> None:
        app = Endless()
        config = uvicorn.Config(
            app, http=guarded(0.0, SEND_WAIT_S), ws="none", lifespan="off", log_config=None, access_log=False
        )
        server = uvicorn.Server(config)
        with open_port() as listener:
            serving = asyncio.create_task(server._serve(sockets=[listener]))
            with await ask(listener):
                await asyncio.wait_for(app.ended.wait(), 20 * patience())
            server.should_exit = True
            await serving

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


def test_who_takes_little_is_waited_for() -> None:
    """As long as bytes go the connection stays; once none has gone for the time it is closed at once."""

    async def main() -> None:
        config = uvicorn.Config(Endless(), http=guarded(0.0, SEND_WAIT_S), ws="none", lifespan="off", log_config=None)
        config.load()
        protocol = guarded(0.0, 3600.0)(config, ServerState(), {})
        transport = Mock(get_write_buffer_size=Mock(side_effect=[500, 400, 399, 399]))
        protocol.connection_made(transport)
        protocol.pause_writing()
        for left in (500, 400, 399):
            timer = protocol._stuck
            assert timer is not None
            assert not transport.abort.called
            timer.cancel()
            protocol._look_again(left)
        assert transport.abort.called
        protocol.connection_lost(None)

    asyncio.run(main())
