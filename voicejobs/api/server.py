"""Run the service: one process with one event loop, until SIGTERM."""

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from voicejobs.api import calm
from voicejobs.api.app import create_app
from voicejobs.api.checks import check_settings
from voicejobs.api.context import Context
from voicejobs.api.headers import is_loopback
from voicejobs.embedded.stack import Stack, make_state_dir
from voicejobs.errors import BadOption, StackUnavailable
from voicejobs.settings import Settings
from voicejobs.store import keys, migrate
from voicejobs.store.database import Database
from voicejobs.store.remote_blobs import blob_store

MOST_HEADER_BYTES = 32 * 1024
MOST_CONNECTIONS = 2048
KEEP_ALIVE_S = 30
BACKLOG = 512
STACK_CHECK_S = 1.0
LARGEST_SOCKET_MESSAGE_BYTES = 1 << 20
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """Say how to serve.

    Args:
        host: address or name to listen on.
        port: port; 0 takes a free one.
        tls_cert: certificate chain, PEM; None serves in plain text.
        tls_key: its private key.
        client_ca: CA that vouches for clients; None asks for no certificates.
        allow_public: serve a public address without TLS, or without a key.
        ready_file: file that holds the address while requests are taken.
        grace_s: time that requests have to end after SIGTERM.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    allow_public: bool = False
    ready_file: Path | None = None
    grace_s: float = 10.0


def check_exposure(options: ApiOptions, *, has_keys: bool) -> None:
    """Refuse to serve the network in plain text, or where no key was ever made.

    Raises:
        BadOption: it would.
    """
    if options.allow_public or is_loopback(options.host):
        return
    if options.tls_cert is None:
        missing = "TLS"
    elif not has_keys:
        missing = "keys"
    else:
        return
    raise BadOption(
        f"{options.host} is open to the network, and there is no protection by {missing}",
        hint="Give --tls-cert and --tls-key and make a key (`voicejobs key create`), or say --allow-public.",
    )


def run(options: ApiOptions, settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, saying on standard output where.

    Raises:
        BadOption: the address is taken, or a file, an option or a setting is wrong.
        DatabaseUnavailable, SchemaMismatch, StackUnavailable: as their names say.
    """
    check_settings(settings)
    make_state_dir(settings)
    loopback = is_loopback(options.host)
    context = open_context(settings, open_to_all=loopback and not options.allow_public)
    try:
        has_keys = keys.has_keys(context.database)
        check_exposure(options, has_keys=has_keys)
        listener = _listener(options)
        if context.open_to_all and not has_keys:
            _logger.warning("no key was ever made: whoever can reach this address may do everything")
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(listener.close)
            cleanup.enter_context(_kept_stack(context))
            server = Server(_configuration(options, context, loopback=loopback), options, context)
            context.start_threads()
            calm.calm_down()  # before the loop turns, which it would hold up
            server.run([listener])
    finally:
        context.close()


def open_context(settings: Settings, *, open_to_all: bool) -> Context:
    """Return what the routes need; the embedded database is migrated on the way, a server must be migrated already.

    Raises:
        DatabaseUnavailable, SchemaMismatch: as their names say.
    """
    database = Database(settings.effective_database_url)
    if database.is_sqlite:
        migrate.upgrade(database)
    else:
        migrate.check(database)
    blobs = blob_store(settings)
    blobs.make_folders()
    return Context(settings, database, blobs, open_to_all=open_to_all)


@contextlib.contextmanager
def _kept_stack(context: Context) -> Iterator[None]:
    """Keep the embedded stack alive, where this installation has one.

    Raises:
        StackUnavailable: it does not start.
    """
    stack = Stack(context.settings)
    if not stack.is_needed:
        yield
        return
    ended = threading.Event()
    lock = threading.Lock()

    def check() -> None:
        with lock:
            stack.check()

    def watch() -> None:
        while not ended.wait(STACK_CHECK_S):
            try:
                check()
            except StackUnavailable as error:
                _logger.error("the embedded stack is away", extra={"error": error.message})  # noqa: TRY400 - no traceback

    with stack:
        stack.join()
        context.check_stack = check
        watcher = threading.Thread(target=watch, name="stack", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _listener(options: ApiOptions) -> socket.socket:
    """Open the port.

    Raises:
        BadOption: it is taken, not ours, or no address.
    """
    host = options.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio's own loop asks for it before it sets TCP_NODELAY on a connection; without
    # that an answer whose head and body are sent apart takes 40 ms more.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, options.port))
    except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host, as `a..b`
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else "it is no name of a host"
        raise BadOption(f"{options.host}:{options.port} cannot be served: {reason}", hint="Choose another.") from error
    listener.setblocking(False)
    return listener


def _configuration(options: ApiOptions, context: Context, *, loopback: bool) -> uvicorn.Config:
    """Return how uvicorn is to serve the app.

    Raises:
        BadOption: a file of TLS cannot be used.
    """
    tls: dict[str, Any] = {}
    if options.tls_cert is not None:
        tls = {"ssl_certfile": options.tls_cert, "ssl_keyfile": options.tls_key}
        if options.client_ca is not None:
            tls |= {"ssl_ca_certs": str(options.client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    config = uvicorn.Config(
        create_app(context, loopback=loopback),
        loop="auto",
        http=type("Protocol", (Guarded,), {"header_wait_s": context.settings.api_header_wait_s}),
        ws="auto",
        ws_max_size=LARGEST_SOCKET_MESSAGE_BYTES,
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(int(options.grace_s), 1),
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        lifespan="on",
        **tls,
    )
    try:
        config.load()
    except OSError as error:
        raise BadOption(
            f"TLS cannot be served: {error}", hint="Check --tls-cert, --tls-key and --client-ca."
        ) from error
    return config


class Server(uvicorn.Server):
    """Say where it serves, tell the routes when it stops, and end without a signal of its own."""

    def __init__(self, config: uvicorn.Config, options: ApiOptions, context: Context) -> None:
        super().__init__(config)
        self._options = options
        self._context = context
        self._beside = contextlib.AsyncExitStack()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take requests, and say so."""
        await super().startup(sockets)
        if not sockets:
            return
        calm.leave_alone()
        await self._beside.enter_async_context(calm.collecting())
        scheme = "http" if self._options.tls_cert is None else "https"
        host = self._options.host
        shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
        address = f"{scheme}://{shown}:{sockets[0].getsockname()[1]}"
        if self._options.ready_file is not None:
            self._options.ready_file.write_text(f"{address}\n", encoding="utf-8")
        _logger.info("serving", extra={"address": address})
        with contextlib.suppress(BrokenPipeError):
            print(f"serving on {address}", flush=True)  # noqa: T201 - whoever started us waits for this line

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more, and let what runs end."""
        if self._options.ready_file is not None:
            self._options.ready_file.unlink(missing_ok=True)
        await self._beside.aclose()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop."""
        self._context.stopping.set()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals stop the server; uvicorn itself would raise them again afterwards."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


class Guarded(H11Protocol):
    """Close connections that do not say in time what they want, and those that are too many.

    h11 rather than httptools: it bounds the headers, and is strict about what a request is.
    """

    header_wait_s: float = 0.0
    _waiting: asyncio.TimerHandle | None = None
    _before: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Wait for the first request."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._wait()

    def data_received(self, data: bytes) -> None:
        """Take data; where a request begins on a connection that had others, wait for the rest of its headers."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle  # None until there was a request, whatever uvicorn declares
        if cycle is not None and cycle.response_complete and (self._waiting is None or self._before is not self.cycle):
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        if self._waiting is not None:
            self._waiting.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        """Look after a while whether a request has come."""
        if self._waiting is not None:
            self._waiting.cancel()
        if self.header_wait_s:
            self._before = self.cycle
            self._waiting = self.loop.call_later(self.header_wait_s, self._look)

    def _look(self) -> None:
        """Close the connection where none has; one that became a WebSocket has another protocol by now."""
        self._waiting = None
        if self.cycle is self._before and not self.transport.is_closing() and self.transport.get_protocol() is self:
            self.transport.abort()
