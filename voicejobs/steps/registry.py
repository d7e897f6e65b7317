"""The registered steps: what goes in and out of each, its defaults, its version and where it queues."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from voicejobs.errors import BadOption, UnknownStep

Kind = Literal["source", "audio", "pieces", "transcript", "text", "sounds", "files"]
"""What can pass between steps; a pipeline that connects different kinds is refused."""


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """Describe a step.

    Args:
        name: also the last part of its task name.
        version: raised when the same input and options would give another output; part of the done-key.
        queue: queue class: `cpu`, or `asr` and `tts` for steps that wait for a recogniser or a synthesiser.
        inputs: kind of each input.
        output: kind of its output.
        defaults: every option with its default; options without a default do not exist.
        cosmetic: options that do not change the output, and so do not count in the done-key.
        is_cheap: whether its output can be had again at little cost.
    """

    name: str
    version: int
    queue: str
    inputs: tuple[Kind, ...]
    output: Kind
    defaults: Mapping[str, Any] = field(default_factory=dict)
    cosmetic: frozenset[str] = frozenset()
    is_cheap: bool = False

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults overlaid with `given`.

        Raises:
            BadOption: a name is unknown.
        """
        unknown = sorted(set(given) - set(self.defaults))
        if unknown:
            raise BadOption(
                f"The step {self.name!r} has no option {unknown[0]!r}", hint=f"It has: {', '.join(self.defaults)}."
            )
        return {**self.defaults, **given}

    def key_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that change the output."""
        return {name: value for name, value in sorted(options.items()) if name not in self.cosmetic}


_STEPS: dict[str, StepDefinition] = {}


def register(definition: StepDefinition) -> StepDefinition:
    """Add a step; a second one of the same name is a programming error."""
    if definition.name in _STEPS:
        raise ValueError(definition.name)
    _STEPS[definition.name] = definition
    return definition


def step(name: str) -> StepDefinition:
    """Return the step of this name.

    Raises:
        UnknownStep: there is none.
    """
    try:
        return _STEPS[name]
    except KeyError:
        raise UnknownStep(f"There is no step {name!r}", hint=f"Known: {', '.join(sorted(_STEPS))}.") from None


def all_steps() -> tuple[StepDefinition, ...]:
    """Return every registered step, by name."""
    return tuple(_STEPS[name] for name in sorted(_STEPS))


PREPARE = register(
    StepDefinition(
        name="prepare",
        version=4,
        queue="cpu",
        inputs=("source",),
        output="audio",
        defaults={
            "channels": "mix",
            "clips": [],
            "max_audio_s": 0.0,
            "vad_engine": "silero",
            "vad_model_sha256": "",
            "vad_filter": True,
            "vad_threshold": 0.45,
            "vad_min_speech_ms": 90,
            "vad_min_silence_ms": 100,
            "vad_pad_ms": 400,
            "vad_max_window_s": 30.0,
        },
        cosmetic=frozenset({"max_audio_s"}),
        is_cheap=True,
    )
)
RECOGNISE = register(
    StepDefinition(
        name="recognise",
        version=3,
        queue="asr",
        inputs=("audio",),
        output="pieces",
        defaults={
            "engine": "whisper",
            "model": "base",
            "model_sha256": "",
            "device": "auto",
            "compute_type": "",
            "threads": 0,
            "batch_size": 0,
            "language": None,
            "task": "transcribe",
            "word_timestamps": False,
            "beam_size": 5,
            "best_of": 5,
            "patience": 1.0,
            "length_penalty": 1.0,
            "repetition_penalty": 1.0,
            "no_repeat_ngram_size": 0,
            "suppress_tokens": [-1],
            "temperatures": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
            "compression_ratio_threshold": 2.4,
            "logprob_threshold": -1.0,
            "no_speech_threshold": 0.6,
            "condition_on_previous_text": False,
            "initial_prompt": "",
            "hotwords": "",
        },
        cosmetic=frozenset({"device", "threads", "batch_size"}),
    )
)
DELIVER = register(
    StepDefinition(
        name="deliver",
        version=2,
        queue="cpu",
        inputs=("audio", "pieces"),
        output="files",
        defaults={"formats": ["txt"], "render": {}, "target": "", "replace": False, "known": {}},
        cosmetic=frozenset({"target", "replace", "known"}),
    )
)

_LINES = {"max_chars": 240, "sentence_pause_s": 0.25, "paragraph_pause_s": 0.6}
"""How a text is cut into lines, see `voicejobs.text.plan_pieces`."""

PLAN_TEXT = register(
    StepDefinition(
        name="plan_text",
        version=1,
        queue="cpu",
        inputs=("source",),
        output="text",
        defaults={**_LINES, "language": "en", "markup": "auto"},
        is_cheap=True,
    )
)
PLAN_CAPTIONS = register(
    StepDefinition(
        name="plan_captions",
        version=1,
        queue="cpu",
        inputs=("source",),
        output="text",
        defaults={**_LINES, "language": "en"},
        is_cheap=True,
    )
)
RETELL = register(
    StepDefinition(
        name="retell",
        version=1,
        queue="cpu",
        inputs=("audio", "pieces"),
        output="text",
        defaults={**_LINES, "language": None, "replace": [], "keep_times": False},
        is_cheap=True,
    )
)
SYNTHESISE = register(
    StepDefinition(
        name="synthesise",
        version=1,
        queue="tts",
        inputs=("text",),
        output="sounds",
        defaults={
            "engine": "piper",
            "model": "en_US-joe-medium",
            "model_sha256": "",
            "device": "auto",
            "threads": 0,
            "batch_size": 0,
            "voice": "",
            "speed": 1.0,
            "seed": None,
            "mode": "",
            "instruct": "",
            "prompt_text": "",
            "prompt_audio": "",
            "max_speed": 1.5,
            "max_stretch": 1.25,
            "verify": {},
        },
        cosmetic=frozenset({"device", "threads", "batch_size"}),
    )
)
JOIN = register(
    StepDefinition(
        name="join",
        version=1,
        queue="cpu",
        inputs=("text", "sounds"),
        output="files",
        defaults={
            "formats": ["wav"],
            "sample_rate_hz": 0,
            "crossfade_ms": 10.0,
            "captions": [],
            "render": {},
            "target": "",
            "replace": False,
            "known": {},
        },
        cosmetic=frozenset({"target", "replace", "known"}),
    )
)
