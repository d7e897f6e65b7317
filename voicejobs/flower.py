"""Serve Flower, the page that watches Celery: `voicejobs serve flower` becomes this process.

Flower 2.2 with a password still answers /metrics and /healthcheck to anybody. So a gate stands before all of it: no
credentials, no answer, whatever is asked for; and nothing but reading gets through, beside what `read_only` refuses.
"""

import argparse
import asyncio
import hmac
import ipaddress
import os
import re
import signal
import sys
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.ioloop import IOLoop
from tornado.netutil import bind_sockets
from tornado.routing import Router
from tornado.web import Application, RequestHandler

from voicejobs import logs
from voicejobs.errors import BadOption, ExtraMissing, VoicejobsError
from voicejobs.settings import Settings, environment

DEFAULT_ADDRESS, DEFAULT_PORT = "127.0.0.1", 5555
EXIT_REFUSED = 7
MAX_TASKS = 20_000
"""Tasks that Flower remembers, some 40 MB; it forgets the oldest."""
PURGE_WORKERS_S = 3600
MOST_BODY_BYTES = 64 * 1024
"""A body is kept before anybody asks who sends it; the largest that a page sends is the form for the table of tasks."""
MOST_HEADER_BYTES = 32 * 1024
IDLE_S = 60.0
BODY_WAIT_S = 30.0
_READING = frozenset({"GET", "HEAD"})
_READING_BY_POST = "/tasks/datatable"
"""The table of tasks asks for its rows with a form that is too long for an address."""
_LEAST_PASSWORD_CHARS = 8
_SHOWN_ARGS = re.compile(r"['\"]?job_\w+, \d+/\d+['\"]?")
_HIDDEN = "(hidden)"
_COLUMNS = "name,args,state,received,started,runtime,worker,uuid"
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class FlowerOptions:
    """Say how to serve.

    Args:
        address: IP address or host name to listen on.
        port: 0 takes a free one.
        allow_anonymous: ask nobody for credentials; on loopback only.
        allow_public: serve an address that others reach.
        url_prefix: first part of all paths, where a proxy passes one on.
        ready_file: file that holds the address while Flower answers.
    """

    address: str = DEFAULT_ADDRESS
    port: int = DEFAULT_PORT
    allow_anonymous: bool = False
    allow_public: bool = False
    url_prefix: str = ""
    ready_file: Path | None = None


def credentials(settings: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return who may come in, each as `name:password`: from our setting, else from Flower's own variable.

    Raises:
        BadOption: one has another form, or a password that is guessed too soon.
    """
    text = settings.flower_auth or environ.get("FLOWER_BASIC_AUTH", "")
    found = tuple(one.strip() for one in re.split(r"[,\n]", text) if one.strip())
    for one in found:
        name, colon, password = one.partition(":")
        if not name or not colon or len(password) < _LEAST_PASSWORD_CHARS:
            raise BadOption(
                f"Credentials for Flower have the form NAME:PASSWORD, with {_LEAST_PASSWORD_CHARS} characters or more",
                hint="VOICEJOBS_FLOWER_AUTH or its _FILE holds them, with commas or line ends between.",
            )
    return found


def is_loopback(address: str) -> bool:
    """Tell whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address == "localhost"


def check_exposure(options: FlowerOptions, known: Sequence[str]) -> None:
    """Refuse to show anybody what only operators should see.

    Raises:
        BadOption: nobody would be asked for credentials, or the network would reach the page.
    """
    local = is_loopback(options.address)
    if not known and not (options.allow_anonymous and local):
        raise BadOption(
            "Flower needs credentials",
            hint="Set VOICEJOBS_FLOWER_AUTH_FILE, a file with NAME:PASSWORD; or say --allow-anonymous on loopback.",
        )
    if not local and not options.allow_public:
        raise BadOption(
            f"{options.address} is open to the network",
            hint="Leave Flower on 127.0.0.1 behind a proxy with TLS; --allow-public serves it in plain text.",
        )


def scrubbed(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event of Celery with nothing in it that our own messages would not show.

    Whoever can reach the broker can send messages, and old workers send other arguments.
    """
    if not str(event.get("type", "")).startswith("task-"):
        return event
    clean = dict(event)
    for name, empty in (("kwargs", ""), ("result", None), ("traceback", None)):
        if name in clean:
            clean[name] = empty
    if "args" in clean and _SHOWN_ARGS.fullmatch(str(clean["args"])) is None:
        clean["args"] = _HIDDEN
    if clean.get("exception"):
        clean["exception"] = logs.redacted(str(clean["exception"]).split("\n", maxsplit=1)[0][:200])
    return clean


def scrubbed_task(task: Any) -> Any:
    """Return a task as pages may show it: what `scrubbed` leaves, also of tasks that came another way."""
    task.kwargs, task.result, task.traceback = "", None, None
    if task.args and _SHOWN_ARGS.fullmatch(str(task.args)) is None:
        task.args = _HIDDEN
    return task


class Refusal(RequestHandler):
    """Answer what the gate does not let through."""

    def initialize(self, status: int) -> None:
        """Take the status to answer with."""
        self._status = status

    def prepare(self) -> None:
        """Refuse, whatever the method."""
        self.set_header("X-Content-Type-Options", "nosniff")
        self.clear_header("Server")
        self.set_status(self._status)
        if self._status == 401:  # noqa: PLR2004 - the status says it
            self.set_header("WWW-Authenticate", 'Basic realm="flower", charset="UTF-8"')
        self.finish("refused\n")

    def check_xsrf_cookie(self) -> None:
        """Ask for none: nothing is done here."""


class Gate(Router):
    """Let through to Flower who has credentials and only reads."""

    def __init__(self, flower: Any, known: Sequence[str], prefix: str = "") -> None:
        self._flower = flower
        self._known = [one.encode() for one in known]
        self._form = f"/{prefix.strip('/')}{_READING_BY_POST}" if prefix.strip("/") else _READING_BY_POST
        self._refusals = Application([(r".*", Refusal, {"status": 403})])

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> HTTPMessageDelegate | None:
        """Return what answers a request."""
        status = self.status_of(request)
        if status:
            return self._refusals.get_handler_delegate(request, Refusal, {"status": status})
        handler: HTTPMessageDelegate | None = self._flower.find_handler(request, **kwargs)
        return handler

    def status_of(self, request: HTTPServerRequest) -> int:
        """Return the status to refuse a request with, or 0."""
        if self._known:
            if not self._is_known(request.headers.get("Authorization", "")):
                return 401
        elif urlsplit(f"//{request.host}").hostname not in _LOCAL_NAMES:
            return 403  # a page of somebody else whose name was turned to this address
        if request.method in _READING or (request.method == "POST" and request.path == self._form):
            return 0
        return 403

    def _is_known(self, header: str) -> bool:
        """Tell whether a header holds credentials that are known, in the same time whatever it holds."""
        scheme, _, encoded = header.partition(" ")
        try:
            given = b64decode(encoded.strip(), validate=True)
        except (Base64Error, ValueError):
            given = b""
        matches = [hmac.compare_digest(given, one) for one in self._known]
        return scheme.lower() == "basic" and any(matches)


def flower_application(settings: Settings, options: FlowerOptions, known: Sequence[str]) -> Any:
    """Return Flower's application, set up to show and to change nothing.

    Raises:
        ExtraMissing: Flower is not installed.
    """
    from celery import Celery  # noqa: PLC0415 - see below

    from voicejobs.tasks.app import configure  # noqa: PLC0415 - heavy, and not needed to refuse

    try:
        from flower.app import Flower  # noqa: PLC0415 - not everybody has it
        from flower.events import Events  # noqa: PLC0415
        from flower.options import default_options  # noqa: PLC0415
        from flower.urls import settings as flower_settings  # noqa: PLC0415
    except ImportError as error:
        raise ExtraMissing("flower is not installed", hint="pip install 'voicejobs[server]'") from error
    app = Celery("voicejobs", set_as_current=False)
    configure(app, settings.broker_url)
    values = {
        "basic_auth": list(known),
        "read_only": True,
        "persistent": False,
        "debug": False,
        "max_tasks": MAX_TASKS,
        "purge_offline_workers": PURGE_WORKERS_S,
        "tasks_columns": _COLUMNS,
        "format_task": scrubbed_task,
        "url_prefix": options.url_prefix or None,
    }
    for name, value in values.items():
        setattr(default_options, name, value)
    loop = IOLoop.current()
    events = Events(app, io_loop=loop, enable_events=True, max_tasks_in_memory=MAX_TASKS, max_workers_in_memory=5000)
    take = events.on_event
    events.on_event = lambda event: take(scrubbed(event))
    return Flower(capp=app, options=default_options, events=events, io_loop=loop, **flower_settings)


async def serve(settings: Settings, options: FlowerOptions, known: Sequence[str]) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        BadOption: the address cannot be listened on.
    """
    flower = flower_application(settings, options, known)
    try:
        sockets = bind_sockets(options.port, address=options.address)
    except OSError as error:
        raise BadOption(f"{options.address}:{options.port} cannot be listened on: {error.strerror}") from error
    server = HTTPServer(
        Gate(flower, known, options.url_prefix),
        max_header_size=MOST_HEADER_BYTES,
        max_body_size=MOST_BODY_BYTES,
        body_timeout=BODY_WAIT_S,
        idle_connection_timeout=IDLE_S,
    )
    server.add_sockets(sockets)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    flower.events.start()
    flower.started = True
    flower.update_workers()
    host = f"[{options.address}]" if ":" in options.address else options.address
    address = f"http://{host}:{sockets[0].getsockname()[1]}"
    if options.ready_file is not None:
        options.ready_file.write_text(f"{address}\n", encoding="utf-8")
    print(f"serving on {address}", flush=True)  # noqa: T201 - for whoever started us
    try:
        await stop.wait()
    finally:
        if options.ready_file is not None:
            options.ready_file.unlink(missing_ok=True)
        server.stop()
        flower.events.stop()
        flower.executor.shutdown(wait=False, cancel_futures=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal, and return the exit code; errors go to standard error."""
    options = options_of(arguments)
    try:
        settings = Settings.from_env()
        logs.configure(settings.log_level)
        known = credentials(settings, environment())
        check_exposure(options, known)
        asyncio.run(serve(settings, options, known))
    except VoicejobsError as error:
        print(f"error: {error.message} [{error.code}]", file=sys.stderr)  # noqa: T201 - for whoever started us
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)  # noqa: T201
        return EXIT_REFUSED
    return 0


def options_of(arguments: Sequence[str] | None) -> FlowerOptions:
    """Return the options that the words say."""
    parser = argparse.ArgumentParser(prog="voicejobs serve flower")
    parser.add_argument("--address", default=DEFAULT_ADDRESS)
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--allow-anonymous", action="store_true")
    parser.add_argument("--allow-public", action="store_true")
    parser.add_argument("--url-prefix", default="")
    parser.add_argument("--ready-file", type=Path)
    return FlowerOptions(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    # Flower's threads wait on the broker for ever; they hold nothing that must be saved.
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
