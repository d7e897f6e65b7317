"""A pool of channels to voice engines: few for each target, replaced when they are old or broken.

A channel carries many calls at once on one connection, so that a pool of one or two does for most. More help past a
hundred calls on one connection, or where a balancer in front of several servers deals out connections.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from voicejobs.errors import BadOption, EngineUnavailable, Unreadable

DEFAULT_MESSAGE_BYTES = 50 * 1024 * 1024
_KEEPALIVE_MS, _KEEPALIVE_TIMEOUT_MS = 60_000, 20_000
_SCHEMES = {"grpc": False, "grpcs": True}


@dataclass(frozen=True, slots=True)
class Target:
    """Say which server to call, and how.

    Args:
        address: `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`.
        key: key that the server asks for; empty for none. Without TLS it goes over the network as plain text.
        tls: whether to speak TLS.
        ca_file: certificates that vouch for the server, PEM; empty takes those that gRPC brings.
        certificate_file: our certificate, where the server asks for one.
        key_file: the private key to it.
        server_name: name in the certificate of the server, where that is not its address.
        max_message_bytes: largest message in either direction.
    """

    address: str
    key: str = field(default="", repr=False)
    tls: bool = False
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    server_name: str = ""
    max_message_bytes: int = DEFAULT_MESSAGE_BYTES

    @classmethod
    def of_url(cls, url: str, **more: Any) -> Self:
        """Return the target of `grpc://HOST:PORT`, `grpcs://HOST:PORT` (with TLS) or `unix:///PATH`.

        Raises:
            BadOption: it is none of them.
        """
        scheme, _, rest = url.partition("://")
        if scheme == "unix" and rest.startswith("/"):
            return cls(f"unix:{rest}", **more)
        if scheme not in _SCHEMES or not rest.rpartition(":")[2].isdigit():
            raise BadOption(f"{url!r} is no address of a voice engine", hint="Write grpc://HOST:PORT or unix:///PATH.")
        return cls(rest, **{"tls": _SCHEMES[scheme], **more})


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Bound a pool.

    Args:
        size: channels to one target.
        calls: calls on one channel at once; HTTP/2 servers often allow a hundred.
        max_age_s: age at which a channel is replaced, so that a new address of the server is noticed.
        borrow_timeout_s: seconds to wait while all channels are full.
    """

    size: int = 2
    calls: int = 100
    max_age_s: float = 600.0
    borrow_timeout_s: float = 5.0


class Lease:
    """Hold a channel for one call; whoever took it gives it back."""

    def __init__(self, pool: "ChannelPool", entry: "_Entry") -> None:
        self._pool = pool
        self._entry = entry
        self._is_held = True

    @property
    def channel(self) -> grpc.Channel:
        """Return the channel."""
        return self._entry.channel

    def give_back(self, *, broken: bool = False) -> None:
        """Give it back; a second time does nothing.

        Args:
            broken: the server could not be reached on it: the next call gets another channel, which tries at once.
        """
        if self._is_held:
            self._is_held = False
            self._pool.take_back(self._entry, broken=broken)


class _Entry:
    """Hold a channel, and how many calls are on it."""

    __slots__ = ("born", "calls", "channel", "is_retired", "target")

    def __init__(self, target: Target) -> None:
        self.target = target
        self.channel = open_channel(target)
        self.born = time.monotonic()
        self.calls = 0
        self.is_retired = False


class ChannelPool:
    """Lend channels to calls; every method may be called from any thread, and from any event loop."""

    def __init__(self, limits: PoolLimits | None = None) -> None:
        self.limits = limits or PoolLimits()
        self._entries: dict[Target, list[_Entry]] = {}
        self._changed = threading.Condition()
        self._closed = False

    def take(self, target: Target) -> Lease:
        """Return a channel to a target: the one with the fewest calls, or a new one while there is room.

        Raises:
            EngineUnavailable: every channel was full for `borrow_timeout_s`.
            Unreadable: a file of TLS cannot be read.
            BadOption: the pool is closed.
        """
        deadline = time.monotonic() + self.limits.borrow_timeout_s
        with self._changed:
            while (entry := self._find(target)) is None:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    raise EngineUnavailable(
                        f"{target.address}: {self.limits.size} channels with {self.limits.calls} calls each were busy "
                        f"for {self.limits.borrow_timeout_s:g} s"
                    )
            entry.calls += 1
            return Lease(self, entry)

    def take_now(self, target: Target) -> Lease | None:
        """Return a channel if that needs no waiting; errors as in `take`."""
        with self._changed:
            entry = self._find(target)
            if entry is None:
                return None
            entry.calls += 1
            return Lease(self, entry)

    @contextmanager
    def borrow(self, target: Target) -> Iterator[Lease]:
        """Lend a channel for a block; errors as in `take`."""
        lease = self.take(target)
        try:
            yield lease
        finally:
            lease.give_back()

    def take_back(self, entry: _Entry, *, broken: bool) -> None:
        """End a call on a channel; one that is to be replaced closes with its last call."""
        with self._changed:
            entry.calls -= 1
            if broken:
                self._retire(entry)
            close = entry.is_retired and entry.calls == 0
            self._changed.notify()
        if close:
            entry.channel.close()

    def sizes(self) -> dict[Target, int]:
        """Return how many channels there are to each target."""
        with self._changed:
            return {target: len(entries) for target, entries in self._entries.items() if entries}

    def close(self) -> None:
        """Close all channels; calls on them end with an error."""
        with self._changed:
            self._closed = True
            entries = [entry for found in self._entries.values() for entry in found]
            self._entries.clear()
            self._changed.notify_all()
        for entry in entries:
            entry.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _find(self, target: Target) -> _Entry | None:
        """Return a channel with room, None where all are full; the lock is held."""
        if self._closed:
            raise BadOption("the pool of channels is closed")
        entries = self._entries.setdefault(target, [])
        border = time.monotonic() - self.limits.max_age_s
        for entry in [entry for entry in entries if entry.born < border]:
            self._retire(entry)
            if entry.calls == 0:
                entry.channel.close()
        best = min(entries, key=lambda entry: entry.calls, default=None)
        if best is None or (best.calls > 0 and len(entries) < self.limits.size):
            best = _Entry(target)
            entries.append(best)
        return best if best.calls < self.limits.calls else None

    def _retire(self, entry: _Entry) -> None:
        """Lend a channel no more; the lock is held."""
        entry.is_retired = True
        entries = self._entries.get(entry.target, [])
        if entry in entries:
            entries.remove(entry)


def open_channel(target: Target) -> grpc.Channel:
    """Open a channel, which connects at its first call.

    Raises:
        Unreadable: a file of TLS cannot be read.
    """
    options = _options(target)
    if not target.tls:
        return grpc.insecure_channel(target.address, options=options)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_read(target.ca_file),
        private_key=_read(target.key_file),
        certificate_chain=_read(target.certificate_file),
    )
    return grpc.secure_channel(target.address, credentials, options=options)


def _options(target: Target) -> Sequence[tuple[str, Any]]:
    """Return the options of a channel."""
    named = (("grpc.ssl_target_name_override", target.server_name),) if target.server_name else ()
    return (
        ("grpc.max_send_message_length", target.max_message_bytes),
        ("grpc.max_receive_message_length", target.max_message_bytes),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        # Without it all channels to one target would share one connection.
        ("grpc.use_local_subchannel_pool", 1),
        *named,
    )


def _read(path: str) -> bytes | None:
    """Read a file of TLS, None where none is named."""
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}", hint="Check the path and its rights.") from error
