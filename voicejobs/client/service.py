"""A voicejobs service as its clients see it: requests that are tried again, and errors that are ours again."""

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Self
from urllib.parse import urlsplit

from voicejobs import __version__, errors
from voicejobs.errors import AccessDenied, BadOption, NoSuchRecord, Permanent, ServerUnreachable, VoicejobsError
from voicejobs.settings import Settings

if TYPE_CHECKING:
    import ssl

    import httpx

FIRST_WAIT_S = 3.0
"""Time in which the first answer must come: a wrong address should not cost minutes."""
LONGEST_PAUSE_S = 120.0
FIRST_PAUSE_S = 0.25
MOST_PAUSE_S = 3.0
TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 5.0
STREAM_SILENCE_S = 45.0
"""A stream of events says something every 15 seconds; one that is silent for so long is dead."""
PIECE_BYTES = 1 << 18
RETRIED = frozenset((408, 425, 429, 500, 502, 503, 504))
_UNAUTHORIZED, _FORBIDDEN, _BAD, _SERVER = 401, 403, 400, 500
_NO_SERVICE = "Check that --server names a voicejobs service."
_FORM = "Write https://HOST or https://HOST:PORT; the key has a setting of its own, VOICEJOBS_SERVER_KEY."
_KEY = "Set VOICEJOBS_SERVER_KEY, or VOICEJOBS_SERVER_KEY_FILE, to a key that `voicejobs key create` has made there."
_PAGE = "text/html"
_HINTS = {
    "WRONG_VERSION_NUMBER": "Nothing speaks TLS at that port: try http://, or the port that does.",
    "CERTIFICATE_VERIFY_FAILED": "VOICEJOBS_SERVER_CA_FILE names the certificates that vouch for your own service.",
    "disconnected without sending": "Check that the service runs; one with TLS is asked by https://.",
}
"""What to do about connections that fail, by a part of what is said about them."""


class Service:
    """Talk to a service; use as a context manager.

    The key goes into a header and nowhere else. All requests of one client bear one trace id, under which the logs of
    the service tell the story of what it has submitted.

    Args:
        settings: address, key and patience.

    Raises:
        BadOption: no address is set, or it is none; the key or the certificates cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        import httpx

        self.url = settings.server_url.rstrip("/")
        if not self.url:
            raise BadOption("No service is named", hint="Give --server URL, or set VOICEJOBS_SERVER_URL.")
        _demand_address(self.url)
        _demand_key(settings.server_key)
        self.trace_id = secrets.token_hex(16)
        headers = {"user-agent": f"voicejobs/{__version__}"}
        if settings.server_key:
            headers["authorization"] = f"Bearer {settings.server_key}"
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            verify=_trusted(settings.server_ca_file),
        )
        self._wait_s = settings.server_wait_s
        self._has_answered = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._http.close()

    def get(self, path: str, **params: Any) -> Any:
        """Return the JSON that a GET answers with."""
        given = {name: value for name, value in params.items() if value is not None}
        return self.read(self.send("GET", path, params=given))

    def post(self, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None) -> Any:
        """Return the JSON that a POST of JSON answers with."""
        return self.read(self.send("POST", path, json=body, headers=dict(headers or {})))

    def read(self, answer: "httpx.Response") -> "Record":
        """Return the record that an answer holds.

        Raises:
            BadOption: it holds none: what answers is no voicejobs service.
        """
        try:
            found = json.loads(answer.content, object_hook=Record)
        except ValueError:
            found = None
        if not isinstance(found, Record):
            raise self._stranger(answer)
        return found

    def pages(self, path: str, **params: Any) -> Iterator[dict[str, Any]]:
        """Yield the records of a list, page by page."""
        while True:
            page = self.get(path, **params)
            yield from page["data"]
            params["after"] = page.get("last_id")
            if not page.get("has_more") or not params["after"]:
                return

    def send(self, method: str, path: str, **request: Any) -> "httpx.Response":
        """Send a request until it is answered, and return the answer, whose body is there.

        What is sent must be the same each time: JSON, bytes, or files of bytes. Retry-After is obeyed, up to two
        minutes, within the time that the settings give.

        Raises:
            ServerUnreachable: there was no answer in time.
            VoicejobsError: the service has refused; the error is that which it names.
        """
        headers = {**self._trace(), **request.pop("headers", {})}
        return self._answered(lambda: self._http.request(method, path, headers=headers, **request))

    def save(self, path: str, file: BinaryIO) -> None:
        """Write what a GET answers with into a file that is open, in flat memory; see `send`.

        Raises:
            OSError: it cannot be written.
        """
        headers = self._trace()

        def attempt() -> "httpx.Response":
            file.seek(0)
            file.truncate()
            with self._http.stream("GET", path, headers=headers) as answer:
                if answer.is_success:
                    file.writelines(answer.iter_bytes(PIECE_BYTES))
                else:
                    answer.read()
                return answer

        self._answered(attempt)

    def _answered(self, attempt: "Callable[[], httpx.Response]") -> "httpx.Response":
        """Send something until it is answered, and return the answer; see `send`."""
        import httpx

        deadline = time.monotonic() + (self._wait_s if self._has_answered else min(FIRST_WAIT_S, self._wait_s))
        pause_s = FIRST_PAUSE_S
        while True:
            wait_s = pause_s
            try:
                answer = attempt()
            except httpx.RequestError as error:
                problem: VoicejobsError = self._unreachable(error)
            else:
                if answer.is_success and answer.headers.get("content-type", "").startswith(_PAGE):
                    raise self._stranger(answer)
                if answer.is_success or answer.status_code == httpx.codes.NOT_MODIFIED:
                    self._has_answered = True
                    return answer
                problem = error_of(answer)
                if answer.status_code not in RETRIED or answer.headers.get("x-should-retry") == "false":
                    self._has_answered = True
                    raise problem
                wait_s = _retry_after_s(answer, pause_s)
            if time.monotonic() + wait_s > deadline:
                raise problem
            time.sleep(wait_s)
            pause_s = min(pause_s * 2, MOST_PAUSE_S)

    def stream(self, path: str, *, last_id: str = "") -> Iterator["Event"]:
        """Yield the events of one connection until it ends; whoever reads says where to go on the next time.

        Raises:
            ServerUnreachable: the connection cannot be made, or breaks.
            VoicejobsError: the service has refused.
        """
        import httpx

        headers = {**self._trace(), "accept": "text/event-stream"}
        if last_id:
            headers["last-event-id"] = last_id
        timeout = httpx.Timeout(STREAM_SILENCE_S, connect=CONNECT_TIMEOUT_S)
        try:
            with self._http.stream("GET", path, headers=headers, timeout=timeout) as answer:
                if not answer.is_success:
                    answer.read()
                    raise error_of(answer)
                self._has_answered = True
                yield from parse_events(answer.iter_lines())
        except httpx.RequestError as error:
            raise self._unreachable(error) from None

    def _trace(self) -> dict[str, str]:
        """Return the headers that name the trace."""
        return {"traceparent": f"00-{self.trace_id}-{secrets.token_hex(8)}-01"}

    def _unreachable(self, error: Exception) -> ServerUnreachable:
        """Return the error for a request without an answer."""
        reason = str(error) or type(error).__name__
        hint = next((hint for part, hint in _HINTS.items() if part in reason), None)
        return ServerUnreachable(f"The service {self.url} does not answer: {reason}", hint=hint)

    def _stranger(self, answer: "httpx.Response") -> BadOption:
        """Return the error for an answer that no voicejobs service gives."""
        kind = answer.headers.get("content-type", "").partition(";")[0] or "nothing"
        what = "a web page" if kind == _PAGE else f"something else ({kind})"
        return BadOption(f"{self.url} is no voicejobs service: it answers with {what}", hint=_NO_SERVICE)


class Record(dict[str, Any]):
    """Hold an object of an answer; what it lacks is a fault of whoever answered, and told as such."""

    def __missing__(self, name: str) -> NoReturn:
        """Refuse to go on with an answer that lacks what each of ours has.

        Raises:
            BadOption: always.
        """
        raise BadOption(f"The answer of the service has no {name!r}", hint=_NO_SERVICE)


def segment(identity: str) -> str:
    """Return an id as a part of a path.

    Raises:
        NoSuchRecord: it has characters that no id has, and would lead somewhere else.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+", identity):
        raise NoSuchRecord(f"There is no {identity!r}", hint="Ids have letters, digits and underscores alone.")
    return identity


def _trusted(ca_file: str) -> "ssl.SSLContext | bool":
    """Return what vouches for a service: the certificates of a file, or those that httpx brings.

    Raises:
        BadOption: the file holds none.
    """
    if not ca_file:
        return True
    import ssl  # noqa: PLC0415 - commands that work here need none

    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise BadOption(
            f"VOICEJOBS_SERVER_CA_FILE: {ca_file} cannot be used: {error}", hint="It is a file of certificates, PEM."
        ) from None


def _demand_address(url: str) -> None:
    """Refuse what is no address of a service, or holds what does not belong there.

    Raises:
        BadOption: so it is.
    """
    if not url.startswith(("http://", "https://")):
        raise BadOption(f"{url!r} is no address of a service", hint="It begins with https:// or http://.")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise BadOption("The address of the service has characters that no address has", hint=_FORM)
    try:
        found = urlsplit(url)
        is_whole = bool(found.hostname) and found.port != 0
    except ValueError as error:
        raise BadOption(f"The address of the service cannot be used: {error}", hint=_FORM) from None
    if not is_whole or "@" in found.netloc or found.query or found.fragment:
        # The address is not repeated: what stands before an @ may be a password.
        raise BadOption("The address of the service is not of the form SCHEME://HOST:PORT", hint=_FORM)
    if found.path.endswith("/v1"):
        raise BadOption(
            f"{url} is where programs for OpenAI ask a service, and not the service itself",
            hint=f"Leave out the path: {found.scheme}://{found.netloc}.",
        )


def _demand_key(key: str) -> None:
    """Refuse a key that cannot go into a header, without repeating it.

    Raises:
        BadOption: it cannot.
    """
    if not key.isascii() or not key.isprintable() or " " in key:
        raise BadOption(
            "VOICEJOBS_SERVER_KEY holds characters that no key has",
            hint="It is one line, as `voicejobs key create` prints it; VOICEJOBS_SERVER_KEY_FILE names a file with it.",
        )


class Event:
    """Hold one event of a stream: its id, its type and its data as text."""

    __slots__ = ("data", "id", "type")

    def __init__(self, identity: str, kind: str, data: str) -> None:
        self.id = identity
        self.type = kind
        self.data = data


def parse_events(lines: Iterator[str]) -> Iterator[Event]:
    """Yield the events that lines of `text/event-stream` hold; comments are passed over."""
    identity, kind, data = "", "message", list[str]()
    for line in lines:
        if not line:
            if data:
                yield Event(identity, kind, "\n".join(data))
            kind, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            identity = value
        elif name == "event":
            kind = value
        elif name == "data":
            data.append(value)


def error_of(answer: "httpx.Response") -> VoicejobsError:
    """Return the error that an answer tells of: ours by its code, else one that its status means."""
    status = answer.status_code
    try:
        found = answer.json()
    except ValueError:
        found = None
    body: dict[str, Any] = found if isinstance(found, dict) else {}
    told: dict[str, Any] = body["error"] if isinstance(body.get("error"), dict) else {}
    code = str(body.get("code") or told.get("code") or "")
    place = f", which leads to {answer.headers['location']}" if answer.has_redirect_location else ""
    plain = f"The service answers {status} {answer.reason_phrase}{place}"
    message = str(body.get("detail") or told.get("message") or plain)
    hint = str(body["hint"]) if body.get("hint") else None
    if status == _UNAUTHORIZED:
        hint = _KEY  # the service speaks of a header, which nobody at a command line sends
    kind = _by_code().get(code)
    if kind is None:
        return _by_status(status, message, hint)
    return kind(message, hint=hint, status=status, request_id=answer.headers.get("x-request-id", ""))


def _by_status(status: int, message: str, hint: str | None) -> VoicejobsError:
    """Return an error for an answer that names none of ours: a proxy, or something else, may have given it."""
    if status in {_UNAUTHORIZED, _FORBIDDEN}:
        return AccessDenied(message, hint=hint or _KEY)
    if status in RETRIED or status >= _SERVER:
        return ServerUnreachable(message, hint=hint)
    return BadOption(message, hint=hint or _NO_SERVICE)


def _by_code() -> dict[str, type[VoicejobsError]]:
    """Return every error of ours by its code; those of the user's own command line keep to themselves."""
    found: dict[str, type[VoicejobsError]] = {}
    waiting: list[type[VoicejobsError]] = [Permanent, errors.Transient]
    while waiting:
        kind = waiting.pop()
        found[kind.code] = kind
        waiting.extend(kind.__subclasses__())
    return found


def _retry_after_s(answer: "httpx.Response", pause_s: float) -> float:
    """Return how long to wait before the next try: as the service says, in seconds, else as we do anyway."""
    try:
        told_s = float(answer.headers.get("retry-after", ""))
    except ValueError:
        return pause_s
    return min(told_s, LONGEST_PAUSE_S) if told_s >= 0.0 else pause_s  # `nan` is neither
