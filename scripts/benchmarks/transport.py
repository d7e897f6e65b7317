"""One payload over gRPC, as raw body over REST and as base64 in JSON: time of a call, on loopback."""

import argparse
import base64
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar
from zlib import crc32

import grpc
import numpy as np
from benchmarks.report import finish, print_table

from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.proto.voice_engine_pb2_grpc import (
    VoiceEngineServicer,
    VoiceEngineStub,
    add_VoiceEngineServicer_to_server,
)

SECONDS = 5
RATE_HZ = 16_000
WARM_UP = 20
LOCAL = "127.0.0.1"
Call = Callable[[bytes], str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--calls", type=int, default=300, help="calls of each kind, the kinds in turns")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)


def main(arguments: argparse.Namespace) -> int:
    """Time every way in turns, print the table."""
    if arguments.serve:
        return serve()
    sound = np.random.default_rng(1).integers(-8000, 8000, SECONDS * RATE_HZ, np.int16)
    payload = sound.tobytes()
    with _server() as (grpc_port, http_port), ExitStack() as stack:
        ways = _ways(grpc_port, http_port, stack)
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(arguments.calls + WARM_UP):
            for name, call in ways.items():
                began = time.perf_counter()
                answer = call(payload)
                if turn >= WARM_UP:
                    taken[name].append(time.perf_counter() - began)
                if answer != _answer(payload):
                    sys.exit(f"{name}: the payload did not arrive as it was sent")
    found = {name: _figures(values) for name, values in taken.items()}
    print_table(
        [
            (f"{len(payload) // 1000} KB, {SECONDS} s of audio", "p50 ms", "p95 ms", "p99 ms"),
            *(
                (name, *(f"{one[share]:.2f}" for share in ("p50_ms", "p95_ms", "p99_ms")))
                for name, one in found.items()
            ),
        ]
    )
    print(
        "REST is a server of this benchmark alone on http.server, which unpacks the sound as the gRPC server does; the"
    )
    print("REST interface of voicejobs is not there yet. No engine works behind either.")
    raw, packed = found["REST, raw body"]["p50_ms"], found["REST, base64 in JSON"]["p50_ms"]
    holds = {"a raw body is faster than base64 in JSON": raw < packed}
    return finish("transport", {"payload_bytes": len(payload), "ways": found, "holds": holds}, arguments.json)


def _ways(grpc_port: int, http_port: int, stack: ExitStack) -> dict[str, Call]:
    """Return the ways to send a payload; what they share is closed with `stack`."""
    shared = VoiceEngineStub(stack.enter_context(_channel(grpc_port)))
    kept = http.client.HTTPConnection(LOCAL, http_port)
    stack.callback(kept.close)

    def by_channel(payload: bytes) -> str:
        return _recognize(shared, payload)

    def by_new_channel(payload: bytes) -> str:
        with _channel(grpc_port) as channel:
            return _recognize(VoiceEngineStub(channel), payload)

    def raw(payload: bytes) -> str:
        return _post(kept, "/raw", payload)

    def raw_anew(payload: bytes) -> str:
        connection = http.client.HTTPConnection(LOCAL, http_port)
        try:
            return _post(connection, "/raw", payload)
        finally:
            connection.close()

    def in_json(payload: bytes) -> str:
        return _post(kept, "/json", json.dumps({"audio": base64.b64encode(payload).decode()}).encode())

    def numbers(payload: bytes) -> str:
        return _post(kept, "/numbers", json.dumps({"audio": np.frombuffer(payload, np.int16).tolist()}).encode())

    return {
        "gRPC, shared channel": by_channel,
        "gRPC, channel per call": by_new_channel,
        "REST, raw body": raw,
        "REST, raw body, connection per call": raw_anew,
        "REST, base64 in JSON": in_json,
        "REST, list of numbers in JSON": numbers,
    }


def _channel(port: int) -> grpc.Channel:
    """Open a channel that shares no connection with another."""
    return grpc.insecure_channel(f"{LOCAL}:{port}", options=[("grpc.use_local_subchannel_pool", 1)])


def _recognize(stub: VoiceEngineStub, payload: bytes) -> str:
    """Call Recognize."""
    request = pb.RecognizeRequest(audio_data=payload, audio_format="pcm_s16le_16k", language="en")
    return str(stub.Recognize(request, timeout=10).text)


def _post(connection: http.client.HTTPConnection, path: str, body: bytes) -> str:
    """Post a body, return the text of the answer."""
    connection.request("POST", path, body)
    return str(json.loads(connection.getresponse().read())["text"])


def _answer(payload: bytes) -> str:
    """Return what a server says of a sound: it unpacked it, so that nothing is left to do for an engine."""
    sound = np.frombuffer(payload, np.int16)
    return f"n{sound.size} c{crc32(sound.tobytes()):08x}"


def _figures(taken: list[float]) -> dict[str, float]:
    """Return percentiles in milliseconds."""
    return {f"p{share}_ms": float(np.percentile(taken, share)) * 1000 for share in (50, 95, 99)}


@contextmanager
def _server() -> Iterator[tuple[int, int]]:
    """Run both servers in a process of their own; give their ports."""
    command = [sys.executable, "-P", sys.argv[0], "transport", "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("no pipes")
        try:
            ports = json.loads(process.stdout.readline())
            yield ports["grpc"], ports["http"]
        finally:
            process.stdin.close()  # which ends it


def serve() -> int:
    """Serve both until standard input ends."""
    server = grpc.server(ThreadPoolExecutor(4))
    add_VoiceEngineServicer_to_server(_Engine(), server)
    grpc_port = server.add_insecure_port(f"{LOCAL}:0")
    server.start()
    rest = ThreadingHTTPServer((LOCAL, 0), _Rest)
    rest.daemon_threads = True
    Thread(target=rest.serve_forever, daemon=True).start()
    print(json.dumps({"grpc": grpc_port, "http": rest.server_port}), flush=True)
    sys.stdin.read()
    server.stop(None)
    rest.shutdown()
    return 0


class _Engine(VoiceEngineServicer):
    """Answer Recognize at once."""

    def Recognize(self, request: pb.RecognizeRequest, context: Any) -> pb.RecognizeResponse:  # noqa: N802 - its name
        """Return what came."""
        return pb.RecognizeResponse(text=_answer(request.audio_data))


class _Rest(BaseHTTPRequestHandler):
    """Answer a post at once."""

    protocol_version: ClassVar[str] = "HTTP/1.1"
    disable_nagle_algorithm: ClassVar[bool] = True
    wbufsize: ClassVar[int] = 1 << 16

    def do_POST(self) -> None:
        """Return what came, by what the path says it is."""
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/json":
            body = base64.b64decode(json.loads(body)["audio"])
        elif self.path == "/numbers":
            body = np.array(json.loads(body)["audio"], np.int16).tobytes()
        answer = json.dumps({"text": _answer(body)}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""
