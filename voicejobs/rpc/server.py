"""Put a server of the voice engine together, run it until SIGTERM, and let it go in order.

The server is one event loop (grpc.aio) beside a few threads: a request that waits, a stream that is silent and a
refusal cost no thread, and a client that leaves, or a deadline, cancels its handler at once. What blocks (decoding,
engine calls) runs in threads, as many as there are slots.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from voicejobs import spans
from voicejobs.errors import BadOption, Unreadable
from voicejobs.memory import MemoryGuard
from voicejobs.proto import voice_engine_pb2, voice_engine_pb2_grpc
from voicejobs.rpc.access import KeyCheck, Keys
from voicejobs.rpc.admission import Admission, Limits
from voicejobs.rpc.engines import EnginePlan, Engines
from voicejobs.rpc.metrics import ServerMetrics, serve_metrics
from voicejobs.rpc.service import VoiceEngine
from voicejobs.settings import Settings

DEFAULT_ADDRESS = "127.0.0.1:50051"
SERVICE = voice_engine_pb2.DESCRIPTOR.services_by_name["VoiceEngine"].full_name
HELD_MESSAGES = 4
"""Messages of the largest size that may wait together."""
_SPARE_CALLS = 64
_MEMORY_LOOK_S = 1.0
_KEEPALIVE_MS, _KEEPALIVE_TIMEOUT_MS, _SHORTEST_PING_MS = 60_000, 20_000, 10_000
_MOST_PORT = 65_535
"""gRPC takes larger ones, and serves what is left of them in 16 bits."""
_UNIX = "unix:"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tls:
    """Name the files of TLS, PEM: certificate chain and key of the server, and the CA that vouches for clients."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Say how to serve.

    Args:
        plan: which engines.
        address: `HOST:PORT`, or `unix:PATH`; port 0 takes a free one.
        slots: requests that work at once; 0 derives it from the engines.
        streams: streams that may be open at once.
        tls: files of TLS; None serves in plain text.
        allow_public: serve a public address without TLS or without keys.
        ready_file: file that holds the address while the server takes calls.
        grace_s: time that calls have to end after SIGTERM.
        metrics_port: port of loopback that shows metrics, 0 for a free one; None for none.
    """

    plan: EnginePlan
    address: str = DEFAULT_ADDRESS
    slots: int = 0
    streams: int = 32
    tls: Tls | None = None
    allow_public: bool = False
    ready_file: Path | None = None
    grace_s: float = 10.0
    metrics_port: int | None = None


def is_public(address: str) -> bool:
    """Tell whether others than this machine reach an address.

    Raises:
        BadOption: it is no address.
    """
    if address.startswith(_UNIX):
        return False
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and int(port) <= _MOST_PORT) or not host:
        raise BadOption(f"{address!r} is no address", hint="Write HOST:PORT, [IPV6]:PORT or unix:PATH.")
    if host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return True  # a name: whatever it stands for


def check_exposure(options: ServerOptions, keys: Keys) -> None:
    """Refuse to serve the network without TLS, or without keys or certificates of clients.

    Raises:
        BadOption: it would.
    """
    if options.allow_public or not is_public(options.address):
        return
    if options.tls is None:
        missing = "TLS"
    elif not keys and options.tls.client_ca is None:
        missing = "keys or certificates of clients"
    else:
        return
    raise BadOption(
        f"{options.address} is open to the network, and there is no protection by {missing}",
        hint="Give --tls-cert and --tls-key, and --keys-file or --client-ca; or say --allow-public.",
    )


async def serve(options: ServerOptions, settings: Settings, told: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        options: how.
        settings: sizes, queue, keys.
        told: called with the address once calls are taken.

    Raises:
        BadOption: the address is taken, or a file or an option is wrong.
        VoicejobsError: an engine does not load.
    """
    keys = Keys(settings.rpc_keys)
    check_exposure(options, keys)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    spans.configure(settings.otel_endpoint, "engine")
    engines = Engines(settings, options.plan)
    try:
        starting = asyncio.ensure_future(asyncio.to_thread(engines.start))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await _run(options, engines, keys, stop, told)
        stopping.cancel()
    finally:
        await asyncio.to_thread(engines.close)
        await asyncio.to_thread(spans.close)


async def _run(
    options: ServerOptions, engines: Engines, keys: Keys, stop: asyncio.Event, told: Callable[[str], None]
) -> None:
    """Take calls until `stop`, then let those that run end."""
    settings = engines.settings
    limits = Limits(
        slots=options.slots or engines.slots,
        queue_length=settings.rpc_queue_length,
        wait_s=settings.rpc_wait_s,
        held_bytes=HELD_MESSAGES * settings.rpc_max_message_bytes,
        streams=options.streams,
    )
    guard = MemoryGuard(settings.max_memory_bytes)
    looking = asyncio.ensure_future(_look_at_memory(guard))
    admission = Admission(limits, lambda: guard.reason)
    engine = VoiceEngine(engines, admission, keys)
    server = grpc.aio.server(
        interceptors=[KeyCheck(keys)] if keys else [],
        options=_channel_options(settings.rpc_max_message_bytes),
        maximum_concurrent_rpcs=limits.slots + 2 * limits.queue_length + limits.streams + _SPARE_CALLS,
    )
    voice_engine_pb2_grpc.add_VoiceEngineServicer_to_server(engine, server)
    states = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(states, server)
    reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    address = _bind(server, options)
    page, metrics_at = None, ""
    if options.metrics_port is not None:
        page, metrics_at = serve_metrics(ServerMetrics(engines.host, admission, engine.streams), options.metrics_port)
    await server.start()
    for service in ("", SERVICE):
        await states.set(service, health_pb2.HealthCheckResponse.SERVING)
    _log.info("serving", extra={"address": address, "slots": limits.slots})
    if options.ready_file is not None:
        options.ready_file.write_text(f"{address}\n", encoding="utf-8")
    told(f"serving on {address}")
    if metrics_at:
        told(f"metrics on {metrics_at}")
    try:
        await stop.wait()
    finally:
        _log.info("stopping")
        if options.ready_file is not None:
            options.ready_file.unlink(missing_ok=True)
        await states.enter_graceful_shutdown()
        await server.stop(options.grace_s)
        looking.cancel()
        if page is not None:
            await asyncio.to_thread(page.shutdown)
            page.server_close()
        engine.close()
        _remove_socket(address)


async def _look_at_memory(guard: MemoryGuard) -> None:
    """Measure now and then, in a thread: it is the files of every child that are read."""
    while guard.limit_bytes:
        await asyncio.to_thread(guard.look)
        await asyncio.sleep(_MEMORY_LOOK_S)


def _remove_socket(address: str) -> None:
    """Remove the file of a unix socket."""
    if address.startswith(_UNIX):
        Path(address.removeprefix(_UNIX)).unlink(missing_ok=True)


def _channel_options(max_message_bytes: int) -> Sequence[tuple[str, Any]]:
    """Return the options of gRPC."""
    return (
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.so_reuseport", 0),  # a second server on the same port must fail, and not take half of the calls
        # Clients that vanished without a word are noticed within these two; so are their streams.
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.http2.min_ping_interval_without_data_ms", _SHORTEST_PING_MS),
    )


def _bind(server: Any, options: ServerOptions) -> str:
    """Open the port and return the address, the port that was taken included."""
    address = options.address
    old_mask = os.umask(0o177)  # a unix socket is for our user alone
    try:
        if options.tls is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, _credentials(options.tls))
    except RuntimeError as error:
        tls = "" if options.tls is None else " Or check that --tls-cert and --tls-key are PEM and belong together."
        hint = f"Choose another.{tls}"
        raise BadOption(f"{address} cannot be served: it is taken, or not ours", hint=hint) from error
    finally:
        os.umask(old_mask)
    if address.startswith(_UNIX):
        return address
    return f"{address.rpartition(':')[0]}:{port}"


def _credentials(tls: Tls) -> Any:
    """Read the files of TLS."""
    ca = None if tls.client_ca is None else _read(tls.client_ca)
    pair = (_read(tls.key), _read(tls.certificate))
    return grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=ca is not None)


def _read(path: Path) -> bytes:
    """Read a file of TLS."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}", hint="Check the path and its rights.") from error


def run(options: ServerOptions, settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, saying on standard output where; errors as in `serve`."""

    def told(what: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            print(what, flush=True)  # noqa: T201 - whoever started us waits for this line

    asyncio.run(serve(options, settings, told))
