"""The metrics of a server of the voice engine: a page for Prometheus on a port of this machine alone."""

from collections.abc import Iterator
from http.server import HTTPServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from voicejobs.errors import BadOption
from voicejobs.hosting.host import EngineHost
from voicejobs.metrics.families import counter, gauge
from voicejobs.metrics.pools import of_pools
from voicejobs.rpc.admission import Admission
from voicejobs.rpc.streams import Streams

HOST = "127.0.0.1"
WORKER = "serve-engine"
"""What the label `worker` of engine metrics says, whose owners elsewhere are workers."""


class ServerMetrics(Collector):
    """Make the page of one server; every scrape reads what the server counts, and asks nobody.

    Args:
        host: whose engine processes are shown.
        admission: what became of requests.
        streams: which are open.
    """

    def __init__(self, host: EngineHost, admission: Admission, streams: Streams) -> None:
        self._host = host
        self._admission = admission
        self._streams = streams

    def describe(self) -> list[Metric]:
        """Return nothing: the names are those of `collect`."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        limits, counts = self._admission.limits, self._admission.counts
        for name, told, value in (
            ("rpc_working", "Requests whose work runs.", self._admission.working),
            ("rpc_slots", "Requests whose work may run at once.", limits.slots),
            ("rpc_waiting", "Requests that wait for a slot.", self._admission.waiting),
            ("rpc_queue_length", "Requests that may wait.", limits.queue_length),
            ("rpc_most_waiting", "Most requests that have waited at once since the start.", counts.most_waiting),
            ("rpc_streams", "Streams that are open.", self._streams.open),
            ("rpc_max_streams", "Streams that may be open.", limits.streams),
        ):
            yield gauge(name, told, [({}, float(value))])
        outcomes = {
            "accepted": counts.accepted,
            "refused": counts.refused,
            "expired": counts.expired,
            "cancelled": counts.cancelled,
            "failed": counts.failed,
        }
        yield counter(
            "rpc_requests",
            "Requests: let in, refused for want of room, dropped for having waited too long, given up, failed within.",
            [({"outcome": outcome}, float(count)) for outcome, count in outcomes.items()],
        )
        calls = sorted(counts.calls.items())
        yield counter(
            "rpc_calls",
            "Calls that ended, by how.",
            [({"method": method, "code": code}, float(call.count)) for (method, code), call in calls],
        )
        yield counter(
            "rpc_call_seconds",
            "Time that they took together, waiting included.",
            [({"method": method, "code": code}, call.seconds) for (method, code), call in calls],
        )
        yield from of_pools([(WORKER, pool) for pool in self._host.figures()])


def serve_metrics(metrics: ServerMetrics, port: int) -> tuple[HTTPServer, str]:
    """Serve the page on a port of loopback, 0 for a free one; return the server, to be shut down, and the address.

    Raises:
        BadOption: the port is taken, or not ours.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    try:
        server, _ = start_http_server(port, HOST, registry)
    except OSError as error:
        raise BadOption(
            f"metrics cannot be served on {HOST}:{port}: {error.strerror}", hint="Choose another port."
        ) from error
    return server, f"http://{HOST}:{server.server_address[1]}/metrics"
