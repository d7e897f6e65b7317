"""A proxy between a client and a server that counts bytes, slows them down, and can be cut."""

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self

BLOCK_BYTES = 65_536
REQUEST = b" HTTP/1.1\r\n"
"""Ends the first line of each request; clients send a head in one go."""


class Proxy:
    """Pass connections on to a port of this machine.

    Args:
        port: where to.
        rate: bytes a second towards the server, on each connection; 0 for as fast as it goes.
    """

    def __init__(self, port: int, *, rate: float = 0.0) -> None:
        self.port = port
        self.rate = rate
        self.sent_bytes = 0
        self.requests = 0
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))

    @property
    def url(self) -> str:
        """Return the address that clients take."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Close every connection."""
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._open.clear()

    def _accept(self) -> None:
        """Take connections until the listener is closed."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                client.close()
                continue
            self._open |= {client, server}
            for source, target, counts in ((client, server, True), (server, client, False)):
                threading.Thread(
                    target=self._pump, args=(source, target), kwargs={"counts": counts}, daemon=True
                ).start()

    def _pump(self, source: socket.socket, target: socket.socket, *, counts: bool) -> None:
        """Pass on what comes, until one of the two has gone."""
        try:
            while data := source.recv(BLOCK_BYTES):
                target.sendall(data)
                if counts:
                    self.sent_bytes += len(data)
                    self.requests += data.count(REQUEST)
                    if self.rate:
                        time.sleep(len(data) / self.rate)
        except OSError:
            pass
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
            self._open.discard(one)
