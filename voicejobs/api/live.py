"""Live captions for browsers: a WebSocket that takes sound and gives text while it comes.

Nothing is recognised here: the voice engine of the installation does that, and this is its client. One stream of gRPC
stands behind each socket, so that both give the same text for the same sound.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import cache
from typing import Any, Literal

from fastapi import APIRouter, WebSocket
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect, WebSocketState

from voicejobs.api.access import Caller, Need, admit, is_admitted_still, key_in, public
from voicejobs.api.context import Context, context_of, trace_id_of
from voicejobs.api.problems import problem, status_of
from voicejobs.errors import (
    AccessDenied,
    BadOption,
    DeadlinePassed,
    Internal,
    KeyNeeded,
    NotServed,
    QueueFull,
    RateLimited,
    Transient,
    VoicejobsError,
)
from voicejobs.rpc.client import AsyncVoiceClient, Target, pb
from voicejobs.settings import Settings

router = APIRouter(tags=["live captions"])
SCOPE = "jobs:write"
PROTOCOL = "voicejobs.live"
"""The protocol that is agreed on where a browser offers it beside its key."""
FIRST_MESSAGE_S = 10.0
MOST_STRANGERS = 64
"""Sockets that may wait for their first message, and with it for their key, at once."""
LONGEST_TEXT = 16 * 1024
SERVER_ERROR = 500
_NORMAL, _POLICY, _INVALID, _FAILED, _LATER = 1000, 1008, 1007, 1011, 1013


class Start(BaseModel):
    """Be the first message: what comes, and what is wanted of it."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["start"]
    key: str = Field(default="", max_length=256, description="API key, where no header could carry it.")
    audio_format: str = Field(default="pcm_s16le_16k", max_length=64)
    language: str = Field(default="", max_length=32)
    interim_results: bool = True
    revise: bool = True
    word_times: bool = True
    vad_filter: bool = True
    prompt: str = Field(default="", max_length=4096)
    hotwords: str = Field(default="", max_length=4096)
    end_silence: float | None = Field(default=None, ge=0, le=60)
    partial_every: float | None = Field(default=None, ge=0, le=60)

    def to_config(self) -> pb.StreamingConfig:
        """Return the same for the voice engine."""
        options = pb.RecognitionOptions(
            word_times=self.word_times, initial_prompt=self.prompt, hotwords=self.hotwords, vad_filter=self.vad_filter
        )
        return pb.StreamingConfig(
            audio_format=self.audio_format,
            language=self.language,
            interim_results=self.interim_results,
            revise=self.revise,
            options=options,
            end_silence=self.end_silence,
            partial_every=self.partial_every,
        )


class Places:
    """Count the sockets of a process: those with captions by key, and those of which it is not known yet who asks.

    Used on the event loop alone.
    """

    def __init__(self) -> None:
        self.strangers = 0
        self._open: Counter[str] = Counter()

    def enter(self, name: str, *, most: int, most_of_one: int) -> None:
        """Count one more socket with captions; whoever calls this calls `leave` too.

        Raises:
            RateLimited: the key has as many as it may; 0 is no limit.
            QueueFull: there are as many as may be.
        """
        if 0 < most_of_one <= self._open[name]:
            raise RateLimited(f"{most_of_one} live captions are open for this key, as many as may be", retry_after_s=2)
        if self._open.total() >= most:
            raise QueueFull(f"{most} live captions are open, as many as may be", retry_after_s=2)
        self._open[name] += 1

    def leave(self, name: str) -> None:
        """Count one less."""
        self._open[name] -= 1
        if not self._open[name]:
            del self._open[name]


_places = Places()


@router.websocket("/api/v1/live", dependencies=[public()])
async def live(socket: WebSocket) -> None:
    """Serve one socket: `start` as JSON, then sound as binary messages, then `end`; results come as JSON.

    The key stands in a header, in the protocols that are offered (`voicejobs.key.KEY`), or in the first message.
    """
    offered = socket.scope.get("subprotocols", ())
    await socket.accept(subprotocol=PROTOCOL if PROTOCOL in offered else None)
    try:
        await _serve(socket, context_of(socket))
    except VoicejobsError as error:
        await _refuse(socket, error)
    except WebSocketDisconnect:
        pass


async def _serve(socket: WebSocket, context: Context) -> None:
    """Take the configuration, then let sound in and results out.

    Raises:
        VoicejobsError: the caller may not, the first message is none, or what the engine raised.
        WebSocketDisconnect: the browser has left.
    """
    start = await _admitted(socket)
    if not context.settings.api_engine_url:
        raise NotServed(
            "This service has no voice engine for live captions",
            hint="Start one (`voicejobs serve engine`), and name it with VOICEJOBS_API_ENGINE_URL.",
        )
    caller: Caller = socket.scope["voicejobs.caller"]
    settings = context.settings
    _places.enter(caller.gauge_name, most=settings.api_live_streams, most_of_one=settings.api_live_key_streams)
    try:
        await socket.send_text('{"type": "started"}')
        await _pass_on(socket, context, start)
    finally:
        _places.leave(caller.gauge_name)


async def _admitted(socket: WebSocket) -> Start:
    """Let a caller in, before its first message where the key is known by then, and return that message.

    Raises:
        VoicejobsError: the caller may not, there are too many, or the first message is none.
    """
    if key_in(socket):
        await _admit(socket, "")
        return await _first_message(socket)
    if _places.strangers >= MOST_STRANGERS:
        raise QueueFull(f"{MOST_STRANGERS} sockets have not said yet who they are", retry_after_s=2)
    _places.strangers += 1
    try:
        start = await _first_message(socket)
    finally:
        _places.strangers -= 1
    await _admit(socket, start.key)
    return start


async def _pass_on(socket: WebSocket, context: Context, start: Start) -> None:
    """Give the sound of a socket to the engine, and its results to the socket."""
    client = _client(context.settings.api_engine_url, context.settings.api_engine_key)
    sound = _Sound(socket, context)
    results = client.stream(
        start.to_config(), sound.pieces(), timeout_s=context.settings.api_live_s, trace_id=trace_id_of(socket)
    )
    try:
        async for told in results:
            if sound.is_gone:
                return
            await socket.send_text(json.dumps(result_of(told), ensure_ascii=False))
    finally:
        await results.aclose()
    if sound.fault is not None:
        raise sound.fault
    if not sound.is_gone:
        await socket.send_text('{"type": "done"}')
        await socket.close(_NORMAL)


@cache
def _client(url: str, key: str) -> AsyncVoiceClient:
    """Return the client of the engine, with channels that all sockets share."""
    return AsyncVoiceClient(Target.of_url(url, key=key))


def check_engine(settings: Settings) -> None:
    """Read the address of the engine.

    Raises:
        BadOption: it is none.
    """
    if settings.api_engine_url:
        try:
            Target.of_url(settings.api_engine_url)
        except BadOption as error:
            raise BadOption(f"VOICEJOBS_API_ENGINE_URL: {error.message}", hint=error.hint) from None


async def _first_message(socket: WebSocket) -> Start:
    """Return the configuration.

    Raises:
        BadOption: something else came.
        DeadlinePassed: nothing came.
    """
    try:
        async with asyncio.timeout(FIRST_MESSAGE_S):
            text = await socket.receive_text()
    except TimeoutError:
        raise DeadlinePassed(f"no first message came within {FIRST_MESSAGE_S:g} s") from None
    except KeyError:
        raise BadOption("The first message is no text", hint='Send {"type": "start", ...}, then sound.') from None
    if len(text) > LONGEST_TEXT:
        raise BadOption(f"The first message has more than {LONGEST_TEXT} characters")
    try:
        return Start.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "message"
        raise BadOption(f"{place}: {first['msg']}", hint="docs/openai.md shows it.", param=place) from None


async def _admit(socket: WebSocket, key: str) -> None:
    """Let a caller in by the key of a header or protocol, or else by that of its first message.

    Raises:
        KeyNeeded, ScopeMissing, RateLimited: it may not.
    """
    if key and "authorization" not in socket.headers:
        socket.scope["headers"] = [*socket.scope["headers"], (b"authorization", b"Bearer " + key.encode("utf-8"))]
    await admit(HTTPConnection(socket.scope), Need(SCOPE))


class _Sound:
    """Read the sound of a socket; what is wrong with it waits until the engine has been told that no more comes."""

    def __init__(self, socket: WebSocket, context: Context) -> None:
        self._socket = socket
        self._context = context
        self._caller: Caller = socket.scope["voicejobs.caller"]
        self.is_gone = False
        self.fault: VoicejobsError | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield what comes, until `end`, or until the key is revoked or expires."""
        while not self._context.stopping.is_set():
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                self.is_gone = True
                return
            if not await is_admitted_still(self._context, self._caller):
                self.fault = KeyNeeded("the key was revoked, or has expired")
                return
            data = message.get("bytes")
            if data:
                yield data
            elif data is None and self._ends(message.get("text") or ""):
                return

    def _ends(self, text: str) -> bool:
        """Tell whether a text says that no more sound comes; no other text does."""
        with suppress(ValueError, RecursionError):
            if json.loads(text[:LONGEST_TEXT]) == {"type": "end"}:
                return True
        self.fault = BadOption("A message after the first is neither sound nor end", hint='Send {"type": "end"}.')
        return True


def result_of(told: pb.StreamingRecognizeResponse) -> dict[str, Any]:
    """Return a result as the browser gets it; times in seconds from the start of the stream."""
    kind = "revised" if told.revised else "final" if told.is_final else "partial"
    return {
        "type": kind,
        "segment_id": told.segment_id,
        "text": told.text,
        "start": round(told.start_time, 3),
        "end": round(told.end_time, 3),
        "stability": round(told.stability, 3),
        "stable_words": told.stable_words,
        "language": told.language or None,
        "words": [
            {
                "word": word.word,
                "start": round(word.start_time, 3),
                "end": round(word.end_time, 3),
                "probability": round(word.probability, 4) if word.HasField("probability") else None,
                "leading_space": word.leading_space,
            }
            for word in told.words
        ],
    }


async def _refuse(socket: WebSocket, error: VoicejobsError) -> None:
    """Say what is wrong, and close."""
    if socket.application_state != WebSocketState.CONNECTED or socket.client_state != WebSocketState.CONNECTED:
        return
    shown = Internal(error.message) if status_of(error) == SERVER_ERROR else error
    _, body = problem(shown, trace_id=trace_id_of(socket))
    code = _POLICY if isinstance(error, AccessDenied) else _LATER if isinstance(error, Transient) else _INVALID
    if isinstance(error, (Internal, NotServed)):
        code = _FAILED
    with suppress(RuntimeError, WebSocketDisconnect):
        await socket.send_text(json.dumps({"type": "error", "error": body["error"], "hint": body.get("hint")}))
        await socket.close(code)
