"""Streams of recognition: the configuration first, then sound in and results out until the client closes its side."""

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from voicejobs.errors import BadAudioFormat, BadOption, QueueFull
from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.rpc import audio_formats
from voicejobs.rpc.audio_formats import PcmReader
from voicejobs.rpc.engines import Engines, Served
from voicejobs.rpc.recognition import wanted_options
from voicejobs.rpc.values import time_below, word_message
from voicejobs.streaming.events import End, Result
from voicejobs.streaming.options import StreamOptions
from voicejobs.streaming.recogniser import StreamingRecogniser

T = TypeVar("T")
RETRY_MS = 2000
_DECODES_PER_PLACE = 2


@dataclass(slots=True)
class _Wake:
    """Wake the loop from any thread."""

    loop: asyncio.AbstractEventLoop
    event: asyncio.Event

    def __call__(self) -> None:
        """Say that there is something to take; a loop that has ended needs no telling."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.event.set)


class Streams:
    """Serve streams of recognition, up to a number at once.

    Args:
        engines: the recogniser, the one that revises, and the detector.
        most: streams that may be open.
    """

    def __init__(self, engines: Engines, most: int) -> None:
        self._engines = engines
        self.most = most
        self.open = 0
        places = max([one.places for one in engines.all()], default=1)
        self._ears = ThreadPoolExecutor(max(1, most), "rpc-ears")
        self._decodes = ThreadPoolExecutor(max(1, min(most, _DECODES_PER_PLACE * places)) * 2, "rpc-decodes")

    def close(self) -> None:
        """End the threads."""
        self._ears.shutdown(wait=False, cancel_futures=True)
        self._decodes.shutdown(wait=False, cancel_futures=True)

    async def serve(
        self,
        requests: AsyncIterator[pb.StreamingRecognizeRequest],
        send: Callable[[pb.StreamingRecognizeResponse], Awaitable[Any]],
    ) -> None:
        """Serve one stream to its end.

        Raises:
            QueueFull: as many streams as may be are open.
            BadOption: the first message is no configuration, or a later one is.
            BadAudioFormat: the format is unknown, a file, or the sound ends inside a sample.
            VoicejobsError: what the engine raised.
        """
        if self.open >= self.most:
            raise QueueFull(f"{self.open} streams are open, as many as may be", retry_after_ms=RETRY_MS)
        self.open += 1
        try:
            await self._serve(requests, send)
        finally:
            self.open -= 1

    async def _serve(
        self,
        requests: AsyncIterator[pb.StreamingRecognizeRequest],
        send: Callable[[pb.StreamingRecognizeResponse], Awaitable[Any]],
    ) -> None:
        """Take the configuration, then let sound in and results out."""
        config = await _configuration(requests)
        reader = PcmReader(_raw(config.audio_format))
        wake = _Wake(asyncio.get_running_loop(), asyncio.Event())
        stream = self._recogniser(config, wake)
        feeder = asyncio.create_task(self._feed(requests, reader, stream, wake))
        try:
            await _give(stream, feeder, wake.event, send, words=_wants_words(config))
        finally:
            stream.close()
            feeder.cancel()
            await asyncio.wait({feeder})
            if not feeder.cancelled():
                feeder.exception()  # what was wrong has been raised, or nobody is there to hear it

    def _recogniser(self, config: pb.StreamingConfig, wake: Callable[[], None]) -> StreamingRecogniser:
        """Return a recogniser for one stream."""
        engines, served = self._engines, self._engines.recogniser
        second = engines.reviser if _wants_revision(config) else None
        options = stream_options(served, second, config)

        def cancelled() -> bool:
            return stream.closed

        host = engines.host
        stream = StreamingRecogniser(
            host.recogniser(served.spec, lane="interactive", cancelled=cancelled),
            host.vad(engines.detector),
            options,
            second=None if second is None else host.recogniser(second.spec, cancelled=cancelled),
            executor=self._decodes,
            on_event=wake,
        )
        return stream

    async def _feed(
        self,
        requests: AsyncIterator[pb.StreamingRecognizeRequest],
        reader: PcmReader,
        stream: StreamingRecogniser,
        wake: _Wake,
    ) -> None:
        """Take the sound; while too much waits, none is read, which slows the client down."""
        try:
            async for message in requests:
                if message.WhichOneof("request") != "audio":
                    raise BadOption("a message of the stream after the first holds no audio")
                await self._in_thread(_hear, stream, reader, message.audio)
            await self._in_thread(_end, stream, reader)
        finally:
            wake.event.set()

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run something that may block beside the loop."""
        bound = contextvars.copy_context()  # with the trace id, for what is logged there
        return await asyncio.get_running_loop().run_in_executor(self._ears, bound.run, work, *arguments)


def _hear(stream: StreamingRecogniser, reader: PcmReader, data: bytes) -> None:
    """Feed bytes to a stream."""
    pcm = reader.feed(data)
    if pcm.size:
        stream.feed(pcm)


def _end(stream: StreamingRecogniser, reader: PcmReader) -> None:
    """Feed what the resampler holds, and say that no more comes."""
    pcm = reader.finish()
    if pcm.size:
        stream.feed(pcm)
    stream.finish()


async def _configuration(requests: AsyncIterator[pb.StreamingRecognizeRequest]) -> pb.StreamingConfig:
    """Return the first message of a stream."""
    async for message in requests:
        if message.WhichOneof("request") == "config":
            return message.config
        break
    raise BadOption("the first message of a stream is its configuration", hint="Send config, then audio.")


def _raw(text: str) -> audio_formats.AudioFormat:
    """Return the format of a stream, which has no header."""
    sound = audio_formats.parse(text)
    if not sound.is_raw:
        raise BadAudioFormat(
            f"audio_format {text!r}: a stream is raw; accepted: pcm_{{s16le,f32le,mulaw,alaw}}_RATE[_Nch]"
        )
    return sound


async def _give(
    stream: StreamingRecogniser,
    feeder: "asyncio.Task[None]",
    event: asyncio.Event,
    send: Callable[[pb.StreamingRecognizeResponse], Awaitable[Any]],
    *,
    words: bool,
) -> None:
    """Send results as they come, until the last."""
    while True:
        await event.wait()
        event.clear()
        while (told := stream.next_event(0.0)) is not None:
            if isinstance(told, End):
                return
            if isinstance(told, Result):
                await send(_response(told, words=words))
        if feeder.done():
            feeder.result()  # raises what was wrong with the sound


def _response(told: Result, *, words: bool) -> pb.StreamingRecognizeResponse:
    """Return the message for a result."""
    return pb.StreamingRecognizeResponse(
        segment_id=told.segment_id,
        text=told.text,
        words=[word_message(word, told.heard_s) for word in told.words] if words else [],
        is_final=told.kind != "partial",
        stability=told.stability,
        revised=told.kind == "revised",
        start_time=time_below(told.start_s, told.heard_s),
        end_time=told.heard_s,
        language=told.language or "",
        stable_words=told.stable_words,
    )


def _wants_words(config: pb.StreamingConfig) -> bool:
    """Tell whether results hold words."""
    return config.options.word_times if config.options.HasField("word_times") else True


def _wants_revision(config: pb.StreamingConfig) -> bool:
    """Tell whether final results may be revised."""
    return config.revise if config.HasField("revise") else True


def stream_options(served: Served, second: Served | None, config: pb.StreamingConfig) -> StreamOptions:
    """Return how a stream is recognised.

    Raises:
        BadOption: a value is out of its range, or the language is none.
    """
    wanted = wanted_options(served, config.language, config.options)
    options = StreamOptions(
        recognise=wanted,
        revise=None if second is None else wanted_options(second, config.language, config.options),
        together=_wants_revision(config),
        partials=config.interim_results if config.HasField("interim_results") else True,
        doubt=served.facts.doubt,
        revise_doubt=True if second is None else second.facts.doubt,
    )
    if config.HasField("end_silence"):
        options = replace(options, end_silence_s=round(config.end_silence, 3))
    if config.HasField("partial_every"):
        options = replace(options, partial_every_s=round(config.partial_every, 3))
    return options
