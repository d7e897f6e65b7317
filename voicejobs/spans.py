"""Spans for OpenTelemetry: submissions, step runs and calls of engines, sent to a collector where one is named.

Where none is, nothing of OpenTelemetry is loaded, and a span costs a look at one variable. The ids of traces are ours:
32 hexadecimal digits are taken as they are, so that a caller's `traceparent` goes on here; any other id is hashed.
"""

import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from hashlib import sha256
from typing import Any

from voicejobs.errors import BadOption, ExtraMissing

_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_SEND_EVERY_MS = 1000
_SEND_TIMEOUT_S = 2
"""A collector that is away holds up no worker that is to end for longer."""
_tracer: Any = None
_provider: Any = None
_current: ContextVar[Any] = ContextVar("voicejobs_span", default=None)
_next = threading.local()


class Span:
    """Stand for a span that is off: whatever is told to it is forgotten."""

    def set(self, name: str, value: object) -> None:
        """Note an attribute."""

    def fail(self, reason: str) -> None:
        """Note that what the span stands for did not succeed."""


class _Open(Span):
    """Hold a span that is on."""

    def __init__(self, span: Any) -> None:
        self._span = span

    def set(self, name: str, value: object) -> None:
        """Note an attribute."""
        self._span.set_attribute(name, value)

    def fail(self, reason: str) -> None:
        """Note that what the span stands for did not succeed."""
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - the span is on, so it is there

        self._span.set_status(StatusCode.ERROR, reason)


_OFF = nullcontext(Span())


def configure(endpoint: str, service: str) -> None:
    """Send the spans of this process to a collector from now on; nothing happens where no endpoint is given.

    Args:
        endpoint: `http://host:4318`; spans go to its `/v1/traces`.
        service: what this process calls itself.

    Raises:
        BadOption: the endpoint is no address of HTTP.
        ExtraMissing: OpenTelemetry is not installed.
    """
    global _tracer, _provider  # noqa: PLW0603 - one for each process
    if not endpoint or _provider is not None:
        return
    if not endpoint.startswith(("http://", "https://")):
        raise BadOption("VOICEJOBS_OTEL_ENDPOINT is no address", hint="Write http://host:4318.")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise ExtraMissing("OpenTelemetry is not installed", hint="pip install 'voicejobs[otel]'") from error
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=_SEND_TIMEOUT_S)
    resource = Resource.create({"service.name": service, "service.namespace": "voicejobs"})
    _provider = TracerProvider(resource=resource, id_generator=_id_generator(), shutdown_on_exit=False)
    _provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=_SEND_EVERY_MS))
    _tracer = _provider.get_tracer("voicejobs")


def close() -> None:
    """Send what waits, and stop."""
    global _tracer, _provider
    provider, _provider, _tracer = _provider, None, None
    if provider is not None:
        provider.shutdown()


def span(name: str, trace_id: str, *, begins: bool = False, **attributes: Any) -> AbstractContextManager[Span]:
    """Return a block that is a span of a trace.

    Args:
        name: what is done.
        trace_id: of the trace.
        begins: whether it is the first of ours in the trace: the others are its children.
        attributes: what else is to be known; None is left out.
    """
    return _OFF if _tracer is None else _open(name, trace_id, begins, attributes)


def current() -> Any:
    """Return the span of this thread or task, to be the parent of one elsewhere; None where there is none."""
    return None if _tracer is None else _current.get()


def told(name: str, parents: Iterable[tuple[str, Any]], seconds: float, **attributes: Any) -> None:
    """Tell of something that has just ended and was done for several at once: a span for each (trace id, parent)."""
    if _tracer is None:
        return
    now_ns = time.time_ns()
    began_ns = now_ns - int(seconds * 1e9)
    for trace_id, parent in dict(parents).items():
        context = _context(trace_id) if parent is None else _under(parent)
        made = _tracer.start_span(name, context=context, attributes=_known(attributes), start_time=began_ns)
        _next.ids = None
        made.end(now_ns)


@contextmanager
def _open(name: str, trace_id: str, begins: bool, attributes: dict[str, Any]) -> Iterator[Span]:
    """Open a span, which is the current one inside the block."""
    if begins:
        _next.ids = (_trace_number(trace_id), _root_number(trace_id))
        context = _fresh()
    else:
        context = _context(trace_id)
    made = _tracer.start_span(name, context=context, attributes=_known(attributes))
    _next.ids = None
    token = _current.set(made)
    opened = _Open(made)
    try:
        yield opened
    except BaseException as error:
        opened.fail(type(error).__name__)
        raise
    finally:
        _current.reset(token)
        made.end()


def _known(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes that have a value."""
    return {f"voicejobs.{name}": value for name, value in attributes.items() if value is not None}


def _trace_number(trace_id: str) -> int:
    """Return the id of a trace as OpenTelemetry counts them."""
    digits = trace_id if _TRACE_ID.fullmatch(trace_id) else sha256(trace_id.encode()).hexdigest()[:32]
    return int(digits, 16)


def _root_number(trace_id: str) -> int:
    """Return the id of our first span in a trace: every process knows it without asking."""
    return int(sha256(f"{trace_id}/root".encode()).hexdigest()[:16], 16) or 1


def _fresh() -> Any:
    """Return a context without a span."""
    from opentelemetry.context import Context  # noqa: PLC0415 - spans are on, so it is there

    return Context()


def _under(parent: Any) -> Any:
    """Return a context whose span is `parent`."""
    from opentelemetry.trace import set_span_in_context  # noqa: PLC0415

    return set_span_in_context(parent, _fresh())


def _context(trace_id: str) -> Any:
    """Return the context of our first span of a trace, or that of the current span where it belongs to the trace."""
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags  # noqa: PLC0415

    number, here = _trace_number(trace_id), _current.get()
    if here is not None and here.get_span_context().trace_id == number:
        return _under(here)
    if not _TRACE_ID.fullmatch(trace_id):  # nobody's request: each step of the job stands for itself
        _next.ids = (number, None)
        return _fresh()
    root = SpanContext(number, _root_number(trace_id), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return _under(NonRecordingSpan(root))


def _id_generator() -> Any:
    """Return what gives ids: those that are wanted next in this thread, else random ones."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator  # noqa: PLC0415

    class Ids(RandomIdGenerator):
        """Give ids."""

        def generate_span_id(self) -> int:
            """Return the id of a span."""
            wanted = getattr(_next, "ids", None)
            return wanted[1] if wanted and wanted[1] else super().generate_span_id()

        def generate_trace_id(self) -> int:
            """Return the id of a trace."""
            wanted = getattr(_next, "ids", None)
            return int(wanted[0]) if wanted else super().generate_trace_id()

    return Ids()
