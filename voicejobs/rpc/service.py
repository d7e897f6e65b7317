"""The methods of the voice engine: admit, work, answer; say what went wrong as status and metadata; log each call."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from uuid import uuid4

from voicejobs import __version__, logs, spans
from voicejobs.errors import Cancelled, Internal, VoicejobsError
from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.proto.voice_engine_pb2_grpc import VoiceEngineServicer
from voicejobs.rpc import audio_formats, speech_formats
from voicejobs.rpc.access import Keys, key_in
from voicejobs.rpc.admission import Admission, Asked
from voicejobs.rpc.engines import Engines, Served
from voicejobs.rpc.faults import TRACE_KEY, metadata_of, status_of
from voicejobs.rpc.recognition import Recognition
from voicejobs.rpc.streams import Streams
from voicejobs.rpc.synthesis import Synthesis

T = TypeVar("T")
_LOOK_S = 0.25
_TRACE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_log = logging.getLogger(__name__)


class VoiceEngine(VoiceEngineServicer):
    """Serve the voice engine.

    Args:
        engines: what does the work.
        admission: who may work.
        keys: whose names stand in the log.
    """

    def __init__(self, engines: Engines, admission: Admission, keys: Keys) -> None:
        self._engines = engines
        self._admission = admission
        self._keys = keys
        self._recognition = Recognition(engines)
        self._synthesis = Synthesis(engines)
        self.streams = Streams(engines, admission.limits.streams)

    def close(self) -> None:
        """End the threads."""
        self.streams.close()
        self._admission.close()

    async def Recognize(self, request: pb.RecognizeRequest, context: Any) -> pb.RecognizeResponse:  # noqa: N802
        """Turn a recording into text."""

        async def call() -> pb.RecognizeResponse:
            self._recognition.check(request)
            return await self._admission.run(
                lambda cancelled: self._recognition.answer(request, cancelled),
                size_bytes=request.ByteSize(),
                remaining_s=context.time_remaining(),
            )

        return await self._told(context, "Recognize", call)

    async def StreamingRecognize(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.StreamingRecognizeRequest], context: Any
    ) -> None:
        """Turn sound into text while it comes."""

        def serve() -> Awaitable[None]:
            self._admission.demand_memory()
            return self.streams.serve(aiter(request_iterator), context.write)

        await self._told(context, "StreamingRecognize", serve)

    async def Synthesize(self, request: pb.SynthesizeRequest, context: Any) -> pb.SynthesizeResponse:  # noqa: N802
        """Turn text into sound."""

        async def call() -> pb.SynthesizeResponse:
            self._synthesis.check(request)
            return await self._admission.run(
                lambda cancelled: self._synthesis.answer(request, cancelled),
                size_bytes=request.ByteSize(),
                remaining_s=context.time_remaining(),
            )

        return await self._told(context, "Synthesize", call)

    async def SynthesizeStream(self, request: pb.SynthesizeRequest, context: Any) -> None:  # noqa: N802
        """Turn text into sound, piece by piece."""

        async def call() -> None:
            self._synthesis.check(request)
            loop = asyncio.get_running_loop()

            def work(cancelled: Asked) -> None:
                for part in self._synthesis.parts(request, cancelled):
                    _hand_over(context.write(part), loop, cancelled)

            await self._admission.run(
                work,
                size_bytes=request.ByteSize(),
                remaining_s=context.time_remaining(),
            )

        await self._told(context, "SynthesizeStream", call)

    async def ListVoices(self, request: pb.ListVoicesRequest, context: Any) -> pb.ListVoicesResponse:  # noqa: N802
        """Tell which voices there are."""

        async def call() -> pb.ListVoicesResponse:
            voices = await asyncio.to_thread(self._synthesis.voices, request.language)
            return pb.ListVoicesResponse(voices=voices)

        return await self._told(context, "ListVoices", call)

    async def GetInfo(self, request: pb.GetInfoRequest, context: Any) -> pb.GetInfoResponse:  # noqa: N802
        """Tell what this server is, and how busy."""
        engines = {one.facts.kind: one for one in reversed(self._engines.all())}
        recogniser, synthesiser = engines.get("recogniser"), engines.get("synthesiser")
        return pb.GetInfoResponse(
            version=__version__,
            recogniser=None if recogniser is None else _engine_info(recogniser),
            synthesiser=None if synthesiser is None else _engine_info(synthesiser),
            audio_formats=audio_formats.ACCEPTED.split(", ") if recogniser is not None else [],
            speech_formats=speech_formats.NAMES if synthesiser is not None else [],
            max_message_bytes=self._engines.settings.rpc_max_message_bytes,
            load=self._load(),
        )

    def _load(self) -> pb.Load:
        """Return how busy the server is."""
        limits, counts = self._admission.limits, self._admission.counts
        return pb.Load(
            working=self._admission.working,
            waiting=self._admission.waiting,
            streams=self.streams.open,
            slots=limits.slots,
            queue_length=limits.queue_length,
            max_streams=limits.streams,
            most_waiting=counts.most_waiting,
            accepted=counts.accepted,
            refused=counts.refused,
            expired=counts.expired,
            cancelled=counts.cancelled,
            failed=counts.failed,
        )

    async def _told(self, context: Any, method: str, call: Callable[[], Awaitable[T]]) -> T:
        """Run a call under its trace id, end it with a status where it fails, and log how it went."""
        metadata = context.invocation_metadata() or ()
        trace_id = _trace_id(metadata)
        with logs.bind(trace_id=trace_id, method=method), spans.span(method, trace_id) as span:
            since = time.monotonic()
            error: VoicejobsError | None = None
            code = "cancelled"
            try:
                answer = await call()
                context.set_trailing_metadata(((TRACE_KEY, trace_id),))
                code = "ok"
                return answer
            except VoicejobsError as raised:
                error = raised
            except Exception as raised:  # noqa: BLE001 - the caller must hear of it, and the server go on
                _log.exception("a call failed in an unforeseen way")
                error = Internal(f"{type(raised).__name__} in the server", hint="The log of the server has more.")
            finally:
                if error is not None:
                    code = error.code
                    span.fail(code)
                seconds = time.monotonic() - since
                self._admission.counts.ended(method, code, seconds)
                self._note(code, seconds, metadata)
            if isinstance(error, Internal):
                self._admission.counts.failed += 1
            await context.abort(status_of(error), error.message, metadata_of(error, trace_id))
            raise error  # abort has raised already

    def _note(self, code: str, seconds: float, metadata: Any) -> None:
        """Log one call."""
        name = self._keys.name_of(key_in(metadata)) if self._keys else None
        told = {"code": code, "seconds": round(seconds, 4)} | ({"key": name} if name else {})
        _log.info("call", extra=told)


def _hand_over(writing: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, cancelled: Asked) -> None:
    """Send a part from a thread, and wait until it is on its way: a slow client slows the work, and fills no memory."""
    sent = asyncio.run_coroutine_threadsafe(writing, loop)
    while not cancelled():
        try:
            sent.result(_LOOK_S)
        except TimeoutError:
            continue
        return
    sent.cancel()
    raise Cancelled("the caller has gone")


def _trace_id(metadata: Any) -> str:
    """Return the trace id of a call: `x-trace-id`, or that of `traceparent`, or a new one."""
    sent = {str(key): str(value) for key, value in metadata}
    if _TRACE.fullmatch(sent.get(TRACE_KEY, "")):
        return sent[TRACE_KEY]
    parent = _PARENT.fullmatch(sent.get("traceparent", ""))
    return parent[1] if parent else uuid4().hex


def _engine_info(served: Served) -> pb.EngineInfo:
    """Describe an engine."""
    return pb.EngineInfo(
        engine=served.spec.engine,
        model=served.spec.model,
        device=served.spec.device,
        processes=served.processes,
        max_batch=served.facts.max_batch,
    )
