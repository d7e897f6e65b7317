"""One exchange over HTTP/1.1 with addresses that were checked before, and an end to it in time."""

import contextlib
import ssl
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import httpcore
from httpcore import SOCKET_OPTION

from voicejobs.outbound.address import Address

TRIES_OF_A_HOST = 4
"""Addresses of a host that are tried before it counts as out of reach."""


class Deadline:
    """Count down the seconds that an exchange has in all, whatever the other side sends how slowly."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def left_s(self, most_s: float | None = None) -> float:
        """Return the seconds that the next wait may take.

        Raises:
            httpcore.ReadTimeout: there are none left.
        """
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise httpcore.ReadTimeout("the time for it is over")
        return left_s if most_s is None else min(left_s, most_s)


class _TimedStream(httpcore.NetworkStream):
    """Bound every wait of a stream by a deadline."""

    def __init__(self, inner: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return up to `max_bytes` bytes."""
        return self._inner.read(max_bytes, self._deadline.left_s(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes."""
        self._inner.write(buffer, self._deadline.left_s(timeout))

    def close(self) -> None:
        """Close the stream."""
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Return the stream inside TLS."""
        inner = self._inner.start_tls(ssl_context, server_hostname, self._deadline.left_s(timeout))
        return _TimedStream(inner, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        """Return what the inner stream knows."""
        return self._inner.get_extra_info(info)


class PinnedBackend(httpcore.NetworkBackend):
    """Connect to the given addresses and to no others, whatever name is asked for; nothing is resolved here.

    Args:
        addresses: checked addresses of the host.
        deadline: the end of the exchange.
    """

    def __init__(self, addresses: Sequence[Address], deadline: Deadline) -> None:
        self._addresses = addresses
        self._deadline = deadline
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Return a connection to the first address that takes one.

        Raises:
            httpcore.ConnectError, httpcore.ConnectTimeout: none does.
        """
        failure: Exception = httpcore.ConnectError("no address")
        for address in self._addresses[:TRIES_OF_A_HOST]:
            try:
                inner = self._inner.connect_tcp(
                    str(address), port, self._deadline.left_s(timeout), local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return _TimedStream(inner, self._deadline)
        raise failure

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[SOCKET_OPTION] | None = None
    ) -> httpcore.NetworkStream:
        """Refuse: no address that is asked for somebody else is a socket of this machine.

        Raises:
            httpcore.ConnectError: always.
        """
        raise httpcore.ConnectError("sockets of this machine are not asked")


@contextlib.contextmanager
def exchange(
    request: httpcore.Request, addresses: Sequence[Address], deadline: Deadline, context: ssl.SSLContext
) -> Iterator[httpcore.Response]:
    """Send a request to one of `addresses` and give its answer, whose body is still to be read.

    No proxy, no cookies, no redirects, no second try, and nothing is unpacked.
    """
    backend = PinnedBackend(addresses, deadline)
    with httpcore.ConnectionPool(ssl_context=context, network_backend=backend, http2=False) as pool:
        response = pool.handle_request(request)
        try:
            yield response
        finally:
            response.close()
