"""What engines have in common that are clients of a server: addresses, HTTP, errors, several requests at once."""

import email.utils
import json
import re
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit

from voicejobs.errors import BadOption, EngineBusy, EngineRefused, EngineUnavailable, ExtraMissing, VoicejobsError

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
TRIES = 3
"""Requests for one window or sentence at most, while nothing of an answer has come."""
_PAUSE_S = 0.5
_KEPT = 64
_MESSAGE_CHARS = 500
_CONNECT_S = 10.0
_CLOSED_CODES = frozenset({429, 503})
_FAILED_CODES = frozenset({408, 409, 425})
_ERROR_CODES_FROM = 400
_SERVER_CODES_FROM = 500
_ERROR_BYTES = 65_536


def checked_url(url: str, setting: str, schemes: Sequence[str]) -> str:
    """Return an address that a setting holds, without slashes at its end.

    Raises:
        BadOption: it is empty, has another scheme, or holds what may be a secret: addresses are logged and shown.
    """
    if not url:
        raise BadOption(f"{setting} is not set", hint=f"It names the server of this engine, as {schemes[0]}://host.")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise BadOption(f"{setting} is no address", hint="docs/settings.md shows the form.") from None
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise BadOption(
            f"{setting} holds a user, a password or a query", hint="Keys have settings of their own: docs/settings.md."
        )
    if parts.scheme not in schemes or not (parts.netloc or parts.path):
        raise BadOption(f"{setting}={url} is no address of this engine", hint=f"It starts with {_listed(schemes)}.")
    return url.rstrip("/")


def _listed(schemes: Sequence[str]) -> str:
    """Return schemes as a sentence has them."""
    return " or ".join(f"{scheme}://" for scheme in schemes)


def checked_key(key: str, setting: str) -> str:
    """Return a key that can stand in a header; a message about another one would have to show it.

    Raises:
        BadOption: it has blanks or signs that no header can hold.
    """
    if not re.fullmatch(r"[!-~]*", key):
        raise BadOption(f"{setting} has blanks or other signs that no key has", hint="Set it again, without quotes.")
    return key


def with_patience(ask: Callable[[float], T], within_s: float) -> T:
    """Return what `ask` returns, asking again where a server is busy or was not reached.

    Args:
        ask: does it, and is given the seconds that are left.
        within_s: seconds for all tries and the pauses between them.

    Raises:
        VoicejobsError: what the last try raised. An error whose details say `begun` is the last one: a part of the
            answer had come, and asking again would pay for it twice.
    """
    deadline = time.monotonic() + within_s
    for number in range(TRIES):
        try:
            return ask(deadline - time.monotonic())
        except (EngineBusy, EngineUnavailable) as error:
            pause_s = max(_PAUSE_S * 2**number, float(error.details.get("retry_after_s") or 0.0))
            late = time.monotonic() + pause_s >= deadline
            if late or number + 1 == TRIES or error.details.get("begun"):
                raise
            time.sleep(pause_s)
    raise AssertionError  # the last try returns or raises


class Together(Generic[T]):
    """Run the requests of one batch at the same time, and keep what succeeded of a batch that failed as a whole.

    Whoever called then asks for parts of the batch again; no part of it is sent, and paid, a second time.
    """

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=max(1, most), thread_name_prefix="request")
        self._kept: dict[Hashable, T] = {}

    def run(self, keys: Sequence[Hashable], ask: Sequence[Callable[[], T]]) -> list[T]:
        """Return the result of each request, in order.

        Args:
            keys: what tells a request from any other.
            ask: sends each of them.

        Raises:
            VoicejobsError: that of the first request that failed, after all have ended.
        """
        missing = [at for at, key in enumerate(keys) if key not in self._kept]
        if len(missing) == 1 and len(keys) == 1:
            return [ask[0]()]
        asked = {at: self._pool.submit(ask[at]) for at in missing}
        failures = [error for at in missing if (error := asked[at].exception()) is not None]
        for at in missing:
            if asked[at].exception() is None:
                self._kept[keys[at]] = asked[at].result()
        if failures:
            for key in list(self._kept)[:-_KEPT]:
                del self._kept[key]
            raise failures[0]
        results = [self._kept[key] for key in keys]
        for key in keys:
            self._kept.pop(key, None)
        return results


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold what an HTTP server answers: its headers, and what of its body was read."""

    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the JSON document of the body.

        Raises:
            EngineUnavailable: it holds none.
        """
        try:
            return json.loads(self.body)
        except ValueError:
            raise EngineUnavailable("the server's answer is no JSON document") from None


class HttpServer:
    """Ask one HTTP server; its methods may be called from several threads.

    Args:
        base_url: address that paths are put behind.
        name: what messages call it.
        key: sent as bearer token; empty for none. It is in no message, whatever the server writes.
        most: requests at the same time.
    """

    def __init__(self, base_url: str, name: str, *, key: str = "", most: int = 1) -> None:
        try:
            import httpx
        except ImportError as error:
            raise ExtraMissing("httpx is not installed", hint="pip install voicejobs") from error
        self._name = f"{name} at {base_url}"
        self._base_url = base_url
        self._key = key
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=max(1, most), max_keepalive_connections=max(1, most)),
            follow_redirects=False,  # a key is for the server that the setting names, and for no other
        )

    def ask(self, method: str, path: str, within_s: float, limit_bytes: int, **content: Any) -> Answer:
        """Send one request and return the whole answer.

        Args:
            method: `GET` or `POST`.
            path: behind the base address.
            within_s: seconds until the last byte of the answer.
            limit_bytes: longest answer that is taken.
            **content: as httpx takes it: `data`, `files`, `json`.

        Raises:
            EngineBusy, EngineUnavailable, EngineRefused: see there.
        """
        with self.pour(method, path, within_s, **content) as (headers, chunks):
            body = bytearray()
            for chunk in chunks:
                body += chunk
                if len(body) > limit_bytes:
                    raise EngineRefused(f"{self._name} answers more than {limit_bytes} bytes")
        return Answer(headers, bytes(body))

    @contextmanager
    def pour(
        self, method: str, path: str, within_s: float, **content: Any
    ) -> Iterator[tuple[Mapping[str, str], Iterator[bytes]]]:
        """Send one request and give the headers and the body in pieces as they come; arguments and errors as `ask`.

        An error after the first byte has `begun` in its details.
        """
        deadline = time.monotonic() + max(0.0, within_s)
        begun = False

        def chunks(response: "httpx.Response") -> Iterator[bytes]:
            nonlocal begun
            for chunk in response.iter_bytes():
                begun = begun or bool(chunk)
                if time.monotonic() > deadline:
                    raise EngineUnavailable(f"{self._name} took more than {within_s:.0f} s", begun=begun)
                yield chunk

        import httpx

        timeout = httpx.Timeout(max(0.001, within_s), connect=max(0.001, min(_CONNECT_S, within_s)))
        try:
            with self._client.stream(method, self._base_url + path, timeout=timeout, **content) as response:
                if response.status_code >= _ERROR_CODES_FROM or response.is_redirect:
                    raise self._refusal(response)
                yield response.headers, chunks(response)
        except httpx.TimeoutException as error:
            raise EngineUnavailable(
                f"{self._name} gave no answer within {within_s:.0f} s ({type(error).__name__})", begun=begun
            ) from None
        except httpx.HTTPError as error:
            what = "broke off its answer" if begun else "cannot be asked"
            raise EngineUnavailable(f"{self._name} {what}: {self._clean(str(error))}", begun=begun) from None

    def _refusal(self, response: "httpx.Response") -> VoicejobsError:
        """Return the error that a status other than success means."""
        body = b""
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > _ERROR_BYTES:
                break
        status = response.status_code
        text = f"{self._name} answers {status}: {self._clean(_message(body)) or response.reason_phrase}"
        wait_s = retry_after_s(response.headers)
        if status in _CLOSED_CODES:
            return EngineBusy(text, status=status, retry_after_s=wait_s)
        if status in _FAILED_CODES or status >= _SERVER_CODES_FROM:
            return EngineUnavailable(text, status=status, retry_after_s=wait_s)
        return EngineRefused(text, status=status)

    def _clean(self, text: str) -> str:
        """Return a text of the server's without our key, at a length that fits a message."""
        if self._key:
            text = text.replace(self._key, "***")
        return " ".join(text.split())[:_MESSAGE_CHARS]


def _message(body: bytes) -> str:
    """Return what an error's body says: OpenAI's form, FastAPI's, or the text."""
    text = body.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except ValueError:
        return text
    if isinstance(found, dict):
        inner = found.get("error", found.get("detail", found.get("message", found)))
        found = inner.get("message", inner) if isinstance(inner, dict) else inner
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Return the seconds that a server asks to wait, 0 where it does not say (a date counts from now)."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if not text:
            continue
        if re.fullmatch(r"\d{1,9}(\.\d+)?", text):
            return float(text) * unit_s
        try:
            return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
        except (ValueError, OverflowError):
            continue
    return 0.0
