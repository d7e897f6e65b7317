"""Calls that wait for their job: it runs in the interactive lane, and is cancelled when the caller goes away."""

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, select
from starlette.requests import Request

from voicejobs import control, piecewise
from voicejobs.api.context import Context
from voicejobs.api.openai_names import Named, named, voice_of
from voicejobs.api.openai_wishes import SpeechWish, TranscriptionWish
from voicejobs.audio.types import Transcript
from voicejobs.errors import (
    AudioTooLongForSync,
    Cancelled,
    Expired,
    Internal,
    TooLong,
    VoicejobsError,
    WaitedTooLong,
    WrongState,
    error_from_json,
)
from voicejobs.intake import Wish
from voicejobs.settings import Settings
from voicejobs.store import artifacts as kept
from voicejobs.store.database import Database
from voicejobs.store.schema import artifacts, jobs, step_runs
from voicejobs.store.states import JobState, StepState

_logger = logging.getLogger(__name__)
TRANSCRIPT, SOUND = "transcript", "sound"
"""Kinds of artifacts that jobs leave behind."""
RECOGNISE = "recognise"
"""The node that hears."""
_ONCE: Mapping[str, str] = {"x-should-retry": "false"}
"""Headers of what is not to be asked again: the job has been tried as often as it may be."""
_OPTIONS = "options."
_THEIR_NAMES: Mapping[str, str] = {
    "initial_prompt": "prompt",
    "temperatures": "temperature",
    "instruct": "instructions",
    "sample_rate_hz": "sample_rate",
}


_cancelling: "set[asyncio.Task[None]]" = set()


class CallerGoneError(Exception):
    """Whoever asked does not wait any more."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """Hold the sound of a job: its artifact, and where its bytes are."""

    artifact_id: str
    sha256: str
    size_bytes: int
    data: bytes | None
    media_type: str
    format: str


def transcription_request(
    settings: Settings, wish: TranscriptionWish, *, max_audio_s: float = 0.0
) -> tuple[Named, Wish]:
    """Return the model that a wish means, and the wish as the intake takes it.

    Args:
        settings: aliases, and which servers there are.
        wish: what the request asks for.
        max_audio_s: longest recording; 0 for that of the installation.

    Raises:
        ModelNotFound: no such model recognises speech.
    """
    model = named(settings, wish.model, "recogniser")
    options: dict[str, Any] = {
        **wish.detection,
        "channels": wish.channels,
        "word_timestamps": wish.needs_words,
        "initial_prompt": wish.prompt,
        "hotwords": wish.hotwords,
    }
    if max_audio_s:
        options["max_audio_s"] = max_audio_s
    if wish.language:
        options["language"] = wish.language
    if wish.temperature:
        options["temperatures"] = [wish.temperature]
    return model, Wish(task=wish.task, engine=model.engine, model=model.model, options=options, formats=("json",))


def speech_request(settings: Settings, wish: SpeechWish) -> tuple[Named, Wish]:
    """Return the model that a wish means, and the wish as the intake takes it.

    Raises:
        ModelNotFound: no such model speaks.
    """
    model = named(settings, wish.model, "synthesiser")
    options: dict[str, Any] = {
        "voice": voice_of(settings, model, wish.voice),
        "speed": wish.speed,
        "instruct": wish.instructions,
        "seed": wish.seed,
        "markup": "plain",
        "sample_rate_hz": wish.sample_rate_hz,
    }
    if wish.language:
        options["language"] = wish.language
    formats = (wish.response_format,)
    return model, Wish(task="speak", engine=model.engine, model=model.model, options=options, formats=formats)


@contextmanager
def in_their_words() -> Iterator[None]:
    """Let errors name parameters as OpenAI's interface does, and not by the options of steps that they become."""
    try:
        yield
    except VoicejobsError as error:
        name = str(error.details.get("param") or "")
        if name.startswith(_OPTIONS):
            option = name.removeprefix(_OPTIONS)
            error.details["param"] = _THEIR_NAMES.get(option, option)
        raise


async def wait_for(request: Request, context: Context, job_id: str) -> None:
    """Return once a job has succeeded; it is cancelled where nobody waits for it any longer.

    Raises:
        CallerGoneError: the connection was closed.
        WaitedTooLong: it took longer than such calls may.
        AudioTooLongForSync: the recording is too long for a call that waits.
        VoicejobsError: the error of the job.
    """
    longest_s = context.settings.api_sync_wait_s
    waiting = asyncio.create_task(context.changes.wait_for_end(job_id, longest_s))
    leaving = asyncio.create_task(_left(request))
    state: str | None = None
    try:
        await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise CallerGoneError
        state = waiting.result()
    finally:
        # Whoever waits for us may be cancelled while we clear up: the job is seen to first, by a task of its own.
        cancelling = asyncio.create_task(_take_back(context, job_id)) if state is None else None
        if cancelling is not None:
            _cancelling.add(cancelling)
            cancelling.add_done_callback(_cancelling.discard)
        for task in (waiting, leaving):
            task.cancel()
        await asyncio.gather(waiting, leaving, return_exceptions=True)
        if cancelling is not None:
            await asyncio.shield(cancelling)
    if state is None:
        raise WaitedTooLong(
            f"The job was not done within {longest_s:g} s, and is cancelled",
            hint="Ask for it as a job or a batch, which nobody has to wait for.",
            headers=_ONCE,
        )
    row = await context.run(job_row, context.database, job_id)
    if row.state != JobState.SUCCEEDED:
        raise error_of(row, context.settings.api_sync_audio_s)


async def _left(request: Request) -> None:
    """Return when the caller has closed the connection; the body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _take_back(context: Context, job_id: str) -> None:
    """Cancel a job, if it has not ended by now."""
    try:
        await context.run(control.cancel_jobs, context.database, [job_id])
    except WrongState:
        return
    except VoicejobsError as error:
        _logger.warning("the job of a call could not be cancelled", extra={"job_id": job_id, "error": error.message})
        return
    _logger.info("cancelled: nobody waits for the job any more", extra={"job_id": job_id})


def error_of(row: Row[Any], longest_s: float = 0.0) -> VoicejobsError:
    """Return the error of a job that did not succeed.

    Args:
        row: of the job.
        longest_s: longest recording that a call may wait for; 0 where nobody waits.
    """
    if row.state == JobState.CANCELLED:
        return _final(Cancelled("The job was cancelled"))
    if row.state == JobState.EXPIRED:
        return _final(Expired("The job was not done in time"))
    if row.error is None:
        return _final(Internal(f"The job {row.id} is {row.state}"))
    error = error_from_json(json.loads(row.error))
    if isinstance(error, TooLong) and longest_s and error.details.get("limit_s") == longest_s:
        return AudioTooLongForSync(f"The recording is longer than {longest_s:g} s", param="file", limit_s=longest_s)
    return _final(error)


def _final(error: VoicejobsError) -> VoicejobsError:
    """Return an error that clients do not answer by asking again: that would make another job each time."""
    error.details["headers"] = _ONCE
    return error


def job_row(database: Database, job_id: str) -> Any:
    """Return what answers need of a job."""
    query = select(jobs.c.id, jobs.c.state, jobs.c.error, jobs.c.audio_s, jobs.c.request).where(jobs.c.id == job_id)
    with database.read() as connection:
        return connection.execute(query).one()


def heard_so_far(database: Database, job_id: str) -> list[str]:
    """Return the texts of the segments, in their order, that a job under way has heard from the start without a gap.

    They are those of its transcript in the end, unless it keeps channels apart: these are merged by time then.
    """
    query = (
        select(step_runs.c.state, step_runs.c.output, step_runs.c.checkpoint)
        .where(step_runs.c.job_id == job_id, step_runs.c.node == RECOGNISE)
        .order_by(step_runs.c.shard)
    )
    texts: list[str] = []
    with database.read() as connection:
        found = list(connection.execute(query))
    for row in found:
        done = row.state == StepState.SUCCEEDED
        kept = row.output if done else row.checkpoint
        results = json.loads(kept).get("results", ()) if kept else ()
        texts += [segment["text"] for result in results for segment in result["segments"]]
        if not done:
            break
    return texts


def transcript_of(context: Context, job_id: str) -> Transcript:
    """Return what a job has heard."""
    data = kept.load_kind(context.database, context.blobs, job_id, TRANSCRIPT)
    return Transcript.from_json(piecewise.loads(data))


def sound_of(context: Context, job_id: str) -> Spoken:
    """Return what a job has spoken.

    Raises:
        Internal: it has no sound.
    """
    query = (
        select(artifacts.c.id, artifacts.c.sha256, artifacts.c.size_bytes, artifacts.c.data, artifacts.c.meta)
        .where(artifacts.c.job_id == job_id, artifacts.c.kind == SOUND)
        .order_by(artifacts.c.id.desc())
        .limit(1)
    )
    with context.database.read() as connection:
        row = connection.execute(query).first()
    if row is None:
        raise Internal(f"The job {job_id} has no sound")
    meta = json.loads(row.meta)
    return Spoken(row.id, row.sha256, row.size_bytes, row.data, meta.get("type", ""), meta.get("format", ""))
