"""What this installation can do: engines, models, voices, pipelines with their options. Nothing is loaded for it."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from sqlalchemy import Connection, func, select, text

from voicejobs import formats
from voicejobs.api.access import Caller, allow
from voicejobs.api.context import Context, Here
from voicejobs.api.problems import responses
from voicejobs.audio import encode
from voicejobs.choices import language_of
from voicejobs.engines.base import EngineFacts, EngineSpec
from voicejobs.engines.configured import model_of_settings, with_settings
from voicejobs.engines.registry import engine_class, list_engines
from voicejobs.errors import NoSuchRecord, UnknownEngine, UnknownPipeline
from voicejobs.models.catalogue import CATALOGUE, ModelEntry
from voicejobs.models.installed import chosen, state
from voicejobs.pipelines.pipeline import Pipeline, pipeline
from voicejobs.settings import Settings
from voicejobs.steps.option_schemas import schema_of
from voicejobs.store.schema import RUNNING, SENT, jobs, qualified, step_runs
from voicejobs.store.states import StepState
from voicejobs.wishes import CAPTION_FORMATS, PIPELINES

router = APIRouter(prefix="/api/v1", tags=["catalogue"])

Reader = Annotated[Caller, allow("engines:read")]
Name = Annotated[str, Path(max_length=200)]
_QUEUES: Final = {"recogniser": "asr", "synthesiser": "tts"}


def _listed(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a list that has one page."""
    return {
        "object": "list",
        "data": found,
        "first_id": found[0]["id"] if found else None,
        "last_id": found[-1]["id"] if found else None,
        "has_more": False,
    }


@router.get("/engines", operation_id="list_engines")
async def list_all_engines(context: Here, caller: Reader) -> dict[str, Any]:
    """List the engines that are installed, with what they do and how many steps wait for their kind."""
    return _listed(await context.run(_engines, context))


@router.get("/engines/{engine_id}", operation_id="get_engine", responses=responses(404))
async def get_engine(engine_id: Name, context: Here, caller: Reader) -> dict[str, Any]:
    """Tell of one engine."""
    return _one("engine", engine_id, await context.run(_engines, context))


def _one(kind: str, wanted: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the record with an id.

    Raises:
        NoSuchRecord: there is none.
    """
    for record in found:
        if record["id"] == wanted:
            return record
    raise NoSuchRecord(f"There is no {kind} {wanted!r}")


def _engines(context: Context) -> list[dict[str, Any]]:
    """Return the records of all engines."""
    with context.database.read() as connection:
        depths = queue_depths(connection)
    return [record for name in list_engines() if (record := _engine(context.settings, name, depths)) is not None]


def queue_depths(connection: Connection) -> dict[str, dict[str, int]]:
    """Return how many step runs of jobs at the workers wait and run, by queue, in the whole installation."""
    depths: dict[str, dict[str, int]] = {}
    # By the partial indexes of what is at the workers: it costs the same however much is in the store.
    waiting = (
        select(step_runs.c.queue, func.count().label("runs"))
        .join(jobs, jobs.c.id == step_runs.c.job_id)
        .where(text(qualified("jobs", SENT)), step_runs.c.state == StepState.QUEUED)
        .group_by(step_runs.c.queue)
    )
    for row in connection.execute(waiting):
        depths.setdefault(row.queue, {})[StepState.QUEUED] = int(row.runs)
    running = select(step_runs.c.queue, func.count().label("runs")).where(text(RUNNING)).group_by(step_runs.c.queue)
    for row in connection.execute(running):
        depths.setdefault(row.queue, {})[StepState.RUNNING] = int(row.runs)
    return depths


def _engine(settings: Settings, name: str, depths: dict[str, dict[str, int]]) -> dict[str, Any] | None:
    """Return the record of an engine; None for one whose package cannot be imported."""
    fitting = [entry for entry in CATALOGUE.values() if entry.engine == name]
    try:
        facts: EngineFacts = engine_class(name).facts(EngineSpec(name, fitting[0].name if fitting else ""))
    except UnknownEngine:
        return None
    queue = depths.get(_QUEUES.get(facts.kind, "cpu"), {})
    models = [entry.name for entry in fitting]
    if facts.names_model:
        models = [one for one in (model_of_settings(name, settings),) if one]
    return {
        "id": name,
        "object": "engine",
        "kind": facts.kind,
        "models": models,
        "is_configured": dict(with_settings(EngineSpec(name), settings).params).get("url") != "",
        "capabilities": {
            "needs_model": facts.needs_model,
            "any_model": facts.names_model,
            "max_batch": facts.max_batch,
            "device": "cuda or cpu" if facts.uses_torch or name == "whisper" else "cpu",
        },
        "queue": {"waiting": queue.get(StepState.QUEUED, 0), "running": queue.get(StepState.RUNNING, 0)},
    }


@router.get("/models", operation_id="list_catalogue_models")
async def list_models(context: Here, caller: Reader) -> dict[str, Any]:
    """List the models of the catalogue; `state` is that on the machine that answers, workers fetch what they need."""
    return _listed(await context.run(_models, context.settings))


@router.get("/models/{model_id}", operation_id="get_catalogue_model", responses=responses(404))
async def get_model(model_id: Name, context: Here, caller: Reader) -> dict[str, Any]:
    """Tell of one model."""
    return _one("model", model_id, await context.run(_models, context.settings))


def _models(settings: Settings) -> list[dict[str, Any]]:
    """Return the records of all models."""
    return [_model(chosen(name, settings), settings) for name in CATALOGUE]


def _model(entry: ModelEntry, settings: Settings) -> dict[str, Any]:
    """Return the record of a model."""
    return {
        "id": entry.name,
        "object": "model",
        "engine": entry.engine,
        "revision": entry.revision,
        "sha256": entry.sha256,
        "size_bytes": entry.bytes,
        "licence": entry.licence,
        "origin": entry.origin,
        "note": entry.note,
        "state": state(entry, settings),
    }


@router.get("/voices", operation_id="list_voices")
async def list_voices(
    context: Here, caller: Reader, language: Annotated[str, Query(max_length=32)] = ""
) -> dict[str, Any]:
    """List the voices that the catalogue and the settings name; servers of voices are not asked."""
    found = [one for one in await context.run(_voices, context.settings) if _speaks(one, language)]
    return _listed(found)


@router.get("/voices/{voice_id:path}", operation_id="get_voice", responses=responses(404))
async def get_voice(voice_id: Name, context: Here, caller: Reader) -> dict[str, Any]:
    """Tell of one voice."""
    return await context.run(voice_record, context.settings, voice_id)


def voice_record(settings: Settings, voice_id: str) -> dict[str, Any]:
    """Return the record of a voice.

    Raises:
        NoSuchRecord: there is none of this id.
    """
    return _one("voice", voice_id, _voices(settings))


def _speaks(voice: dict[str, Any], language: str) -> bool:
    """Tell whether a voice speaks a language; those that do not say which they speak may."""
    code = language.lower().replace("_", "-").partition("-")[0]
    return not code or not voice["languages"] or code in voice["languages"]


def _voices(settings: Settings) -> list[dict[str, Any]]:
    """Return the records of all voices."""
    return list(_each_voice(settings))


def _each_voice(settings: Settings) -> Iterator[dict[str, Any]]:
    """Yield the voice of each model that speaks, and those that the settings name."""
    for name in CATALOGUE:
        entry = chosen(name, settings)
        if engine_class(entry.engine).facts(EngineSpec(entry.engine, name)).kind == "synthesiser":
            language = language_of(name).partition("-")[0]
            yield _voice(name, entry.engine, name, [language], licence=entry.licence, note=entry.note)
    for name in filter(None, (one.strip() for one in settings.cosyvoice_voices.split(","))):
        yield _voice(f"cosyvoice/{name}", "cosyvoice", settings.cosyvoice_model, [])
    if settings.openai_url:
        name = settings.openai_voice
        yield _voice(f"openai_voice/{name}", "openai_voice", settings.openai_speech_model, [])


def _voice(
    voice_id: str, engine: str, model: str, languages: list[str], *, licence: str = "", note: str = ""
) -> dict[str, Any]:
    """Return the record of a voice."""
    name = voice_id.rpartition("/")[2]
    return {
        "id": voice_id,
        "object": "voice",
        "name": name,
        "engine": engine,
        "model": model,
        "languages": languages,
        "licence": licence,
        "note": note,
    }


@router.get("/pipelines", operation_id="list_pipelines")
async def list_pipelines(context: Here, caller: Reader) -> dict[str, Any]:
    """List the pipelines, with a JSON Schema of the options that a request may give."""
    return _listed([_pipeline(one) for one in PIPELINES])


@router.get("/pipelines/{pipeline_name}", operation_id="get_pipeline", responses=responses(404))
async def get_pipeline(pipeline_name: Name, context: Here, caller: Reader) -> dict[str, Any]:
    """Tell of one pipeline."""
    try:
        return _pipeline(pipeline(pipeline_name))
    except UnknownPipeline as error:
        raise NoSuchRecord(error.message) from None


def _pipeline(graph: Pipeline) -> dict[str, Any]:
    """Return the record of a pipeline; options of a node may be given flat, or under the name of the node."""
    nodes = {node.name: schema_of(node.step) for node in graph.nodes}
    flat: dict[str, Any] = {}
    for schema in nodes.values():
        for name, one in schema["properties"].items():
            flat.setdefault(name, one)
    speaks = graph.nodes[-1].step == "join"
    return {
        "id": graph.name,
        "object": "pipeline",
        "version": graph.version,
        "nodes": [{"name": node.name, "step": node.step, "inputs": list(node.inputs)} for node in graph.nodes],
        "sources": ["file_id", "url", "path"] + (["text"] if graph.name in {"speak", "dub"} else []),
        "output_formats": [*encode.FORMATS, *CAPTION_FORMATS] if speaks else list(formats.FORMATS),
        "options": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {**flat, **nodes},
            "additionalProperties": False,
        },
    }
