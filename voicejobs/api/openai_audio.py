"""`/v1/audio/*` as OpenAI's clients call it: each call is a job of the interactive lane that is waited for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, Any, BinaryIO, Protocol

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from voicejobs.api import openai_docs as docs
from voicejobs.api.access import Caller, allow
from voicejobs.api.bodies import PatientRoute, takes_up_to
from voicejobs.api.context import Context, Here, TraceId
from voicejobs.api.jobs import intake_of
from voicejobs.api.openai_answers import (
    MEDIA_TYPES,
    SOUND_TYPES,
    Deltas,
    answer_body,
    event,
    speech_events,
    transcript_events,
)
from voicejobs.api.openai_calls import (
    CallerGoneError,
    Spoken,
    heard_so_far,
    in_their_words,
    sound_of,
    speech_request,
    transcript_of,
    transcription_request,
    wait_for,
)
from voicejobs.api.openai_names import all_named
from voicejobs.api.openai_wishes import (
    SpeechWish,
    Task,
    TranscriptionWish,
    fields_of_form,
    speech_wish,
    transcription_wish,
)
from voicejobs.api.problems import problem, responses
from voicejobs.api.sinks import received
from voicejobs.choices import language_of
from voicejobs.errors import BadMediaType, BadOption, VoicejobsError
from voicejobs.intake import Intake, Item, Source, Terms, submit_one
from voicejobs.models.installed import state
from voicejobs.store.blobs import COPY_BYTES
from voicejobs.submit import Blob

router = APIRouter(tags=["openai audio"], route_class=PatientRoute)
MAX_FILE_NAME = 255
KEEP_ALIVE_S = 15.0
TOLD_EVERY_S = 0.5
"""Time between two looks at what a job has heard by now."""
COMMENT = b": waiting\n\n"
_PROBLEMS = responses(400, 404, 408, 410, 413, 415, 500)
_GONE = 499
"""Status for logs alone: whoever asked does not read it."""

Writer = Annotated[Caller, allow("jobs:write")]


@router.post(
    "/v1/audio/transcriptions",
    operation_id="create_transcription",
    responses={**_PROBLEMS, **docs.TRANSCRIPTION_ANSWERS},
    openapi_extra=docs.form_body(docs.TRANSCRIPTION_FORM),
    response_model=None,
)
@takes_up_to("api_sync_upload_bytes")
async def create_transcription(request: Request, context: Here, caller: Writer, trace_id: TraceId) -> Response:
    """Turn a recording into text, and wait for it.

    With `Prefer: respond-async` the answer is the job, which `GET /api/v1/jobs/{id}` follows.
    """
    return await _listen(request, context, intake_of(context, caller, trace_id), "transcribe")


@router.post(
    "/v1/audio/translations",
    operation_id="create_translation",
    responses={**_PROBLEMS, **docs.TRANSCRIPTION_ANSWERS},
    openapi_extra=docs.form_body(docs.TRANSLATION_FORM),
    response_model=None,
)
@takes_up_to("api_sync_upload_bytes")
async def create_translation(request: Request, context: Here, caller: Writer, trace_id: TraceId) -> Response:
    """Turn a recording into English text, and wait for it."""
    return await _listen(request, context, intake_of(context, caller, trace_id), "translate")


@router.post(
    "/v1/audio/speech",
    operation_id="create_speech",
    responses={**_PROBLEMS, **docs.SPEECH_ANSWERS},
    openapi_extra=docs.json_body(docs.SPEECH_FORM),
    response_model=None,
)
async def create_speech(request: Request, context: Here, caller: Writer, trace_id: TraceId) -> Response:
    """Speak a text, and wait for the sound."""
    wish = speech_wish(await json_object(request), context.settings.api_speech_chars)
    _, wanted = speech_request(context.settings, wish)
    item = Item(wanted, Source(text=wish.text, name="speech"), {"openai": {"endpoint": "speech"}})
    intake = intake_of(context, caller, trace_id)
    if _is_async(request):
        return await _accepted(context, intake, item)
    job_id = await _submitted(context, intake, item)
    if wish.stream:
        return _stream(request, context, job_id, _Speech(context, job_id))
    return await _answered(request, context, job_id, lambda: _spoken_answer(context, job_id, wish))


@router.get("/v1/audio/voices", operation_id="list_speech_voices", responses=responses(400))
async def list_speech_voices(context: Here, caller: Annotated[Caller, allow("engines:read")]) -> dict[str, Any]:
    """List the voices of the models that speak; a model with one voice has it under its own name."""
    voices = await context.run(_voices, context)
    return {"object": "list", "data": voices, "voices": voices}


async def json_object(request: Request) -> dict[str, Any]:
    """Return the JSON object that a request brings.

    Raises:
        BadMediaType: it says that it is something else.
        BadOption: it is none.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise BadMediaType("The body is no JSON", hint="Send it with Content-Type: application/json.")
    try:
        document = await request.json()
    except (ValueError, RecursionError):
        raise BadOption("The body is no JSON", hint="Send one JSON object.") from None
    if not isinstance(document, dict):
        raise BadOption("The body is no JSON object", hint="Send one JSON object.")
    return document


def _is_async(request: Request) -> bool:
    """Tell whether the caller prefers not to wait (RFC 7240)."""
    wishes = (part.strip().lower() for part in request.headers.get("prefer", "").split(","))
    return "respond-async" in wishes


async def _listen(request: Request, context: Context, intake: Intake, task: Task) -> Response:
    """Take a recording in, and answer with what is said in it."""
    form = await received(request, context, context.settings.api_sync_upload_bytes)
    try:
        wish = transcription_wish(fields_of_form(form.fields), task)
        if "file" not in form.files:
            raise BadOption("file is missing: the form holds no recording", param="file")
        waits = not _is_async(request)
        longest_s = context.settings.api_sync_audio_s if waits else 0.0
        _, wanted = transcription_request(context.settings, wish, max_audio_s=longest_s)
        stored = await form.files["file"].sink.commit()
    finally:
        await form.discard()
    name = form.files["file"].filename[:MAX_FILE_NAME] or "recording"
    source = Source(blob=Blob(stored.sha256, stored.size_bytes), name=name)
    item = Item(wanted, source, {"openai": wish.to_json()})
    if not waits:
        return await _accepted(context, intake, item)
    job_id = await _submitted(context, intake, item)
    if wish.stream:
        return _stream(request, context, job_id, _Hearing(context, job_id, wish))
    return await _answered(request, context, job_id, lambda: _heard_answer(context, job_id, wish))


async def _submitted(context: Context, intake: Intake, item: Item) -> str:
    """Make the job of a call that waits, ahead of all that nobody waits for."""
    with in_their_words():
        taken = await context.run(submit_one, intake, item, Terms(lane="interactive"))
    return taken.job_ids[0]


async def _accepted(context: Context, intake: Intake, item: Item) -> Response:
    """Make the job of a call that does not wait, and say where it is followed."""
    with in_their_words():
        taken = await context.run(submit_one, intake, item, Terms())
    job_id = taken.job_ids[0]
    return docs.json_response(
        {"id": job_id, "object": "job", "status": "queued", "text": ""},
        status_code=202,
        headers={
            "Location": f"/api/v1/jobs/{job_id}",
            "Retry-After": "2",
            "Preference-Applied": "respond-async",
        },
    )


async def _answered(
    request: Request, context: Context, job_id: str, answer: Callable[[], Awaitable[Response]]
) -> Response:
    """Wait for a job, and answer; whoever has left gets nothing."""
    try:
        await wait_for(request, context, job_id)
    except CallerGoneError:
        return Response(status_code=_GONE)
    return await answer()


async def _heard_answer(context: Context, job_id: str, wish: TranscriptionWish) -> Response:
    """Return the transcript of a job in the form that was asked for."""

    def body() -> bytes:
        return answer_body(transcript_of(context, job_id), wish.to_json())

    content = await context.run(body)
    headers = {"voicejobs-job-id": job_id}
    return Response(content, media_type=MEDIA_TYPES[wish.response_format], headers=headers)


async def _spoken_answer(context: Context, job_id: str, wish: SpeechWish) -> Response:
    """Return the sound of a job."""
    spoken = await context.run(sound_of, context, job_id)
    media_type = SOUND_TYPES[wish.response_format]
    if wish.response_format == "pcm":
        media_type += f";rate={wish.sample_rate_hz};channels=1"
    headers = {"content-length": str(spoken.size_bytes), "voicejobs-job-id": job_id}
    return StreamingResponse(_bytes_of(context, spoken), media_type=media_type, headers=headers)


async def _bytes_of(context: Context, spoken: Spoken) -> AsyncIterator[bytes]:
    """Yield the bytes of a sound, a megabyte at a time."""
    file: BinaryIO = await context.run(context.blobs.open_artifact, spoken.sha256, spoken.data, packed=False)
    try:
        while data := await context.run(file.read, COPY_BYTES):
            yield data
    finally:
        await context.run(file.close)


class _Teller(Protocol):
    """Tell of a job by events, some while it runs and the rest once it is done."""

    def meanwhile(self) -> AsyncIterator[bytes]:
        """Yield what is new since the last time."""
        ...

    def at_the_end(self) -> AsyncIterator[bytes]:
        """Yield what is left to tell."""
        ...


class _Speech:
    """Tell of speech: its sound, once it is there."""

    def __init__(self, context: Context, job_id: str) -> None:
        self._context = context
        self._job_id = job_id

    async def meanwhile(self) -> AsyncIterator[bytes]:
        """Yield nothing: levels are those of the whole."""
        nothing: tuple[bytes, ...] = ()
        for one in nothing:
            yield one

    async def at_the_end(self) -> AsyncIterator[bytes]:
        """Yield the sound."""
        spoken = await self._context.run(sound_of, self._context, self._job_id)

        def parts() -> Iterator[bytes]:
            with self._context.blobs.open_artifact(spoken.sha256, spoken.data, packed=False) as file:
                while data := file.read(COPY_BYTES):
                    yield data

        told = speech_events(parts())
        while (one := await self._context.run(next, told, None)) is not None:
            yield one


class _Hearing:
    """Tell of a transcription: the text as windows are heard, and in the end what it came to."""

    def __init__(self, context: Context, job_id: str, wish: TranscriptionWish) -> None:
        self._context = context
        self._job_id = job_id
        self._wish = wish
        self._deltas = Deltas()

    async def meanwhile(self) -> AsyncIterator[bytes]:
        """Yield the text that was heard since the last time."""
        if self._wish.channels != "split":
            texts = await self._context.run(heard_so_far, self._context.database, self._job_id)
            for told in self._deltas.more(texts):
                yield told

    async def at_the_end(self) -> AsyncIterator[bytes]:
        """Yield the rest, and the whole."""
        transcript = await self._context.run(transcript_of, self._context, self._job_id)
        for told in transcript_events(transcript, self._wish.to_json(), self._deltas):
            yield told


def _stream(request: Request, context: Context, job_id: str, teller: _Teller) -> StreamingResponse:
    """Answer with events; comments while there is nothing to tell, or something on the way takes the line for dead."""
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", "voicejobs-job-id": job_id}
    return StreamingResponse(_told(request, context, job_id, teller), media_type="text/event-stream", headers=headers)


async def _told(request: Request, context: Context, job_id: str, teller: _Teller) -> AsyncIterator[bytes]:
    """Yield the events of a job that is waited for; an error is one of them, since the status is sent by then."""
    waiting = asyncio.create_task(wait_for(request, context, job_id))
    loop = asyncio.get_running_loop()
    try:
        yield COMMENT
        quiet_since = loop.time()
        while not (await asyncio.wait({waiting}, timeout=TOLD_EVERY_S))[0]:
            async for told in teller.meanwhile():
                quiet_since = loop.time()
                yield told
            if loop.time() - quiet_since > KEEP_ALIVE_S:
                quiet_since = loop.time()
                yield COMMENT
        await waiting
        async for told in teller.at_the_end():
            yield told
    except CallerGoneError:
        return
    except VoicejobsError as error:
        _, body = problem(error, trace_id=str(request.scope.get("voicejobs.trace_id", "")))
        yield event({"type": "error", "error": body["error"]})
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


def _voices(context: Context) -> list[dict[str, Any]]:
    """Return the voices of models that speak."""
    found: list[dict[str, Any]] = []
    for model in all_named(context.settings):
        if model.kind != "synthesiser" or model.alias_of:
            continue
        installed = "unknown" if model.entry is None else state(model.entry, context.settings)
        language = language_of(model.model).partition("-")[0] if model.model else None
        found += [
            {
                "id": name,
                "object": "voice",
                "name": name,
                "model": model.name,
                "engine": model.engine,
                "language": language,
                "state": installed,
            }
            for name in _names_of(context, model.engine, model.model)
        ]
    return found


def _names_of(context: Context, engine: str, model: str) -> list[str]:
    """Return the voices that can be told without loading a model or asking a server."""
    if model:
        return [model]
    configured = {"cosyvoice": context.settings.cosyvoice_voices, "openai_voice": context.settings.openai_voice}
    return [name.strip() for name in configured.get(engine, "").split(",") if name.strip()]
