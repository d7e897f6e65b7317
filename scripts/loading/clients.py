"""Clients of a load test: gRPC by the generated stubs, and any REST endpoint that takes a raw body. Loopback only."""

import asyncio
import ipaddress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import urlsplit

import grpc
import numpy as np

from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.proto.voice_engine_pb2_grpc import VoiceEngineStub

if TYPE_CHECKING:
    import httpx

RATE_HZ = 16_000
MESSAGE_BYTES = 50 * 1024 * 1024
WRONG = "wrong answer"


class Client(Protocol):
    """Send requests; what entering and leaving do is part of no latency."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    async def send(self, number: int) -> str:
        """Send request `number` and return the status of its answer."""
        ...


class NotLoopbackError(ValueError):
    """Say that a load test was aimed at another machine."""


def check_loopback(address: str) -> None:
    """Refuse every address that is not on this machine.

    Args:
        address: `HOST:PORT`, `[IPV6]:PORT`, `unix:PATH`, or a URL of http.

    Raises:
        NotLoopbackError: it is another machine's, or a name that may be.
    """
    if address.startswith("unix:"):
        return
    host = urlsplit(address if "://" in address else f"grpc://{address}").hostname or ""
    try:
        inside = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        inside = False
    if not inside:
        raise NotLoopbackError(f"{address}: a load test goes to this machine only (127.0.0.1, [::1], localhost, unix:)")


def sounds(seconds: float, rate_hz: int, *, speech: "np.ndarray[Any, Any] | None") -> list[bytes]:
    """Return a hundred different recordings, 16-bit mono PCM; without `speech` a quiet tone, which holds no speech."""
    length = round(seconds * rate_hz)
    if speech is None:
        base = (0.01 * 32767 * np.sin(2 * np.pi * 440 * np.arange(length) / rate_hz)).astype(np.int16)
    else:
        places = np.arange(length) * RATE_HZ / rate_hz
        tiled = np.resize(speech, int(places[-1]) + 2).astype(np.float32)
        base = np.interp(places, np.arange(len(tiled)), tiled).astype(np.int16)
    different = []
    for number in range(100):
        copy = base.copy()
        copy[:8] = [(number >> bit) & 1 for bit in range(8)]  # nobody hears it, every checksum sees it
        different.append(copy.tobytes())
    return different


@dataclass
class GrpcOptions:
    """Say how to call `Recognize`.

    Args:
        address: of the server.
        channels: channels that all requests share; 0 opens one for each request.
        audio_format: of the sounds.
        language: of the requests; empty lets the server tell.
        single_window: give the sound to the engine as it is, without a search for speech.
        timeout_s: deadline of a request.
        key: sent as `authorization: Bearer KEY` where it is not empty.
    """

    address: str
    channels: int = 1
    audio_format: str = "pcm_s16le_16k"
    language: str = "en"
    single_window: bool = False
    timeout_s: float = 10.0
    key: str = ""


class GrpcClient:
    """Call `VoiceEngine.Recognize`."""

    def __init__(self, options: GrpcOptions, payloads: list[bytes]) -> None:
        check_loopback(options.address)
        self._options = options
        self._requests = [
            pb.RecognizeRequest(
                audio_data=payload,
                audio_format=options.audio_format,
                language=options.language,
                single_window=options.single_window,
            )
            for payload in payloads
        ]
        self._metadata = (("authorization", f"Bearer {options.key}"),) if options.key else None
        self._channels: list[grpc.aio.Channel] = []

    async def __aenter__(self) -> Self:
        self._channels = [self._channel() for _ in range(self._options.channels)]
        for channel in self._channels:
            await asyncio.wait_for(channel.channel_ready(), 10)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for channel in self._channels:
            await channel.close()

    async def send(self, number: int) -> str:
        """Send one request on a shared channel, or on one of its own."""
        if self._channels:
            return await self._call(self._channels[number % len(self._channels)], number)
        async with self._channel() as channel:
            return await self._call(channel, number)

    async def _call(self, channel: grpc.aio.Channel, number: int) -> str:
        """Call and return the status."""
        request = self._requests[number % len(self._requests)]
        try:
            answer = await VoiceEngineStub(channel).Recognize(
                request, timeout=self._options.timeout_s, metadata=self._metadata
            )
        except grpc.aio.AioRpcError as error:
            return error.code().name
        length_s = len(request.audio_data) / 2 / int(_rate_of(self._options.audio_format))
        return "OK" if abs(answer.duration - length_s) < 0.01 else WRONG  # noqa: PLR2004 - a hundredth of a second

    def _channel(self) -> grpc.aio.Channel:
        """Open a channel with a connection of its own: by default all channels to one address would share one."""
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_send_message_length", MESSAGE_BYTES),
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ]
        return grpc.aio.insecure_channel(self._options.address, options=options)


def _rate_of(audio_format: str) -> float:
    """Return the rate in Hz of `pcm_s16le_16k` or `pcm_s16le_44100`."""
    text = audio_format.split("_")[2]
    return float(text.removesuffix("k")) * (1000 if text.endswith("k") else 1)


@dataclass
class RestOptions:
    """Say how to post.

    Args:
        url: of the endpoint.
        keep_alive: share connections; else each request opens one.
        content_type: of the body.
        timeout_s: of a request.
        key: sent as `Authorization: Bearer KEY` where it is not empty.
    """

    url: str
    keep_alive: bool = True
    content_type: str = "application/octet-stream"
    timeout_s: float = 10.0
    key: str = ""


class RestClient:
    """Post each sound as a raw body; any 2xx is OK."""

    def __init__(self, options: RestOptions, payloads: list[bytes]) -> None:
        check_loopback(options.url)
        self._options = options
        self._payloads = payloads
        self._headers = {"content-type": options.content_type}
        if options.key:
            self._headers["authorization"] = f"Bearer {options.key}"
        self._shared: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        self._shared = self._client()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._shared is not None:
            await self._shared.aclose()

    async def send(self, number: int) -> str:
        """Post one sound."""
        import httpx

        if self._shared is None:
            raise RuntimeError("the client is not open")
        payload = self._payloads[number % len(self._payloads)]
        try:
            answer = await self._shared.post(self._options.url, content=payload, headers=self._headers)
        except httpx.HTTPError as error:
            return type(error).__name__
        return "OK" if answer.is_success else str(answer.status_code)

    def _client(self) -> "httpx.AsyncClient":
        """Return a client that goes through no proxy."""
        import httpx

        kept = 100 if self._options.keep_alive else 0
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=kept)
        return httpx.AsyncClient(timeout=self._options.timeout_s, limits=limits, trust_env=False)
