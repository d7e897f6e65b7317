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
_REMEMBERED_S = 10.0
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
        VoicejobsError: what the last try raised. An error whose details say `begun` is the last one: the server had
            worked on an answer, and asking again would pay for it twice.
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
    """Run the requests of one batch at the same time, and remember how each ended where the batch failed as a whole.

    The host then asks for the halves of the batch, down to single requests, to find the one at fault. What is known of
    them by then answers that: nothing is sent, and paid, a second time.
    """

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=max(1, most), thread_name_prefix="request")
        self._kept = 2 * max(1, most)
        self._results: dict[Hashable, T] = {}
        self._failures: dict[Hashable, tuple[float, VoicejobsError]] = {}

    def run(self, keys: Sequence[Hashable], ask: Sequence[Callable[[], T]]) -> list[T]:
        """Return the result of each request, in order.

        Args:
            keys: what tells a request from any other.
            ask: sends each of them.

        Raises:
            VoicejobsError: that of the first request that failed, after all have ended.
        """
        fresh_s = time.monotonic() - _REMEMBERED_S
        known = [failure for key in keys if (failure := self._failures.get(key)) and failure[0] > fresh_s]
        if known:
            if len(keys) == 1:
                del self._failures[keys[0]]
            raise known[0][1]
        if len(keys) == 1 and keys[0] not in self._results:
            return [ask[0]()]
        self._ask_missing(keys, ask)
        found = [self._results[key] for key in keys]
        for key in keys:
            self._results.pop(key, None)
        return found

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _ask_missing(self, keys: Sequence[Hashable], ask: Sequence[Callable[[], T]]) -> None:
        """Send what has no result yet; where one fails, remember how all of them ended."""
        asked = {key: self._pool.submit(one) for key, one in zip(keys, ask, strict=True) if key not in self._results}
        failures: dict[Hashable, VoicejobsError] = {}
        for key, future in asked.items():
            try:
                self._results[key] = future.result()
            except VoicejobsError as error:
                failures[key] = error
        if not failures:
            return
        self._failures = {key: (time.monotonic(), error) for key, error in failures.items()}
        for key in list(self._results)[: -self._kept]:  # of batches whose tasks have gone since
            del self._results[key]
        raise next(iter(failures.values()))


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

        An error after the server has begun to answer has `begun` in its details.
        """
        deadline = time.monotonic() + max(0.0, within_s)
        begun = False

        def chunks(response: "httpx.Response") -> Iterator[bytes]:
            for chunk in response.iter_bytes():
                if time.monotonic() > deadline:
                    raise EngineUnavailable(f"{self._name} took more than {within_s:.0f} s", begun=begun)
                yield chunk

        import httpx

        timeout = httpx.Timeout(max(0.001, within_s), connect=max(0.001, min(_CONNECT_S, within_s)))
        try:
            with self._client.stream(method, self._base_url + path, timeout=timeout, **content) as response:
                if response.status_code >= _ERROR_CODES_FROM or response.is_redirect:
                    raise self._refusal(response, deadline)
                begun = True
                yield response.headers, chunks(response)
        except httpx.TimeoutException as error:
            raise EngineUnavailable(
                f"{self._name} gave no answer within {within_s:.0f} s ({type(error).__name__})", begun=begun
            ) from None
        except httpx.HTTPError as error:
            what = "broke off its answer" if begun else "cannot be asked"
            raise EngineUnavailable(f"{self._name} {what}: {self._clean(str(error))}", begun=begun) from None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _refusal(self, response: "httpx.Response", deadline: float) -> VoicejobsError:
        """Return the error that a status other than success means."""
        body = b""
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > _ERROR_BYTES or time.monotonic() > deadline:
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
