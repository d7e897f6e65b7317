"""Spans of OpenTelemetry reach a collector, each in the trace of its request; where it is off they cost nothing."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.bench import Bench, bench, make_bench, speech
from tests.waiting import wait_until
from voicejobs import spans
from voicejobs.errors import BadOption
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.submit import InputFile, Submission

__all__ = ["bench", "make_bench", "speech"]

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


class Collector:
    """Take spans over OTLP/HTTP."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            """Take one request."""

            def do_POST(self) -> None:
                """Keep the spans of a request with the name of the service."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                    named = {one.key: one.value.string_value for one in group.resource.attributes}
                    collector.spans += [
                        (named["service.name"], one) for scope in group.scope_spans for one in scope.spans
                    ]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def named(self, name: str) -> list[Any]:
        """Return the spans of a name."""
        return [one for _, one in self.spans if one.name == name]

    def close(self) -> None:
        """End."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Return a collector; spans of this process are off afterwards."""
    collector = Collector()
    yield collector
    with suppress(BadOption):
        spans.close()
    collector.close()


def test_a_request_is_one_trace_of_submission_steps_and_engine_calls(bench: Bench, collector: Collector) -> None:
    """The trace id of the request is that of all spans; steps hang below the submission, the call below its step."""
    bench.start_worker(otel_endpoint=collector.url)
    spans.configure(collector.url, "test")
    options = TRANSCRIBE.options({"recognise": {"engine": "fake", "model": ""}})
    submission = Submission(bench.database, TRANSCRIBE, options, trace_id=TRACE_ID)
    path = bench.recording("a.wav")
    (accepted,) = submission.add([InputFile(str(path), path.name)])
    submission.seal()
    spans.close()
    bench.wait_ended(accepted.job_id)
    (untraced,) = bench.submit(bench.recording("b.wav"))
    bench.wait_ended(untraced)
    wait_until(lambda: len(collector.named("deliver")) == 2, what=lambda: [one.name for _, one in collector.spans])
    ours = [one for _, one in collector.spans if one.trace_id.hex() == TRACE_ID]
    assert sorted(one.name for one in ours) == ["deliver", "engine call", "prepare", "recognise", "submission"]
    by_name = {one.name: one for one in ours}
    assert by_name["submission"].parent_span_id == b""
    for step in ("prepare", "recognise", "deliver"):
        assert by_name[step].parent_span_id == by_name["submission"].span_id
    assert by_name["engine call"].parent_span_id == by_name["recognise"].span_id
    told = {one.key: one.value.string_value for one in by_name["recognise"].attributes}
    assert told["voicejobs.job"] == accepted.job_id
    assert {service for service, _ in collector.spans} == {"test", "worker"}
    theirs = {one.trace_id for _, one in collector.spans} - {bytes.fromhex(TRACE_ID)}
    assert len(theirs) == 1, "the steps of a job without a request share a trace too"


def test_a_step_that_fails_is_an_error(bench: Bench, collector: Collector) -> None:
    """The span of a step whose job fails has the status of an error."""
    bench.start_worker(otel_endpoint=collector.url)
    path = bench.folder / "noise.wav"
    path.write_bytes(b"no sound at all" * 100)
    bench.wait_ended(*bench.submit(path))
    wait_until(lambda: collector.named("prepare"))
    assert collector.named("prepare")[0].status.code == 2


def test_off_it_loads_nothing() -> None:
    """Without an endpoint no module of OpenTelemetry is imported, and a span is one object for all."""
    code = (
        "import sys; from voicejobs import spans; spans.configure('', 'x')\n"
        "with spans.span('a', 'b') as one: one.set('c', 1); one.fail('d')\n"
        "assert spans.span('a', 'b') is spans.span('c', 'd'); spans.told('x', [('t', None)], 1.0); spans.close()\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_endpoint_must_be_an_address() -> None:
    """Anything but http and https is refused at the start."""
    with pytest.raises(BadOption, match="OTEL_ENDPOINT"):
        spans.configure("collector:4318", "x")


def test_a_collector_that_is_away_costs_a_job_nothing(bench: Bench) -> None:
    """Jobs end as ever, and the worker leaves in time when it is asked to."""
    worker = bench.start_worker(otel_endpoint="http://127.0.0.1:9")
    assert set(bench.wait_ended(*bench.submit(bench.recording("a.wav"))).values()) == {"succeeded"}
    worker.terminate()
    worker.wait(15)
