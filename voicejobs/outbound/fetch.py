"""Ask addresses that somebody else has named: resolve once, check, connect to what was checked, bound everything."""

import contextlib
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cache
from http import HTTPStatus
from time import time
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from voicejobs import __version__
from voicejobs.errors import AddressUnavailable, SourceRefused, SourceTooLarge
from voicejobs.outbound.address import Policy, Resolver, Url, resolve, resolve_within

if TYPE_CHECKING:
    import httpcore

    from voicejobs.outbound.transport import Deadline

MAX_REDIRECTS = 3
MAX_ANSWER_BYTES = 4096
"""What is read of the answer of a webhook: enough to keep the connection honest, and nothing is kept of it."""
CONNECT_S = 10.0
IDLE_S = 30.0
MAX_RETRY_AFTER_S = 86_400.0
_MOVED = frozenset(
    {
        HTTPStatus.MOVED_PERMANENTLY,
        HTTPStatus.FOUND,
        HTTPStatus.SEE_OTHER,
        HTTPStatus.TEMPORARY_REDIRECT,
        HTTPStatus.PERMANENT_REDIRECT,
    }
)
_LATER = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


@dataclass(frozen=True, slots=True)
class Limits:
    """Bound a download: seconds in all, and bytes."""

    total_s: float
    most_bytes: int


@dataclass(frozen=True, slots=True)
class Download:
    """Hold what comes: where it was found at last, its type as the server tells it, and its bytes, chunk by chunk."""

    url: Url
    media_type: str
    chunks: Iterator[bytes]


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold what a server answered to a request that only its status matters of.

    `retry_after_s` is what it asks for, at most a day; None where it asks for nothing.
    """

    status: int
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Ask addresses under one policy.

    Args:
        policy: which addresses may be asked.
        resolver: gives the addresses of a host.
    """

    policy: Policy
    resolver: Resolver = field(default=resolve)

    @contextlib.contextmanager
    def download(self, text: str, limits: Limits) -> Iterator[Download]:
        """Give what lies at an address; each redirect is checked as if it had been named.

        Raises:
            AddressRefused: it may not be asked, or leads to one that may not.
            AddressUnavailable: it does not answer, or not now; trying again may help.
            SourceRefused: the server does not give it.
            SourceTooLarge: it is larger than `limits` allow.
        """
        from voicejobs.outbound.transport import Deadline  # noqa: PLC0415 - only who asks needs httpcore

        deadline = Deadline(limits.total_s)
        for _ in range(MAX_REDIRECTS + 1):
            url = self.policy.check(text)
            with self._ask("GET", url, deadline=deadline) as response:
                if response.status not in _MOVED:
                    yield Download(url, _header(response, "content-type"), _checked(url, response, limits))
                    return
                location = _header(response, "location")
                if not location:
                    raise SourceRefused(f"{url.shown} moved, and does not say where to")
                text = urljoin(str(url), location)
        raise SourceRefused(f"{url.shown} still moves after {MAX_REDIRECTS} redirects")

    def post(self, text: str, headers: Mapping[str, str], body: bytes, *, total_s: float) -> Answer:
        """Send a body and return what was answered; redirects are answers like others, and the status is what counts.

        Raises:
            AddressRefused: the address may not be asked.
            AddressUnavailable: it did not answer within `total_s` seconds.
        """
        from voicejobs.outbound.transport import Deadline  # noqa: PLC0415 - only who asks needs httpcore

        url = self.policy.check(text)
        with self._ask("POST", url, headers, body, deadline=Deadline(total_s)) as response:
            _read_some(response)
            return Answer(response.status, retry_after_s(_header(response, "retry-after")))

    @contextlib.contextmanager
    def _ask(
        self,
        method: str,
        url: Url,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        deadline: "Deadline",
    ) -> "Iterator[httpcore.Response]":
        """Send one request to an address that the policy allows; what goes wrong on the way becomes our errors."""
        import httpcore  # noqa: PLC0415 - only who asks needs it

        from voicejobs.outbound.transport import exchange  # noqa: PLC0415

        sent: dict[str, str] = {
            "Host": url.origin.partition("://")[2],
            "User-Agent": f"voicejobs/{__version__}",
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "Connection": "close",
            **({"Content-Length": str(len(body))} if method == "POST" else {}),
            **(headers or {}),
        }
        timeouts = {"connect": CONNECT_S, "read": IDLE_S, "write": IDLE_S, "pool": CONNECT_S}
        request = httpcore.Request(
            method, str(url), headers=list(sent.items()), content=body, extensions={"timeout": timeouts}
        )
        broken = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)
        try:
            found = resolve_within(self.resolver, url, deadline.left_s(CONNECT_S))
            addresses = self.policy.addresses(url, found)
            with exchange(request, addresses, deadline, _context()) as response:
                yield response
        except broken as error:
            raise AddressUnavailable(f"{url.origin} did not answer as it should: {_reason(error)}") from error


def retry_after_s(text: str) -> float | None:
    """Return the seconds of a Retry-After header, which has two forms, at most a day; None where it has neither."""
    try:
        seconds = float(text) if text.strip().isdigit() else parsedate_to_datetime(text).timestamp() - time()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, seconds), MAX_RETRY_AFTER_S)


def _checked(url: Url, response: "httpcore.Response", limits: Limits) -> Iterator[bytes]:
    """Return the body of an answer that gives what was asked for.

    Raises:
        AddressUnavailable: the server says that it may give it later.
        SourceRefused: it does not give it, or packed.
        SourceTooLarge: it says that it is too large.
    """
    status = response.status
    if status in _LATER or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        wait_s = retry_after_s(_header(response, "retry-after")) or 0.0
        raise AddressUnavailable(f"{url.shown} answered {status}", retry_after_s=wait_s)
    if status != HTTPStatus.OK:
        raise SourceRefused(f"{url.shown} answered {status}")
    if _header(response, "content-encoding").lower() not in {"", "identity"}:
        raise SourceRefused(f"{url.shown} is sent packed, though that was not asked for")
    said = _header(response, "content-length")
    if said.isdigit() and int(said) > limits.most_bytes:
        raise _too_large(url, limits)
    return _counted(url, response, limits)


def _read_some(response: "httpcore.Response") -> None:
    """Read the beginning of an answer, so that a server is not cut off while it writes a short one."""
    import httpcore  # noqa: PLC0415 - only who asks needs it

    received_bytes = 0
    with contextlib.suppress(httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError):
        for chunk in response.iter_stream():
            received_bytes += len(chunk)
            if received_bytes > MAX_ANSWER_BYTES:
                return


def _counted(url: Url, response: "httpcore.Response", limits: Limits) -> Iterator[bytes]:
    """Yield a body chunk by chunk, whatever length its header claims.

    Raises:
        SourceTooLarge: there is more than `limits` allow.
    """
    received_bytes = 0
    for chunk in response.iter_stream():
        received_bytes += len(chunk)
        if received_bytes > limits.most_bytes:
            raise _too_large(url, limits)
        yield chunk


def _too_large(url: Url, limits: Limits) -> SourceTooLarge:
    """Return the error for a body that is too large."""
    return SourceTooLarge(f"{url.shown} holds more than {limits.most_bytes} bytes", limit=limits.most_bytes)


def _header(response: "httpcore.Response", name: str) -> str:
    """Return a header, empty where there is none."""
    wanted = name.encode()
    return next((value.decode("latin-1") for key, value in response.headers if key.lower() == wanted), "")


def _reason(error: BaseException) -> str:
    """Return why an exchange broke, in few words."""
    return (str(error) or type(error).__name__)[:200]


@cache
def _context() -> ssl.SSLContext:
    """Return what certificates are checked by; made once, since it reads some hundred of them."""
    import httpx  # it knows where certificates are on every system

    return httpx.create_ssl_context()
