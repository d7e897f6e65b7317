"""Which addresses voicejobs asks on behalf of somebody else: a strict reading of URLs, and only public targets."""

import ipaddress
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from voicejobs.errors import AddressRefused, AddressUnavailable, BadOption
from voicejobs.settings import PREFIX, Settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Sequence[str]]
"""Gives the addresses of a host, as text; it may block."""

MAX_URL_CHARS = 2000
MAX_HOST_CHARS = 253
MOST_LOOKUPS = 32
"""Hosts that a process looks up at once: a look-up that nobody waits for any more goes on until the system ends it."""
LOOKUP_RETRY_S = 30.0
ANY = "*"
PORTS = {"http": 80, "https": 443}
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_LOOKS_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)
_NEVER = tuple(
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24",  # protocol assignments; what Python says of them changed between its versions
        "192.88.99.0/24",  # relays of 6to4
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing inside one operator's network
        "64:ff9b:1::/48",  # NAT64 of a site: what lies behind it, nobody outside knows
        "fec0::/10",  # site-local, in use before fc00::/7
    )
)


@dataclass(frozen=True, slots=True)
class Url:
    """Hold an address that was read strictly: `scheme` http or https, `host` in lower case, `port`, `target`."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def is_literal(self) -> bool:
        """Tell whether the host is an IP address."""
        return _literal(self.host) is not None

    @property
    def origin(self) -> str:
        """Return scheme, host and port, for people: what follows may hold a secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == PORTS[self.scheme] else f":{self.port}")

    @property
    def shown(self) -> str:
        """Return the address without its query, in which a signature may stand."""
        return self.origin + self.target.partition("?")[0]

    def __str__(self) -> str:
        """Return the whole address."""
        return self.origin + self.target


@dataclass(frozen=True, slots=True)
class Policy:
    """Say which addresses may be asked.

    Args:
        setting: how the names of the settings begin that rule it, for hints.
        hosts: names that may be asked; `*.example.org` allows those below a name, `*` any.
        schemes: `https`, and `http` where that is allowed.
        ports: ports that may be asked; None for any.
        networks: networks that are not public and may be asked all the same.
    """

    setting: str
    hosts: tuple[str, ...]
    schemes: frozenset[str]
    ports: frozenset[int] | None
    networks: tuple[Network, ...] = ()

    @classmethod
    def of_sources(cls, settings: Settings) -> Self:
        """Return what the settings say of URL sources.

        Raises:
            BadOption: a setting has the wrong form.
        """
        return cls(
            setting="source_url",
            hosts=_words(settings.source_url_hosts),
            schemes=_schemes(plain=settings.source_url_http),
            ports=_ports("source_url_ports", settings.source_url_ports),
            networks=_networks("source_url_networks", settings.source_url_networks),
        )

    @classmethod
    def of_webhooks(cls, settings: Settings) -> Self:
        """Return what the settings say of the targets of webhooks.

        Raises:
            BadOption: a setting has the wrong form.
        """
        return cls(
            setting="webhook",
            hosts=_words(settings.webhook_hosts),
            schemes=_schemes(plain=settings.webhook_http),
            ports=_ports("webhook_ports", settings.webhook_ports),
            networks=_networks("webhook_networks", settings.webhook_networks),
        )

    def check(self, text: str) -> Url:
        """Read an address and look whether it may be asked, as far as that can be told without asking for its host.

        Raises:
            AddressRefused: it has an odd form, or its scheme, host or port is not allowed.
        """
        url = read_url(text)
        if url.scheme not in self.schemes:
            raise self._refusal(f"{url.origin} is not https", "http")
        if not any(_matches(url.host, pattern) for pattern in self.hosts):
            raise self._refusal(f"The host {url.host} is not on the list of those that may be asked", "hosts")
        if self.ports is not None and url.port not in self.ports:
            raise self._refusal(f"The port {url.port} of {url.origin} is not one that may be asked", "ports")
        literal = _literal(url.host)
        if literal is not None:
            self._demand_allowed(url.host, literal)
        return url

    def addresses(self, url: Url, found: Sequence[str]) -> list[Address]:
        """Return the addresses of a host that may be connected to: all of them, or none.

        Raises:
            AddressRefused: one of them is not public, or there is none.
        """
        if not found:
            raise self._refusal(f"The host {url.host} has no address", "hosts")
        addresses = [ipaddress.ip_address(text) for text in found]
        for address in addresses:
            self._demand_allowed(url.host, address)
        return addresses

    def _demand_allowed(self, host: str, address: Address) -> None:
        """Refuse an address inside a private, local or special network.

        Raises:
            AddressRefused: it is one, and the settings do not allow it.
        """
        if any(address in network for network in self.networks):
            return
        if not all(map(_is_public, _meant_by(address))):
            raise self._refusal(f"The host {host} does not lie in the public network", "networks")

    def _refusal(self, message: str, setting: str) -> AddressRefused:
        """Return the error, with the setting that rules it."""
        name = f"{PREFIX}{self.setting}_{setting}".upper()
        return AddressRefused(message, hint=f"{name} says what may be asked; docs/settings.md explains it.")


def read_url(text: str) -> Url:
    """Read an http or https address, and nothing that two programs could read in two ways.

    Raises:
        AddressRefused: it is none, or holds credentials, odd characters, or a host in any but its plain form.
    """
    if len(text) > MAX_URL_CHARS:
        raise _odd("it is too long")
    if not text.isascii() or any(character <= " " or character in '\\"<>^`{|}\x7f' for character in text):
        raise _odd("it holds characters that an address has only in their escaped form")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise _odd("its host or port cannot be read") from None
    if parts.scheme not in PORTS or not text.lower().startswith(f"{parts.scheme}://"):
        raise _odd("it does not begin with https:// or http://")
    if "@" in parts.netloc:
        raise _odd("it holds a user name or a password")
    if parts.fragment or "#" in text:
        raise _odd("it holds a fragment")
    host = _read_host(parts.netloc, parts.hostname or "")
    if port == 0:
        raise _odd("its port is 0")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Url(parts.scheme, host, PORTS[parts.scheme] if port is None else port, target)


def _read_host(netloc: str, host: str) -> str:
    """Return the host of an address, in lower case.

    Raises:
        AddressRefused: it is neither a name nor an IP address in its plain form.
    """
    bracketed = netloc.startswith("[")
    if bracketed or ":" in host:
        try:
            return str(ipaddress.IPv6Address(host if bracketed and "%" not in host else ""))
        except ValueError:
            raise _odd("its host is no IPv6 address in brackets") from None
    labels = host.split(".")
    if len(host) > MAX_HOST_CHARS or not all(_LABEL.fullmatch(label) for label in labels):
        raise _odd("its host is no name; write international names in their form with xn--")
    # What ends in a number is an IPv4 address to some programs, in one of many forms: only the plain one passes.
    if _LOOKS_NUMERIC.fullmatch(labels[-1]):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise _odd("its host is a number that is no IPv4 address in its plain form") from None
    return host


def _odd(reason: str) -> AddressRefused:
    """Return the error for an address of an odd form; the address itself may hold a secret and is not repeated."""
    return AddressRefused(f"The address is refused: {reason}", hint="Write it as https://host/path.")


def _literal(host: str) -> Address | None:
    """Return the IP address that a host is, None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _meant_by(address: Address) -> Iterator[Address]:
    """Yield an address and those that lie inside it, which a gateway on the way may turn it into."""
    yield address
    if isinstance(address, ipaddress.IPv4Address):
        return
    low = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if address in _NAT64 or address in _COMPATIBLE or (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP:
        yield low


def _is_public(address: Address) -> bool:
    """Tell whether anybody in the public network could ask this address; a wrapped one counts by what is inside."""
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped is not None or address in _NAT64):
        return True  # what is inside is looked at as well
    special = address.is_multicast or address.is_reserved or any(address in network for network in _NEVER)
    return address.is_global and not special


def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host by the resolver of the system."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Lookups:
    """Ask for the addresses of hosts in threads, each of which lasts as long as the resolver of the system wants.

    Args:
        most: threads at once, those that nobody waits for any more included.
    """

    def __init__(self, most: int = MOST_LOOKUPS) -> None:
        self._most = most
        self._places = threading.Semaphore(most)

    def ask(self, resolver: Resolver, url: Url, timeout_s: float) -> Sequence[str]:
        """Return the addresses of the host of `url`.

        Raises:
            AddressUnavailable: they are not known, or there was no answer, or no free thread, within `timeout_s`
                seconds.
        """
        until = time.monotonic() + timeout_s
        if not self._places.acquire(timeout=max(timeout_s, 0.0)):
            raise AddressUnavailable(
                f"The host {url.host} cannot be looked up now: {self._most} others are",
                hint="The resolver of the system answers slowly, or not at all. Try again later.",
                retry_after_s=LOOKUP_RETRY_S,
            )
        found: list[Sequence[str]] = []
        failed: list[str] = []

        def look_up() -> None:
            try:
                found.append(resolver(url.host, url.port))
            except (OSError, UnicodeError) as error:
                failed.append(str(getattr(error, "strerror", "") or error))
            finally:
                self._places.release()

        thread = threading.Thread(target=look_up, name="voicejobs-resolve", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._places.release()
            raise AddressUnavailable(f"The host {url.host} cannot be looked up now: {error}") from error
        thread.join(max(until - time.monotonic(), 0.0))
        if not found:
            reason = failed[0] if failed else f"no answer within {timeout_s:.0f} s"
            raise AddressUnavailable(f"The host {url.host} cannot be found: {reason}")
        return found[0]


_lookups = Lookups()


def resolve_within(resolver: Resolver, url: Url, timeout_s: float) -> Sequence[str]:
    """Return the addresses of the host of `url`; the resolver of the system knows no time limit of ours.

    Raises:
        AddressUnavailable: they are not known, or there was no answer, or no free thread, within `timeout_s` seconds.
    """
    literal = _literal(url.host)
    if literal is not None:
        return [str(literal)]
    return _lookups.ask(resolver, url, timeout_s)


def _matches(host: str, pattern: str) -> bool:
    """Tell whether a pattern of the settings allows a host."""
    if pattern == ANY:
        return True
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) > len(pattern) - 1
    return host == pattern


def _words(text: str) -> tuple[str, ...]:
    """Return the words of a setting, commas between them."""
    return tuple(word.strip().lower() for word in text.split(",") if word.strip())


def _schemes(*, plain: bool) -> frozenset[str]:
    """Return the schemes that may be asked."""
    return frozenset(PORTS) if plain else frozenset({"https"})


def _ports(name: str, text: str) -> frozenset[int] | None:
    """Return the ports of a setting; None for any.

    Raises:
        BadOption: one is no port.
    """
    words = _words(text)
    if words == (ANY,):
        return None
    try:
        ports = frozenset(int(word) for word in words)
    except ValueError:
        ports = frozenset({0})
    if not all(0 < port < 1 << 16 for port in ports):
        raise BadOption(f"{PREFIX}{name.upper()}={text!r} is no list of ports", hint="Write 80,443; * allows any.")
    return ports


def _networks(name: str, text: str) -> tuple[Network, ...]:
    """Return the networks of a setting.

    Raises:
        BadOption: one is none.
    """
    try:
        return tuple(ipaddress.ip_network(word) for word in _words(text))
    except ValueError:
        raise BadOption(
            f"{PREFIX}{name.upper()}={text!r} is no list of networks", hint="Write them as 10.1.0.0/16."
        ) from None
