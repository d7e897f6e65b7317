"""`/v1/models`: what requests to the OpenAI-compatible endpoints may name."""

from typing import Annotated, Any

from fastapi import APIRouter

from voicejobs.api.access import Caller, allow
from voicejobs.api.context import Here
from voicejobs.api.openai_names import Named, all_named, named
from voicejobs.api.problems import responses
from voicejobs.api.shapes import model_object
from voicejobs.models.installed import state
from voicejobs.settings import Settings

router = APIRouter(tags=["openai models"])
Reader = Annotated[Caller, allow("engines:read")]
_TASKS = {"recogniser": "transcription", "synthesiser": "speech"}


@router.get("/v1/models", operation_id="list_models", responses=responses(400))
async def list_models(context: Here, caller: Reader) -> dict[str, Any]:
    """List the models: aliases, those of the catalogue, and engines that need none."""
    found = await context.run(lambda: [_object(context.settings, one) for one in all_named(context.settings)])
    return {"object": "list", "data": found}


@router.get("/v1/models/{model:path}", operation_id="retrieve_model", responses=responses(400, 404))
async def retrieve_model(model: str, context: Here, caller: Reader) -> dict[str, Any]:
    """Tell of one model, whose name may hold slashes."""
    return await context.run(lambda: _object(context.settings, named(context.settings, model)))


def _object(settings: Settings, model: Named) -> dict[str, Any]:
    """Return a model as OpenAI's clients know it, with what it does and whether its weights are on this machine."""
    entry = model.entry
    return model_object(
        model.name,
        "voicejobs" if entry is None else entry.origin.removeprefix("https://").split("/")[1],
        engine=model.engine,
        task=_TASKS[model.kind],
        alias_of=model.alias_of or None,
        licence=None if entry is None else entry.licence,
        state=None if entry is None else state(entry, settings),
    )
