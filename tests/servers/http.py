"""A small HTTP server that keeps every request and answers as a test wants, broken answers included."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Part:
    """Hold a field of a form: its text or bytes, and the name of the file where it is one."""

    name: str
    content: bytes
    filename: str = ""
    content_type: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """Hold what a client sent."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def parts(self) -> list[Part]:
        """Return the fields of a form, in order; those of both encodings of forms."""
        kind = self.headers.get("content-type", "")
        if kind.startswith("application/x-www-form-urlencoded"):
            from urllib.parse import parse_qsl

            return [Part(name, value.encode()) for name, value in parse_qsl(self.body.decode(), strict_parsing=True)]
        boundary = b"--" + _parameter(kind, "boundary").encode()
        pieces = self.body.split(boundary)
        assert pieces[0] == b""
        assert pieces[-1].strip() == b"--"
        return [_part(piece) for piece in pieces[1:-1]]

    def fields(self) -> dict[str, list[str]]:
        """Return the texts of a form by name."""
        found: dict[str, list[str]] = {}
        for part in self.parts():
            if not part.filename:
                found.setdefault(part.name, []).append(part.content.decode())
        return found

    def file(self, name: str) -> Part:
        """Return the one file of this name."""
        (found,) = (part for part in self.parts() if part.filename and part.name == name)
        return found


@dataclass(frozen=True, slots=True)
class Reply:
    """Say what to answer.

    Args:
        status: HTTP status.
        body: all of it, or its chunks in order for a chunked answer.
        headers: further headers.
        broken: hang up after the chunks, without the end that chunked answers have.
        before: called before each chunk, for pauses.
    """

    status: int = 200
    body: bytes | Sequence[bytes] = b""
    headers: dict[str, str] = field(default_factory=dict)
    broken: bool = False
    before: Callable[[], object] = lambda: None


class HttpServer:
    """Serve `respond` on a loopback port; `requests` holds what came in, in order."""

    def __init__(self, respond: Callable[[Request], Reply], *, host: str = "127.0.0.1") -> None:
        self.requests: list[Request] = []
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                outer._serve(self, respond)

            def do_GET(self) -> None:
                outer._serve(self, respond)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base class
                """Write nothing."""

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, handler: BaseHTTPRequestHandler, respond: Callable[[Request], Reply]) -> None:
        """Keep one request and answer it."""
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        request = Request(handler.command, handler.path, headers, body)
        with self._lock:
            self.requests.append(request)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            reply = respond(request)
        finally:
            with self._lock:
                self._now -= 1
        try:
            _write(handler, reply)
        except OSError:  # the client has gone
            handler.close_connection = True


def _write(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    """Write the answer, whole or in chunks."""
    handler.send_response(reply.status)
    for name, value in reply.headers.items():
        handler.send_header(name, value)
    if isinstance(reply.body, bytes):
        handler.send_header("Content-Length", str(len(reply.body)))
        handler.end_headers()
        reply.before()
        handler.wfile.write(reply.body)
        return
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for chunk in reply.body:
        reply.before()
        handler.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        handler.wfile.flush()
    if reply.broken:
        handler.close_connection = True
    else:
        handler.wfile.write(b"0\r\n\r\n")


def _parameter(header: str, name: str) -> str:
    """Return a parameter of a header such as a content type."""
    message = Message()
    message["Content-Type"] = header
    return str(message.get_param(name) or "")


def _part(piece: bytes) -> Part:
    """Read one part of a form."""
    head, _, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
    lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
    lines = {name.lower(): value for name, value in lines.items()}
    disposition = lines["content-disposition"]
    assert content.endswith(b"\r\n")
    return Part(
        _parameter(disposition, "name"),
        content[:-2],
        _parameter(disposition, "filename"),
        lines.get("content-type", ""),
    )
