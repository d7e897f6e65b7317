"""What a voice sounds like: one sentence that a job has spoken, kept for whoever asks next."""

from hashlib import sha256
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request, Response
from sqlalchemy import select

from voicejobs.api.access import Caller, allow
from voicejobs.api.artifacts import content_of
from voicejobs.api.catalogue import voice_record
from voicejobs.api.context import Context, Here, TraceId
from voicejobs.api.jobs import intake_of
from voicejobs.api.openai_calls import SOUND, error_of, job_row
from voicejobs.api.problems import responses
from voicejobs.api.ranges import Content, serve
from voicejobs.errors import WaitedTooLong
from voicejobs.intake import Intake, Item, Source, Terms, Wish, options_of, submit_one
from voicejobs.store.schema import artifacts, jobs
from voicejobs.store.states import JobState

router = APIRouter(prefix="/api/v1", tags=["catalogue"])
FORMAT: Final = "mp3"
MAX_AGE_S: Final = 3600
TEXTS: Final = {
    "de": "Guten Tag! So klingt diese Stimme, wenn sie Ihnen etwas vorliest.",
    "en": "Hello! This is how I sound when I read something to you.",
    "es": "¡Hola! Así suena esta voz cuando te lee algo.",
    "fr": "Bonjour ! Voici comment je parle quand je vous lis quelque chose.",
    "it": "Ciao! Ecco come suona questa voce quando ti legge qualcosa.",
    "zh": "你好。这就是我为你朗读时的声音。",
}
"""What is said, by language; voices of other languages, or of any, say it in English."""

Writer = Annotated[Caller, allow("jobs:write")]
VoiceId = Annotated[str, Path(max_length=200, description="Id of a voice.")]


@router.get(
    "/voices/{voice_id:path}/preview",
    operation_id="get_voice_preview",
    responses={
        200: {"content": {"audio/mpeg": {}}},
        206: {"description": "A part.", "content": {"audio/mpeg": {}}},
        304: {"description": "The caller has it."},
        **responses(400, 404, 410, 416, 500),
    },
    response_class=Response,
)
async def get_voice_preview(
    request: Request, voice_id: VoiceId, context: Here, caller: Writer, trace_id: TraceId
) -> Response:
    """Return a sentence spoken by a voice, as MP3.

    A job of the interactive lane, which is waited for, speaks it where the tenant has none with these weights.
    """
    voice = await context.run(voice_record, context.settings, voice_id)
    intake = intake_of(context, caller, trace_id)
    item = _item_for(voice)
    key = await context.run(_key, intake, item)
    artifact_id = await context.run(_spoken, context, caller.tenant, key)
    if artifact_id is None:
        job_id = await context.run(_job_for, intake, item, key)
        await _end_of(context, job_id)
        artifact_id = await context.run(_spoken, context, caller.tenant, key)
    content: Content = await context.run(content_of, context, caller.tenant, str(artifact_id))
    answer = serve(request, content, context.run)
    answer.headers["Cache-Control"] = (
        f"private, max-age={MAX_AGE_S}"  # another revision of the weights may be in use soon
    )
    return answer


def _item_for(voice: dict[str, Any]) -> Item:
    """Return what speaks the sentence; the voice of a model with the same name is its first one."""
    options = {"voice": "" if voice["id"] == voice["model"] else voice["name"], "markup": "plain"}
    wish = Wish(task="speak", engine=voice["engine"], model=voice["model"], options=options, formats=(FORMAT,))
    text = TEXTS.get(next(iter(voice["languages"]), ""), TEXTS["en"])
    return Item(wish, Source(text=text, name="preview"), {"preview": voice["id"]})


def _key(intake: Intake, item: Item) -> str:
    """Return the done-key of the job: it tells text, voice, options and the hash of the weights."""
    graph, options = options_of(intake.settings, item.wish)
    return graph.key(sha256(item.source.text.encode()).hexdigest(), options)


def _spoken(context: Context, tenant: str, key: str) -> str | None:
    """Return the artifact of the newest sound that a tenant has for a key; None where it has none."""
    query = (
        select(artifacts.c.id)
        .join(jobs, jobs.c.id == artifacts.c.job_id)
        .where(
            jobs.c.done_key == key,
            jobs.c.tenant == tenant,
            jobs.c.state == JobState.SUCCEEDED,
            artifacts.c.kind == SOUND,
        )
        .order_by(artifacts.c.id.desc())
        .limit(1)
    )
    with context.database.read() as connection:
        return connection.execute(query).scalar()


def _job_for(intake: Intake, item: Item, key: str) -> str:
    """Return the job that speaks the sentence: the one that is at it, else a new one."""
    query = select(jobs.c.id).where(
        jobs.c.done_key == key,
        jobs.c.tenant == intake.tenant,
        jobs.c.state.in_((JobState.QUEUED, JobState.RUNNING)),
    )
    with intake.database.read() as connection:
        found = connection.execute(query.limit(1)).scalar()
    return found or submit_one(intake, item, Terms(lane="interactive")).job_ids[0]


async def _end_of(context: Context, job_id: str) -> None:
    """Wait until a job has succeeded; it goes on where nobody waits any longer, since others will ask for the same.

    Raises:
        WaitedTooLong: it has not ended yet.
        VoicejobsError: the error of the job.
    """
    longest_s = context.settings.api_sync_wait_s
    state = await context.changes.wait_for_end(job_id, longest_s)
    if state is None:
        raise WaitedTooLong(
            f"The preview was not spoken within {longest_s:g} s, and is still being made",
            hint="Ask for it again later.",
        )
    if state != JobState.SUCCEEDED:
        raise error_of(await context.run(job_row, context.database, job_id))
