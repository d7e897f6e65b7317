"""The options of the recognition itself, and the step options that they make."""

from collections.abc import Callable, Container, Mapping, Sequence
from functools import reduce
from typing import Any, TypeVar

import click

from voicejobs.choices import detector_hash, english_only, wants_words
from voicejobs.cli import option_types as read
from voicejobs.cli.completers import complete_languages, complete_models
from voicejobs.cli.engine_choice import engine_and_model, fetching
from voicejobs.cli.option_types import Stretch
from voicejobs.engines.devices import gpu_count
from voicejobs.models.parts import Progress
from voicejobs.settings import Settings
from voicejobs.steps.registry import PREPARE, RECOGNISE

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_GPU_COMPUTE_TYPES = ("float16", "int8_float16", "bfloat16", "int8_bfloat16")
_COMPUTE_TYPES = ("default", "auto", "int8", "int8_float32", "int16", "float32", *_GPU_COMPUTE_TYPES)
_HIGHEST_TEMPERATURE = 1.0
_ROUNDING = 1e-6
_OF_THE_WORKER = frozenset(("task", "threads", "batch_size"))

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "-m",
        "--model",
        default="base",
        show_default=True,
        shell_complete=complete_models,
        help="Model of the catalogue, or NAME@REVISION; fetched where missing.",
    ),
    click.option(
        "-l",
        "--language",
        shell_complete=complete_languages,
        type=read.language,
        metavar="LANGUAGE",
        default=None,
        help="Language of the speech, e.g. en or german; told from the speech if left out, or with auto.",
    ),
    click.option(
        "--task",
        type=click.Choice(["transcribe", "translate"]),
        default="transcribe",
        show_default=True,
        help="translate gives English text.",
    ),
    click.option(
        "--word-timestamps/--no-word-timestamps",
        default=None,
        help="Give each word its times; on by itself where an output format is better with them.",
    ),
    click.option(
        "--channels",
        type=click.Choice(["mix", "split", "left", "right"]),
        default="mix",
        show_default=True,
        help="What to do with several channels; split recognises each, merges by time.",
    ),
    click.option(
        "--offset", type=read.time, metavar="TIME", default=0.0, help="Begin there: seconds, or 1:30, or 1:02:03.5."
    ),
    click.option(
        "--clip",
        type=read.clip,
        metavar="START-END",
        multiple=True,
        help="Recognise only this stretch, as 90-120 or 1:30-2:00 or 90-; repeat for more.",
    ),
    click.option(
        "--clip-timestamps",
        type=read.clip_list,
        default="0",
        metavar="START,END,...",
        help="The same as whisper writes it.",
    ),
    click.option("--initial-prompt", default="", help="Text before the first words, for names and spelling."),
    click.option("--hotwords", default="", help="Words to expect."),
    click.option(
        "--temperature",
        type=read.numbers(0, 2),
        metavar="NUMBER,...",
        default="0",
        show_default=True,
        help="Temperature, or the whole list to try in order, as 0,0.4,0.8.",
    ),
    click.option(
        "--temperature-increment-on-fallback",
        type=read.number_or_none(0.01, 2),
        metavar="NUMBER|none",
        default=0.2,
        show_default=True,
        help="Step from one temperature to the next, where one is given; none: no other is tried.",
    ),
    click.option(
        "--compression-ratio-threshold",
        type=read.number_or_none(0, 100),
        metavar="NUMBER|none",
        default=2.4,
        show_default=True,
        help="Text that repeats itself more than this is decoded again, at the next temperature.",
    ),
    click.option(
        "--logprob-threshold",
        type=read.number_or_none(-100, 0),
        metavar="NUMBER|none",
        default=-1.0,
        show_default=True,
        help="Text with a lower mean log probability is decoded again, at the next temperature.",
    ),
    click.option(
        "--no-speech-threshold",
        type=read.number_or_none(0, 1),
        metavar="NUMBER|none",
        default=0.6,
        show_default=True,
        help="Above it, text below the log probability threshold is taken for silence.",
    ),
    click.option(
        "--beam-size",
        type=click.IntRange(1, 20),
        default=5,
        show_default=True,
        help="Beams of the search, at temperature 0.",
    ),
    click.option(
        "--best-of",
        type=click.IntRange(1, 20),
        default=5,
        show_default=True,
        help="Samples to choose from, above temperature 0.",
    ),
    click.option(
        "--patience",
        type=read.FloatRange(0.1, 10),
        default=1.0,
        show_default=True,
        help="How long a beam search goes on for better ones.",
    ),
    click.option(
        "--length-penalty",
        type=read.FloatRange(-10, 10),
        default=1.0,
        show_default=True,
        help="Above 1 favours longer text.",
    ),
    click.option(
        "--repetition-penalty",
        type=read.FloatRange(0.1, 10),
        default=1.0,
        show_default=True,
        help="Above 1 disfavours what was said before.",
    ),
    click.option(
        "--no-repeat-ngram-size",
        type=click.IntRange(0, 100),
        default=0,
        show_default=True,
        help="Never say so many tokens twice in a row of tokens; 0: no limit.",
    ),
    click.option(
        "--suppress-tokens",
        type=read.token_ids,
        default="-1",
        show_default=True,
        metavar="ID,...",
        help="Tokens that are never written; -1 stands for special symbols.",
    ),
    click.option(
        "--condition-on-previous-text/--no-condition-on-previous-text",
        default=None,
        help="Without effect from window to window: each is recognised by itself.",
    ),
    click.option("--vad-filter/--no-vad-filter", default=True, show_default=True, help="Leave out what is no speech."),
    click.option(
        "--vad-engine",
        default="silero",
        show_default=True,
        help="Engine that tells speech from everything else: silero, or silero_torch for torch.",
    ),
    click.option(
        "--vad-threshold",
        type=read.FloatRange(0.01, 0.99),
        default=0.45,
        show_default=True,
        help="Probability at which speech begins; it ends 0.25 below.",
    ),
    click.option(
        "--vad-min-speech-duration-ms",
        type=click.IntRange(0, 60_000),
        default=90,
        show_default=True,
        help="Shorter bursts are no speech.",
    ),
    click.option(
        "--vad-min-silence-duration-ms",
        type=click.IntRange(0, 60_000),
        default=100,
        show_default=True,
        help="Shorter pauses do not end a stretch of speech.",
    ),
    click.option(
        "--vad-speech-pad-ms",
        type=click.IntRange(0, 5_000),
        default=400,
        show_default=True,
        help="Sound kept before and after speech.",
    ),
    click.option(
        "--vad-max-speech-duration-s",
        type=read.FloatRange(1, 30),
        default=30.0,
        show_default=True,
        help="Length of a window at most.",
    ),
    click.option("--engine", default="whisper", show_default=True, is_eager=True, help="Engine that recognises."),
    click.option(
        "--device",
        type=read.device,
        metavar="DEVICE",
        default="auto",
        show_default=True,
        help="auto, cpu, cuda or cuda:N.",
    ),
    click.option(
        "--compute-type",
        type=click.Choice(_COMPUTE_TYPES),
        default="default",
        show_default=True,
        help="Number format; default: int8 on a CPU, float16 on a GPU.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(0, 256),
        default=0,
        show_default=True,
        help="CPU threads of each engine process; 0: one, and as many processes as there are cores.",
    ),
    click.option(
        "--batch-size",
        type=click.IntRange(1, 1024),
        default=None,
        help="Windows in one call of the engine at most; whisper takes them one by one.",
    ),
)


def recognition_options(command: _Decorated) -> _Decorated:
    """Add the options of the recognition to a click command."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)


def pipeline_options(
    settings: Settings, flags: Mapping[str, Any], formats: Sequence[str], tell: Progress, *, fetch: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the full options of the steps `prepare` and `recognise`.

    Args:
        settings: where models live.
        flags: values of the options above, by name; those of the output files may be among them.
        formats: output formats, some of which need the times of words.
        tell: called with what the fetching of a model has to say.
        fetch: fetch the model where it is missing, and name it by the hash of the files; otherwise by the catalogue.

    Raises:
        click.UsageError: values that do not go together.
        BadOption, UnknownEngine, UnknownModel, ModelUnavailable, ModelCorrupt, DiskFull: see there.
    """
    _check_together(settings, flags)
    engine = flags["engine"]
    model, sha256 = engine_and_model(settings, engine, flags["model"], kind="recogniser", tell=tell, fetch=fetch)
    recognise = {
        **_decoding(flags),
        "engine": engine,
        "model": model,
        "model_sha256": sha256,
        "word_timestamps": _wants_words(flags, formats),
    }
    detector = {
        "vad_engine": flags["vad_engine"],
        "vad_model_sha256": detector_hash(
            settings, flags["vad_engine"], fetch=fetching(settings, tell) if fetch else None
        ),
    }
    return PREPARE.options({**_preparing(flags), **detector}), RECOGNISE.options(recognise)


def wishes(flags: Mapping[str, Any], given: Container[str]) -> dict[str, dict[str, Any]]:
    """Return the options of `prepare` and `recognise` that are not their defaults, as a service is asked for them.

    Engine, model and task are asked for by themselves; how many threads and windows its workers take is their business.

    Args:
        flags: values of the options above, by name.
        given: names of those that were given.
    """
    prepare = {**_preparing(flags), "vad_engine": flags["vad_engine"]}
    recognise = {name: value for name, value in _decoding(flags).items() if name not in _OF_THE_WORKER}
    if "word_timestamps" in given and flags["word_timestamps"] is not None:
        recognise["word_timestamps"] = flags["word_timestamps"]
    found = {"prepare": (prepare, PREPARE.defaults), "recognise": (recognise, RECOGNISE.defaults)}
    return {
        node: {name: value for name, value in values.items() if name == "word_timestamps" or value != defaults[name]}
        for node, (values, defaults) in found.items()
    }


def option_warnings(flags: Mapping[str, Any]) -> list[str]:
    """Return a sentence on each option that was given and has no effect."""
    found = []
    if flags.get("condition_on_previous_text"):
        found.append(
            "--condition-on-previous-text has no effect from window to window: each is recognised by itself,"
            " at the same time as others"
        )
    if flags.get("batch_size") and flags["engine"] == "whisper":
        found.append("--batch-size has no effect with the engine whisper, which takes windows one by one")
    return found


def _check_together(settings: Settings, flags: Mapping[str, Any]) -> None:
    """Refuse what cannot work, before anything is fetched or done."""
    english = english_only(flags["engine"], flags["model"])
    language = flags["language"]
    if english and language not in {None, "auto", "en"}:
        raise click.UsageError(
            f"The model {flags['model']!r} knows English alone, not the language {language!r}: take another model."
        )
    if english and flags["task"] == "translate":
        raise click.UsageError(f"The model {flags['model']!r} cannot translate: take a multilingual one, as base.")
    if flags["device"].startswith("cuda") and not settings.broker_url and not gpu_count():
        raise click.UsageError("There is no NVIDIA GPU on this machine: leave --device out, or say --device cpu.")
    if flags["compute_type"] in _GPU_COMPUTE_TYPES:
        if flags["device"] == "cpu":
            raise click.UsageError(
                f"--compute-type {flags['compute_type']} needs a GPU: add --device cuda, or take int8."
            )
        if not settings.broker_url and not gpu_count():
            raise click.UsageError(
                f"--compute-type {flags['compute_type']} needs a GPU, and this machine has none: take int8."
            )


def _preparing(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the step `prepare`."""
    return {
        "channels": flags["channels"],
        "clips": [list(clip) for clip in clips_of(flags)],
        "vad_filter": flags["vad_filter"],
        "vad_threshold": flags["vad_threshold"],
        "vad_min_speech_ms": flags["vad_min_speech_duration_ms"],
        "vad_min_silence_ms": flags["vad_min_silence_duration_ms"],
        "vad_pad_ms": flags["vad_speech_pad_ms"],
        "vad_max_window_s": flags["vad_max_speech_duration_s"],
    }


def _decoding(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the step `recognise` that need no look at anything else."""
    same = (
        "task", "device", "threads", "beam_size", "best_of", "patience", "length_penalty", "repetition_penalty",
        "no_repeat_ngram_size", "initial_prompt", "hotwords",
    )  # fmt: skip
    limits = ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold")
    compute_type = flags["compute_type"]
    return {
        **{name: flags[name] for name in same},
        **{name: None if flags[name] == "none" else flags[name] for name in limits},
        "language": None if flags["language"] in {None, "auto"} else flags["language"],
        "temperatures": ladder(flags["temperature"], flags["temperature_increment_on_fallback"]),
        "suppress_tokens": list(flags["suppress_tokens"]),
        "condition_on_previous_text": bool(flags["condition_on_previous_text"]),
        "compute_type": "" if compute_type in {"default", "auto"} else compute_type,
        "batch_size": flags["batch_size"] or 0,
    }


def ladder(temperatures: Sequence[float], increment: float | str) -> list[float]:
    """Return the temperatures to try in order: those given, or from the one given up to 1 in steps."""
    if len(temperatures) != 1 or not isinstance(increment, (int, float)):
        return list(temperatures) or [0.0]
    steps = int((_HIGHEST_TEMPERATURE - temperatures[0] + _ROUNDING) / increment)
    return [round(temperatures[0] + increment * number, 6) for number in range(max(0, steps) + 1)]


def clips_of(flags: Mapping[str, Any]) -> list[Stretch]:
    """Return the stretches to recognise: ordered, disjoint, none before the offset; none at all means everything.

    Raises:
        click.UsageError: the offset leaves nothing of them.
    """
    offset_s = flags["offset"]
    given = sorted([*flags["clip"], *flags["clip_timestamps"]], key=lambda clip: clip[0])
    if not given:
        return [(offset_s, None)] if offset_s else []
    joined: list[Stretch] = []
    for first_s, end_s in given:
        start_s = max(first_s, offset_s)
        if end_s is not None and end_s <= start_s:
            continue
        if joined and (joined[-1][1] is None or start_s <= joined[-1][1]):
            before_s = joined[-1][1]
            joined[-1] = (joined[-1][0], None if before_s is None or end_s is None else max(before_s, end_s))
        else:
            joined.append((start_s, end_s))
    if not joined:
        raise click.UsageError("--offset lies behind every --clip: nothing is left to recognise.")
    return joined


def _wants_words(flags: Mapping[str, Any], formats: Sequence[str]) -> bool:
    """Tell whether words get times: as the user says, else where a format is better with them."""
    if flags["word_timestamps"] is not None:
        return bool(flags["word_timestamps"])
    return wants_words(formats, {"subtitle_profile": flags.get("subtitle_profile")})
