"""Call a voice engine: `VoiceClient` from threads, `AsyncVoiceClient` from any event loop, over one pool of channels.

Both use channels of the kind that belongs to no event loop. A channel of grpc.aio dies with the loop in which it was
made, which a program that runs each request in a loop of its own (ComfyUI does) notices at its second request.
"""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Self, cast

import grpc

from voicejobs.audio.types import WindowResult
from voicejobs.errors import EngineUnavailable, VoicejobsError
from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.proto.voice_engine_pb2_grpc import VoiceEngineStub
from voicejobs.rpc.channels import ChannelPool, Lease, PoolLimits, Target
from voicejobs.rpc.faults import TRACE_KEY, error_of
from voicejobs.rpc.values import options_message, result_of

__all__ = (
    "AsyncVoiceClient", "ChannelPool", "PoolLimits", "Target", "VoiceClient", "WindowResult", "options_message", "pb",
    "result_of",
)  # fmt: skip

DEFAULT_TIMEOUT_S = 60.0
_END = object()


class _Caller:
    """Hold what both clients share.

    Args:
        target: the server.
        pool: channels to take; None for a pool of its own, which `close` closes.
        timeout_s: deadline of a call that names none, in seconds.
        retries: how often a call is made again when the server cannot be reached; never once an answer has begun.
    """

    def __init__(
        self,
        target: Target,
        *,
        pool: ChannelPool | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        retries: int = 1,
    ) -> None:
        self.target = target
        self._pool = ChannelPool() if pool is None else pool
        self._owns_pool = pool is None
        self._timeout_s = timeout_s
        self._retries = retries

    def close(self) -> None:
        """Close the channels, unless the pool is another's."""
        if self._owns_pool:
            self._pool.close()

    def _metadata(self, trace_id: str) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a call."""
        key = (("authorization", f"Bearer {self.target.key}"),) if self.target.key else ()
        return (*key, *(((TRACE_KEY, trace_id),) if trace_id else ()))

    def _deadline(self, timeout_s: float | None) -> float:
        """Return when a call must have ended, on the monotonic clock."""
        return time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)

    def _failure(self, error: grpc.RpcError, lease: Lease) -> VoicejobsError:
        """Return the error of our tree for a call that failed; a channel that leads nowhere is replaced."""
        call = cast("grpc.Call", error)
        found = error_of(call.code(), call.details() or "", call.trailing_metadata() or (), self.target.address)
        lease.give_back(broken=isinstance(found, EngineUnavailable))
        return found


def recognize_request(
    audio: bytes,
    audio_format: str,
    *,
    language: str = "",
    options: pb.RecognitionOptions | None = None,
    single_window: bool = False,
    language_only: bool = False,
) -> pb.RecognizeRequest:
    """Return a request for recognition; docs/voice-engine.md explains its fields."""
    return pb.RecognizeRequest(
        audio_data=audio,
        audio_format=audio_format,
        language=language,
        options=options,
        single_window=single_window,
        language_only=language_only,
    )


class VoiceClient(_Caller):
    """Call a voice engine from threads; use as a context manager, or call `close`.

    Every method raises what the server raised, as an error of our tree, and besides:

    * `EngineUnavailable`: the server cannot be reached, or broke off.
    * `DeadlinePassed`: no answer in time. `QueueFull`: the server is busy; `retry_after_ms` in the details.
    * `AccessDenied`: it wants a key. `MessageTooLarge`: the audio passes a limit.
    """

    def recognise(
        self,
        audio: bytes,
        audio_format: str,
        *,
        timeout_s: float | None = None,
        trace_id: str = "",
        **fields: Any,
    ) -> pb.RecognizeResponse:
        """Turn a recording into text; `fields` as in `recognize_request`."""
        request = recognize_request(audio, audio_format, **fields)
        return cast("pb.RecognizeResponse", self._unary("Recognize", request, timeout_s, trace_id))

    def synthesise(
        self, request: pb.SynthesizeRequest, *, timeout_s: float | None = None, trace_id: str = ""
    ) -> pb.SynthesizeResponse:
        """Turn text into sound."""
        return cast("pb.SynthesizeResponse", self._unary("Synthesize", request, timeout_s, trace_id))

    def synthesise_stream(
        self, request: pb.SynthesizeRequest, *, timeout_s: float | None = None, trace_id: str = ""
    ) -> Generator[pb.SynthesizeStreamResponse, None, None]:
        """Turn text into sound, part by part; leaving the iteration cancels the call."""
        deadline = self._deadline(timeout_s)
        attempt = 0
        while True:
            begun = False
            try:
                for part in self._streamed("SynthesizeStream", request, deadline, trace_id):
                    begun = True
                    yield part
            except EngineUnavailable:
                if begun or attempt >= self._retries:
                    raise
                attempt += 1
            else:
                return

    def stream(
        self, config: pb.StreamingConfig, audio: Iterable[bytes], *, timeout_s: float | None = None, trace_id: str = ""
    ) -> Generator[pb.StreamingRecognizeResponse, None, None]:
        """Turn sound into text while it comes; leaving the iteration cancels the call.

        Args:
            config: what comes.
            audio: pieces of any size; read in a thread of gRPC's.
            timeout_s: deadline of the whole stream.
            trace_id: id under which the server logs it.
        """

        def requests() -> Iterator[pb.StreamingRecognizeRequest]:
            yield pb.StreamingRecognizeRequest(config=config)
            for piece in audio:
                yield pb.StreamingRecognizeRequest(audio=piece)

        yield from self._streamed("StreamingRecognize", requests(), self._deadline(timeout_s), trace_id)

    def voices(self, language: str = "", *, timeout_s: float | None = None) -> list[pb.VoiceInfo]:
        """Return the voices, the default first."""
        request = pb.ListVoicesRequest(language=language)
        return list(cast("pb.ListVoicesResponse", self._unary("ListVoices", request, timeout_s, "")).voices)

    def info(self, *, timeout_s: float | None = None) -> pb.GetInfoResponse:
        """Return what the server is, and how busy."""
        return cast("pb.GetInfoResponse", self._unary("GetInfo", pb.GetInfoRequest(), timeout_s, ""))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _unary(self, method: str, request: Any, timeout_s: float | None, trace_id: str) -> Any:
        """Call a method with one answer."""
        deadline = self._deadline(timeout_s)
        for attempt in range(self._retries + 1):
            with self._pool.borrow(self.target) as lease:
                call = getattr(VoiceEngineStub(lease.channel), method)
                try:
                    return call(request, timeout=deadline - time.monotonic(), metadata=self._metadata(trace_id))
                except grpc.RpcError as raised:
                    error = self._failure(raised, lease)
                    if attempt == self._retries or not isinstance(error, EngineUnavailable):
                        raise error from raised
        raise AssertionError  # the loop returns or raises

    def _streamed(self, method: str, request: Any, deadline: float, trace_id: str) -> Generator[Any, None, None]:
        """Call a method with many answers, and give them as they come."""
        with self._pool.borrow(self.target) as lease:
            call = getattr(VoiceEngineStub(lease.channel), method)(
                request, timeout=deadline - time.monotonic(), metadata=self._metadata(trace_id)
            )
            try:
                yield from call
            except grpc.RpcError as raised:
                raise self._failure(raised, lease) from raised
            finally:
                call.cancel()


class AsyncVoiceClient(_Caller):
    """Call a voice engine from coroutines, of one event loop after another or of several at once; as `VoiceClient`.

    Cancelling a coroutine cancels its call, which the server notices at once.
    """

    async def recognise(
        self,
        audio: bytes,
        audio_format: str,
        *,
        timeout_s: float | None = None,
        trace_id: str = "",
        **fields: Any,
    ) -> pb.RecognizeResponse:
        """Turn a recording into text; `fields` as in `recognize_request`."""
        request = recognize_request(audio, audio_format, **fields)
        return cast("pb.RecognizeResponse", await self._unary("Recognize", request, timeout_s, trace_id))

    async def synthesise(
        self, request: pb.SynthesizeRequest, *, timeout_s: float | None = None, trace_id: str = ""
    ) -> pb.SynthesizeResponse:
        """Turn text into sound."""
        return cast("pb.SynthesizeResponse", await self._unary("Synthesize", request, timeout_s, trace_id))

    async def synthesise_stream(
        self, request: pb.SynthesizeRequest, *, timeout_s: float | None = None, trace_id: str = ""
    ) -> AsyncGenerator[pb.SynthesizeStreamResponse, None]:
        """Turn text into sound, part by part."""
        deadline = self._deadline(timeout_s)
        attempt = 0
        while True:
            begun = False
            try:
                async for part in self._streamed("SynthesizeStream", lambda: request, deadline, trace_id):
                    begun = True
                    yield part
            except EngineUnavailable:
                if begun or attempt >= self._retries:
                    raise
                attempt += 1
            else:
                return

    async def stream(
        self,
        config: pb.StreamingConfig,
        audio: AsyncIterator[bytes],
        *,
        timeout_s: float | None = None,
        trace_id: str = "",
    ) -> AsyncGenerator[pb.StreamingRecognizeResponse, None]:
        """Turn sound into text while it comes; see `VoiceClient.stream`."""
        outgoing = _Outgoing(asyncio.get_running_loop(), config, audio)
        try:
            deadline = self._deadline(timeout_s)
            async for told in self._streamed("StreamingRecognize", outgoing.requests, deadline, trace_id):
                yield told
        finally:
            outgoing.stop()

    async def voices(self, language: str = "", *, timeout_s: float | None = None) -> list[pb.VoiceInfo]:
        """Return the voices, the default first."""
        request = pb.ListVoicesRequest(language=language)
        return list(cast("pb.ListVoicesResponse", await self._unary("ListVoices", request, timeout_s, "")).voices)

    async def info(self, *, timeout_s: float | None = None) -> pb.GetInfoResponse:
        """Return what the server is, and how busy."""
        return cast("pb.GetInfoResponse", await self._unary("GetInfo", pb.GetInfoRequest(), timeout_s, ""))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        self.close()

    async def _lease(self) -> Lease:
        """Borrow a channel without holding up the loop."""
        lease = self._pool.take_now(self.target)
        return await asyncio.to_thread(self._pool.take, self.target) if lease is None else lease

    async def _unary(self, method: str, request: Any, timeout_s: float | None, trace_id: str) -> Any:
        """Call a method with one answer."""
        deadline = self._deadline(timeout_s)
        for attempt in range(self._retries + 1):
            lease = await self._lease()
            try:
                call = getattr(VoiceEngineStub(lease.channel), method).future(
                    request, timeout=deadline - time.monotonic(), metadata=self._metadata(trace_id)
                )
                await _done(call)
                return call.result()
            except grpc.RpcError as raised:
                error = self._failure(raised, lease)
                if attempt == self._retries or not isinstance(error, EngineUnavailable):
                    raise error from raised
            finally:
                lease.give_back()
        raise AssertionError  # the loop returns or raises

    async def _streamed(
        self, method: str, request: Callable[[], Any], deadline: float, trace_id: str
    ) -> AsyncGenerator[Any, None]:
        """Call a method with many answers; a thread of its own waits for each."""
        lease = await self._lease()
        waiter = ThreadPoolExecutor(1, "rpc-stream")
        call: Any = None
        try:
            call = getattr(VoiceEngineStub(lease.channel), method)(
                request(), timeout=deadline - time.monotonic(), metadata=self._metadata(trace_id)
            )
            loop = asyncio.get_running_loop()
            while (told := await loop.run_in_executor(waiter, next, call, _END)) is not _END:
                yield told
        except grpc.RpcError as raised:
            raise self._failure(raised, lease) from raised
        finally:
            if call is not None:
                call.cancel()
            waiter.shutdown(wait=False)
            lease.give_back()


async def _done(call: Any) -> None:
    """Wait until a call of a channel of threads has ended; whoever cancels the waiting cancels the call."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def tell(_: Any) -> None:
        with suppress(RuntimeError):  # the loop has closed: nobody waits
            loop.call_soon_threadsafe(ended.set)

    call.add_done_callback(tell)
    try:
        await ended.wait()
    except asyncio.CancelledError:
        call.cancel()
        raise


class _Outgoing:
    """Give the pieces of an asynchronous iterator to the thread of gRPC that sends them."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, config: pb.StreamingConfig, audio: AsyncIterator[bytes]
    ) -> None:
        self._loop = loop
        self._config = config
        self._audio = aiter(audio)
        self._stopped = threading.Event()
        self._pending: Any = None

    def requests(self) -> Iterator[pb.StreamingRecognizeRequest]:
        """Give the requests; ends early once `stop` was called."""
        yield pb.StreamingRecognizeRequest(config=self._config)
        while not self._stopped.is_set():
            self._pending = asyncio.run_coroutine_threadsafe(self._next(), self._loop)
            try:
                piece = self._pending.result()
            except BaseException:
                if self._stopped.is_set():
                    return
                raise
            if piece is None:
                return
            yield pb.StreamingRecognizeRequest(audio=piece)

    def stop(self) -> None:
        """Give no more; called in the loop."""
        self._stopped.set()
        if self._pending is not None:
            self._pending.cancel()

    async def _next(self) -> bytes | None:
        """Return the next piece, None after the last."""
        try:
            return await anext(self._audio)
        except StopAsyncIteration:
            return None
