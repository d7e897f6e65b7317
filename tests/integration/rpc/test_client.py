"""The client: one pool for threads and event loops, retries before an answer begins, cancelling, errors."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tests.integration.rpc.calls import NO_VAD, noise
from tests.integration.rpc.conftest import Server, Starter, eventually
from tests.integration.rpc.test_streams import frames, spoken
from voicejobs.errors import BadOption, DeadlinePassed, EngineUnavailable, NotServed, Unreadable
from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.proto.voice_engine_pb2_grpc import VoiceEngineServicer, add_VoiceEngineServicer_to_server
from voicejobs.rpc.channels import ChannelPool, PoolLimits
from voicejobs.rpc.client import AsyncVoiceClient, Target, VoiceClient

pytestmark = pytest.mark.timeout(180)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_one_async_client_serves_one_event_loop_after_another(server: Server) -> None:
    """Calls of several loops, one after another and at once, use one pool of channels and none fails."""
    client = AsyncVoiceClient(Target(server.address), timeout_s=30)

    async def several() -> list[str]:
        calls = [client.recognise(noise(0.2, n), "pcm_s16le_16k", options=NO_VAD) for n in range(4)]
        return [answer.text for answer in await asyncio.gather(*calls)]

    first, second = asyncio.run(several()), asyncio.run(several())
    with ThreadPoolExecutor(3) as threads:
        others = list(threads.map(lambda _: asyncio.run(several()), range(3)))
    assert [first] * 4 == [second, *others]
    assert sum(client._pool.sizes().values()) <= 2
    client.close()


def test_async_streams_and_voices(server: Server) -> None:
    """Streams in and out, voices and info work from a coroutine as from a thread."""
    data, rate_hz = spoken()
    request = pb.SynthesizeRequest(text="One. Two.", audio_format="pcm_s16le")
    config = pb.StreamingConfig(audio_format=f"pcm_s16le_{rate_hz}", interim_results=False)

    async def sound() -> AsyncIterator[bytes]:
        for piece in frames(data, rate_hz, 0.2):
            await asyncio.sleep(0)
            yield piece

    async def all_of_them() -> tuple[int, bytes, int, str]:
        async with AsyncVoiceClient(Target(server.address), timeout_s=30) as client:
            finals = [one async for one in client.stream(config, sound())]
            parts = [part.audio_data async for part in client.synthesise_stream(request)]
            whole = await client.synthesise(request)
            voices, info = await client.voices(), await client.info()
            assert len(b"".join(parts)) == len(whole.audio_data)
            return len(finals), whole.audio_data, len(voices), info.version

    finals, audio, voices, version = asyncio.run(all_of_them())
    assert finals >= 1
    assert audio
    assert voices == 2
    assert version


def test_cancelling_a_coroutine_cancels_the_call(serve: Starter) -> None:
    """The server hears of it at once; threads that waited for a stream end."""
    server = serve("--slots", "1", "--batch-size", "1", settings={"VOICEJOBS_FAKE_COST_BASE_S": "1.0"})
    threads = threading.active_count()

    async def silence() -> AsyncIterator[bytes]:
        while True:
            yield bytes(640)
            await asyncio.sleep(0.02)

    async def impatient() -> None:
        async with AsyncVoiceClient(Target(server.address), timeout_s=30) as client:
            call = asyncio.create_task(client.recognise(noise(), "pcm_s16le_16k", options=NO_VAD))
            stream = client.stream(pb.StreamingConfig(audio_format="pcm_s16le_16k"), silence())
            streaming = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.3)
            tasks: list[asyncio.Future[Any]] = [call, streaming]
            for task in tasks:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await stream.aclose()

    asyncio.run(impatient())
    assert server.settled(lambda load: load.cancelled >= 1 and load.streams == 0, within_s=1.0)
    assert eventually(lambda: threading.active_count() <= threads + 1)


def test_a21_a_deadline_is_the_callers(serve: Starter) -> None:
    """A call with a deadline ends at it, in threads and in coroutines."""
    server = serve("--slots", "1", settings={"VOICEJOBS_FAKE_COST_BASE_S": "2.0"})
    since = time.monotonic()
    with pytest.raises(DeadlinePassed):
        server.client().recognise(noise(), "pcm_s16le_16k", options=NO_VAD, timeout_s=0.3)

    async def call() -> None:
        async with AsyncVoiceClient(Target(server.address)) as client:
            await client.recognise(noise(), "pcm_s16le_16k", options=NO_VAD, timeout_s=0.3)

    with pytest.raises(DeadlinePassed):
        asyncio.run(call())
    assert time.monotonic() - since < 1.5


class _Flaky(VoiceEngineServicer):
    """Break off in ways that a test names, and count the calls."""

    def __init__(self, parts: int, failures: int) -> None:
        self.parts = parts
        self.failures = failures
        self.calls = 0

    def GetInfo(self, request: pb.GetInfoRequest, context: grpc.ServicerContext) -> pb.GetInfoResponse:  # noqa: N802
        """Answer, after a number of failures."""
        self._fail(context)
        return pb.GetInfoResponse(version="flaky")

    def SynthesizeStream(  # noqa: N802
        self, request: pb.SynthesizeRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.SynthesizeStreamResponse]:
        """Give some parts, then fail."""
        for _ in range(self.parts):
            yield pb.SynthesizeStreamResponse(audio_data=b"x")
        self._fail(context)

    def _fail(self, context: grpc.ServicerContext) -> None:
        """Count the call, and break it off while failures are left."""
        self.calls += 1
        if self.calls <= self.failures:
            context.abort(grpc.StatusCode.UNAVAILABLE, "gone for a moment")


def _flaky(parts: int, failures: int) -> tuple[grpc.Server, _Flaky, Target]:
    """Serve such a service in this process."""
    service = _Flaky(parts, failures)
    server = grpc.server(ThreadPoolExecutor(2))
    add_VoiceEngineServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, service, Target(f"127.0.0.1:{port}")


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_a_call_is_made_again_before_its_answer_begins_and_never_after(kind: str) -> None:
    """One failure without a byte is made good; once a part has come the failure is the caller's."""

    async def stream(target: Target, got: list[bytes]) -> None:
        async with AsyncVoiceClient(target) as client:
            async for part in client.synthesise_stream(pb.SynthesizeRequest(text="x")):
                got.append(part.audio_data)  # noqa: PERF401 - what came before a failure counts

    def speak(target: Target) -> list[bytes]:
        got: list[bytes] = []
        try:
            if kind == "coroutines":
                asyncio.run(stream(target, got))
                return got
            with VoiceClient(target) as client:
                for part in client.synthesise_stream(pb.SynthesizeRequest(text="x")):
                    got.append(part.audio_data)  # noqa: PERF401
        except EngineUnavailable:
            got.append(b"failed")
        return got

    for parts, failures, wanted, calls in ((0, 1, [], 2), (0, 2, [b"failed"], 2), (2, 1, [b"x", b"x", b"failed"], 1)):
        server, service, target = _flaky(parts, failures)
        assert speak(target) == wanted
        assert service.calls == calls
        server.stop(None)


def test_a_unary_call_survives_one_failure_and_a_restart() -> None:
    """The retry uses another channel; a server that comes back on its address is found at once."""
    server, service, target = _flaky(0, 1)
    with VoiceClient(target) as client:
        assert client.info().version == "flaky"
        assert service.calls == 2
        server.stop(None).wait()
        with pytest.raises(EngineUnavailable):
            client.info(timeout_s=2)
        again = grpc.server(ThreadPoolExecutor(2))
        add_VoiceEngineServicer_to_server(_Flaky(0, 0), again)
        again.add_insecure_port(target.address)
        again.start()
        assert client.info(timeout_s=2).version == "flaky"
        again.stop(None)


def test_errors_name_the_address() -> None:
    """A server that is not there, and one that serves something else, are told apart."""
    target = Target(f"127.0.0.1:{free_port()}")
    with VoiceClient(target) as client, pytest.raises(EngineUnavailable, match=r"127\.0\.0\.1"):
        client.info(timeout_s=2)
    other = grpc.server(ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    with VoiceClient(Target(f"127.0.0.1:{port}")) as client, pytest.raises(NotServed):
        client.info(timeout_s=2)
    other.stop(None)


def test_targets_come_from_urls() -> None:
    """`grpc`, `grpcs` and `unix` name a target; anything else is refused, and keys are not shown."""
    assert Target.of_url("grpc://host:1") == Target("host:1")
    assert Target.of_url("grpcs://[::1]:50051", key="secret") == Target("[::1]:50051", key="secret", tls=True)
    assert Target.of_url("unix:///run/engine.sock") == Target("unix:/run/engine.sock")
    assert "secret" not in repr(Target("host:1", key="secret"))
    for url in ("host:1", "http://host:1", "grpc://host", "grpc://", "unix://relative", ""):
        with pytest.raises(BadOption):
            Target.of_url(url)
    with pytest.raises(Unreadable):
        ChannelPool().take(Target("host:1", tls=True, ca_file="/nowhere/ca.pem"))


def test_a33_the_pool_keeps_its_bounds() -> None:
    """Channels are few, the least busy is lent, an old or broken one is replaced, and a full pool is waited for."""
    first, second = Target("127.0.0.1:1"), Target("127.0.0.1:2")
    with ChannelPool(PoolLimits(size=2, calls=2, max_age_s=0.4, borrow_timeout_s=0.2)) as pool:
        leases = [pool.take(first) for _ in range(4)]
        assert len({id(lease.channel) for lease in leases}) == 2
        assert pool.sizes() == {first: 2}
        assert pool.take_now(first) is None
        since = time.monotonic()
        with pytest.raises(EngineUnavailable, match="busy"):
            pool.take(first)
        assert time.monotonic() - since >= 0.2
        pool.take(second).give_back()
        assert pool.sizes() == {first: 2, second: 1}

        waiting = ThreadPoolExecutor(1).submit(pool.take, first)
        leases[0].give_back()
        leases[0].give_back()  # a second time does nothing
        assert waiting.result(1).channel is leases[0].channel
        for lease in (*leases[1:], waiting.result()):
            lease.give_back()

        kept = pool.take(first).channel
        time.sleep(0.5)
        with pool.borrow(first) as lease:
            young = lease.channel
            assert young is not kept
        with pool.borrow(first) as lease:
            assert lease.channel is young
            lease.give_back(broken=True)
        with pool.borrow(first) as lease:
            assert lease.channel is not young
    with pytest.raises(BadOption):
        pool.take(first)
