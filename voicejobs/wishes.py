"""What somebody wants done with an input, by names and numbers, becomes the options of the steps of a pipeline."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from voicejobs import choices, formats
from voicejobs.audio import encode
from voicejobs.engines.languages import language_code
from voicejobs.errors import BadOption, VoicejobsError
from voicejobs.formats import RenderOptions
from voicejobs.models.catalogue import CATALOGUE
from voicejobs.pipelines.pipeline import DUB, SPEAK, TRANSCRIBE, TRANSCRIBE_SPEAK, Pipeline, pipeline
from voicejobs.settings import Settings
from voicejobs.steps import prompt
from voicejobs.steps.option_schemas import SCHEMAS, check

CAPTION_FORMATS: Final = ("srt", "vtt", "json")
DEFAULT_SOUND: Final = "wav"
PIPELINES: Final = (TRANSCRIBE, SPEAK, DUB, TRANSCRIBE_SPEAK)
TASKS: Final[Mapping[str, Pipeline]] = {
    "transcribe": TRANSCRIBE,
    "translate": TRANSCRIBE,
    "speak": SPEAK,
    "dub": DUB,
    "transcribe+speak": TRANSCRIBE_SPEAK,
}


@dataclass(frozen=True, slots=True)
class Wish:
    """Say what is to be done with an input.

    Args:
        pipeline: name of a pipeline; empty for the one of the task.
        task: one of `TASKS`; empty for the pipeline's own, or `transcribe`.
        engine: name of an engine; empty for that of the model, or the default.
        model: name of a model; empty for the default of the engine.
        options: options of steps by their names; one of a node that is named by an object under the node's name.
        formats: names of output formats.
    """

    pipeline: str = ""
    task: str = ""
    engine: str = ""
    model: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    formats: Sequence[str] = ()


def options_of(settings: Settings, wish: Wish) -> tuple[Pipeline, dict[str, dict[str, Any]]]:
    """Return the pipeline that a wish means, and the full options of all its nodes.

    Raises:
        BadOption, UnknownPipeline, UnknownEngine, UnknownModel: as their names say.
    """
    graph = _pipeline_of(wish)
    given = _by_node(graph, wish)
    if "recognise" in given:
        given |= recognition_options(settings, wish, given)
    if "synthesise" in given:
        given |= speech_options(settings, wish, given)
    return graph, graph.options(given)


def _pipeline_of(wish: Wish) -> Pipeline:
    """Return the pipeline.

    Raises:
        BadOption: the task is unknown, or does not go with the pipeline.
        UnknownPipeline: there is no such pipeline.
    """
    if wish.task and wish.task not in TASKS:
        raise BadOption(f"There is no task {wish.task!r}", hint=f"Known: {', '.join(TASKS)}.", param="task")
    if not wish.pipeline:
        return TASKS[wish.task or "transcribe"]
    with naming("pipeline"):
        graph = pipeline(wish.pipeline)
    translates = wish.task == "translate" and graph is TRANSCRIBE_SPEAK
    if wish.task and TASKS[wish.task] is not graph and not translates:
        raise BadOption(f"The pipeline {graph.name!r} does not {wish.task}", param="task")
    return graph


def _by_node(graph: Pipeline, wish: Wish) -> dict[str, dict[str, Any]]:
    """Return the options that were given, by node, each checked against its schema.

    Raises:
        BadOption: no node has such an option, or its value does not fit.
    """
    nodes = {node.name: SCHEMAS.get(node.step, {}) for node in graph.nodes}
    found: dict[str, dict[str, Any]] = {name: {} for name in nodes}
    for name, value in wish.options.items():
        if name in nodes:
            check(value, {"type": "object"}, f"options.{name}")
            for option, one in value.items():
                _place_option(found[name], nodes[name], (option, one), f"options.{name}.{option}")
            continue
        node = next((node for node, schemas in nodes.items() if name in schemas), "")
        if not node:
            known = sorted({option for schemas in nodes.values() for option in schemas})
            raise BadOption(
                f"The pipeline {graph.name!r} has no option {name!r}",
                hint=f"It has: {', '.join(known)}.",
                param=f"options.{name}",
            )
        _place_option(found[node], nodes[node], (name, value), f"options.{name}")
    return found


def _place_option(
    found: dict[str, Any], schemas: Mapping[str, Mapping[str, Any]], option: tuple[str, Any], param: str
) -> None:
    """Add one option of a node."""
    name, value = option
    if name not in schemas:
        raise BadOption(f"{param}: there is no such option", hint=f"It has: {', '.join(schemas)}.", param=param)
    check(value, schemas[name], param)
    found[name] = value


def recognition_options(
    settings: Settings, wish: Wish, given: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the options of the nodes that recognise, engine and model chosen; words get times unless told otherwise.

    Args:
        settings: where models live.
        wish: what was asked for.
        given: its options by node, where they have been sorted already.

    Raises:
        BadOption, UnknownEngine, UnknownModel: as their names say.
    """
    graph = _pipeline_of(wish)
    sorted_ = given or _by_node(graph, wish)
    prepare, recognise = dict(sorted_["prepare"]), dict(sorted_["recognise"])
    engine = wish.engine or recognise.get("engine") or _engine_of(wish.model or recognise.get("model", ""), "whisper")
    wanted = wish.model or recognise.get("model", "")
    with naming("model"):
        model, sha256 = choices.model_choice(settings, engine, wanted, kind="recogniser", default="base")
    recognise |= {"engine": engine, "model": model, "model_sha256": sha256}
    if wish.task == "translate":
        recognise["task"] = "translate"
    if recognise.get("word_timestamps") is None:
        recognise["word_timestamps"] = True  # what is stored can then be rendered in every format
    if recognise.get("compute_type") in {"default", "auto"}:
        recognise["compute_type"] = ""
    _check_language(engine, model, recognise)
    with naming("options.vad_engine"):
        prepare["vad_model_sha256"] = choices.detector_hash(settings, prepare.get("vad_engine", "silero"))
    _check_clips(prepare)
    made = {"prepare": prepare, "recognise": recognise}
    if graph is TRANSCRIBE:
        made["deliver"] = _deliver_options(wish, sorted_["deliver"])
    return made


def _engine_of(model: str, default: str) -> str:
    """Return the engine of a model of the catalogue."""
    entry = CATALOGUE.get(model.partition("@")[0])
    return entry.engine if entry else default


def _check_language(engine: str, model: str, recognise: dict[str, Any]) -> None:
    """Write the language as a code, and refuse what the model cannot do.

    Raises:
        BadOption: see there.
    """
    with naming("options.language"):
        language = language_code(recognise.get("language") or "", strict=engine == "whisper")
        if choices.english_only(engine, model) and language not in {None, "en"}:
            raise BadOption(f"The model {model!r} knows English alone, not the language {language!r}")
    if recognise.get("task") == "translate" and choices.english_only(engine, model):
        with naming("model"):
            raise BadOption(f"The model {model!r} cannot translate", hint="Take a multilingual one, as base.")
    recognise["language"] = language


def _check_clips(prepare: Mapping[str, Any]) -> None:
    """Refuse stretches that end before they begin, or overlap.

    Raises:
        BadOption: see there.
    """
    before_s = 0.0
    for number, (start_s, end_s) in enumerate(prepare.get("clips", [])):
        if (start_s or 0.0) < before_s or (end_s is not None and end_s <= (start_s or 0.0)):
            raise BadOption("options.clips must rise, and not overlap", param=f"options.clips[{number}]")
        before_s = float("inf") if end_s is None else end_s


def _deliver_options(wish: Wish, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the node that keeps a transcript."""
    with naming("output_formats"):
        names = list(wish.formats) or given.get("formats") or ["txt"]
        chosen = formats.chosen(names)
    return {"formats": chosen, "render": render_options(given.get("render", {})).to_json()}


def render_options(given: Mapping[str, Any]) -> RenderOptions:
    """Return the options of rendering.

    Raises:
        BadOption: a name is unknown, or a value is out of its range.
    """
    with naming("options.render"):
        return RenderOptions.from_json(given)


def speech_options(
    settings: Settings, wish: Wish, given: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the options of the nodes that speak, engine and model chosen.

    Args:
        settings: where models live.
        wish: what was asked for; in a pipeline that recognises first, its engine and model are not those that speak.
        given: its options by node, where they have been sorted already.

    Raises:
        BadOption, UnknownEngine, UnknownModel: as their names say.
    """
    graph = _pipeline_of(wish)
    sorted_ = given or _by_node(graph, wish)
    speaks_only = graph in {SPEAK, DUB}
    synthesise, join = dict(sorted_["synthesise"]), dict(sorted_["join"])
    wanted = (wish.model if speaks_only else "") or synthesise.get("model", "")
    engine = (wish.engine if speaks_only else "") or synthesise.get("engine") or _engine_of(wanted, "piper")
    with naming("model"):
        model, sha256 = choices.model_choice(settings, engine, wanted, kind="synthesiser", default="en_US-joe-medium")
    synthesise |= {"engine": engine, "model": model, "model_sha256": sha256}
    if (file_id := synthesise.pop("prompt_file_id", "")) and not synthesise.get("prompt_audio"):
        synthesise["prompt_audio"] = prompt.of_file(file_id)
    elif file_id:
        raise BadOption("prompt_audio and prompt_file_id say the same: give one", param="options.prompt_file_id")
    with naming("options.prompt_audio"):
        choices.demand_prompt(engine, synthesise)
    listener = synthesise.pop("verify_model", "")
    if synthesise.pop("verify", False):
        with naming("options.verify_model"):
            name, digest = choices.model_choice(settings, "whisper", listener, kind="recogniser", default="base")
        synthesise["verify"] = {"engine": "whisper", "model": name, "model_sha256": digest}
    made = {"synthesise": synthesise, "join": _join_options(wish, join)}
    planner = next(node.name for node in graph.nodes if node.step in {"plan_text", "plan_captions", "retell"})
    plan = dict(sorted_[planner])
    with naming("options.language"):
        tag = choices.language_tag(plan.get("language") or "")
    heard = "en" if sorted_.get("recognise", {}).get("task", wish.task) == "translate" else None
    plan["language"] = tag or (choices.language_of(model) if speaks_only else heard)
    return {**made, planner: plan}


def _join_options(wish: Wish, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the node that joins sound: its formats, and those of captions."""
    names = [name.lower() for name in wish.formats]
    sounds = [name for name in names if name in encode.FORMATS] or given.get("formats") or [DEFAULT_SOUND]
    captions = [name for name in names if name not in encode.FORMATS] or given.get("captions", [])
    with naming("output_formats"):
        for name in sounds:
            encode.demand_format(name)
        unknown = next((name for name in captions if name not in CAPTION_FORMATS), None)
        if unknown is not None:
            known = ", ".join([*encode.FORMATS, *CAPTION_FORMATS])
            raise BadOption(f"{unknown!r} is no format of sound or captions", hint=f"The formats are {known}.")
    rate_hz = given.get("sample_rate_hz", 0)
    if rate_hz and not encode.MIN_RATE_HZ <= rate_hz <= encode.MAX_RATE_HZ:
        limits = f"{encode.MIN_RATE_HZ} to {encode.MAX_RATE_HZ}"
        raise BadOption(f"options.sample_rate_hz must be within {limits}", param="options.sample_rate_hz")
    render = render_options(given.get("render", {})).to_json()
    return {
        **given,
        "formats": list(dict.fromkeys(sounds)),
        "captions": list(dict.fromkeys(captions)),
        "render": render,
    }


@contextmanager
def naming(param: str) -> Iterator[None]:
    """Let an error say which parameter is wrong, where it does not say so itself."""
    try:
        yield
    except VoicejobsError as error:
        error.details.setdefault("param", param)
        raise
