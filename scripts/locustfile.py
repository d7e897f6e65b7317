"""Load a service of this machine with Locust, for those who use it; docs/benchmarks.md says when not to.

    pip install locust
    locust -f scripts/locustfile.py --headless -u 20 -r 5 -t 60s --host http://127.0.0.1:50051 GrpcUser
    locust -f scripts/locustfile.py --headless -u 20 -r 5 -t 60s --host http://127.0.0.1:8000 RestUser

A user waits for its answer before it sends again: 20 users are 20 requests at once at most, and a slow server slows the
load down. `scripts/load` keeps to a rate. Locust is no dependency of voicejobs.
"""

import argparse
import ipaddress
import sys
import time
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import grpc
import grpc.experimental.gevent
import numpy as np
from locust import FastHttpUser, User, between, events, task

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.proto.voice_engine_pb2_grpc import VoiceEngineStub

grpc.experimental.gevent.init_gevent()

RATE_HZ = 16_000
TIMEOUT_S = 10.0
WAIT_S = (0.1, 0.5)


@events.init_command_line_parser.add_listener
def _options(parser: argparse.ArgumentParser) -> None:
    """Declare our options."""
    parser.add_argument("--rest-path", default="/", help="path that RestUser posts to")
    parser.add_argument(
        "--sound", default="", help="raw 16-bit mono PCM at 16 kHz to send; default: five seconds of tone"
    )


@events.test_start.add_listener
def _check_loopback(environment: Any, **_: Any) -> None:
    """Refuse every other machine."""
    host = urlsplit(environment.host or "").hostname or ""
    if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
        environment.process_exit_code = 1
        raise SystemExit(f"{environment.host}: a load test goes to this machine only")


def _sound(environment: Any) -> bytes:
    """Return what to send."""
    path = environment.parsed_options.sound
    if path:
        return Path(path).read_bytes()
    times_s = np.arange(5 * RATE_HZ) / RATE_HZ
    return (0.01 * 32767 * np.sin(2 * np.pi * 440 * times_s)).astype(np.int16).tobytes()


class GrpcUser(User):
    """Call `VoiceEngine.Recognize`, on one channel for each user."""

    wait_time: ClassVar[Any] = between(*WAIT_S)

    def on_start(self) -> None:
        """Open the channel."""
        self._channel = grpc.insecure_channel(urlsplit(self.host).netloc)
        self._stub = VoiceEngineStub(self._channel)
        self._request = pb.RecognizeRequest(
            audio_data=_sound(self.environment), audio_format="pcm_s16le_16k", language="en"
        )

    def on_stop(self) -> None:
        """Close it."""
        self._channel.close()

    @task
    def recognize(self) -> None:
        """Call once and report it."""
        began = time.perf_counter()
        error: Exception | None = None
        length = 0
        try:
            length = self._stub.Recognize(self._request, timeout=TIMEOUT_S).ByteSize()
        except grpc.RpcError as failed:
            error = failed
        self.environment.events.request.fire(
            request_type="gRPC",
            name="Recognize",
            response_time=(time.perf_counter() - began) * 1000,
            response_length=length,
            exception=error,
            context={},
        )


class RestUser(FastHttpUser):
    """Post the sound as raw body."""

    wait_time: ClassVar[Any] = between(*WAIT_S)

    def on_start(self) -> None:
        """Make the body."""
        self._body = _sound(self.environment)

    @task
    def post(self) -> None:
        """Post once; Locust reports it."""
        headers = {"content-type": "application/octet-stream"}
        self.client.post(self.environment.parsed_options.rest_path, data=self._body, headers=headers)
