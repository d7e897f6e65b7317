"""What an engine is: the protocols that adapters fulfil and that steps call.

An adapter is found by entry point (group `voicejobs.engines`) as a class that fulfils `EngineClass`. Its module
imports no model library at import time: the class is looked at in processes that never load a model.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm, Sound, WindowResult

EngineKind = Literal["recogniser", "synthesiser", "vad"]
TRACES: ContextVar[Sequence[str]] = ContextVar("voicejobs_traces", default=())
"""Trace ids of the windows or texts of the call under way, one each, or none; engines that ask servers pass them on."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Say which engine to load and how; equal specs share engine processes.

    Args:
        engine: entry point name, for example `whisper`.
        model: catalogue name, for example `base`; empty where the engine needs no weights.
        model_dir: absolute folder with the verified files; empty where none are needed.
        device: `cpu` or `cuda:0`.
        compute_type: number format, for example `int8`; empty for the default of the engine.
        threads: CPU threads of one engine process.
        memory_fraction: share 0..1 of the memory of its card that it may take; 0 for no limit.
        memory_bytes: that share in bytes; 0 where unknown.
        params: further settings of the engine, JSON values, as a tuple of pairs so that the spec hashes.
        secrets: keys and passwords by name. They are in no text of the spec and not in `to_json`: the host hands them
            to the engine process by the socket that the two share (docs/engines.md).
    """

    engine: str
    model: str = ""
    model_dir: str = ""
    device: str = "cpu"
    compute_type: str = ""
    threads: int = 1
    memory_fraction: float = 0.0
    memory_bytes: int = 0
    params: tuple[tuple[str, Any], ...] = ()
    secrets: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, without the secrets."""
        values = asdict(self)
        del values["secrets"]
        return values

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Build a spec from `to_json`, without secrets."""
        values = dict(data)
        values["params"] = tuple((str(name), value) for name, value in values.get("params", ()))
        return cls(**values)


@dataclass(frozen=True, slots=True)
class RecogniseOptions:
    """Options of recognition that change the text; windows with equal options may share a batch.

    Args:
        language: ISO 639-1 code; None lets the engine tell.
        task: `transcribe`, or `translate` to English.
        word_timestamps: give each word its times.
        beam_size: beams at temperature 0.
        best_of: samples to choose from above temperature 0.
        patience: how much longer than its beams a beam search goes on.
        length_penalty: above 1 favours longer text.
        repetition_penalty: above 1 disfavours tokens that were written before.
        no_repeat_ngram_size: no so many tokens in a row are written twice; 0 for no limit.
        suppress_tokens: ids of tokens that are never written; -1 stands for a set of symbols that are no speech.
        temperatures: fallback ladder, tried in order while a window looks bad.
        compression_ratio_threshold: a window looks bad above it; None for no limit.
        logprob_threshold: a window looks bad below this mean log probability; None for no limit.
        no_speech_threshold: a window that looks bad by its log probability is silence above it; None: never.
        condition_on_previous_text: where a window takes more than one pass, what the first wrote prompts the next.
        initial_prompt: text that biases spelling; empty for none.
        hotwords: words to expect; empty for none.
    """

    language: str | None = None
    task: Literal["transcribe", "translate"] = "transcribe"
    word_timestamps: bool = False
    beam_size: int = 5
    best_of: int = 5
    patience: float = 1.0
    length_penalty: float = 1.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    suppress_tokens: tuple[int, ...] = (-1,)
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    compression_ratio_threshold: float | None = 2.4
    logprob_threshold: float | None = -1.0
    no_speech_threshold: float | None = 0.6
    condition_on_previous_text: bool = False
    initial_prompt: str = ""
    hotwords: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Build options from `to_json`; unknown names are an error."""
        values = dict(data)
        for name in ("temperatures", "suppress_tokens"):
            if name in values:
                values[name] = tuple(values[name])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class SynthesiseOptions:
    """Options of synthesis that change the sound; pieces with equal options may share a batch.

    Args:
        voice: name of a voice of the engine; empty for its default.
        language: ISO 639-1 code of the text; None where the voice tells.
        speed: 1 as the voice speaks by itself, 2 twice as fast.
        seed: seed of the engine's sampling; None leaves it to the engine. Ignored by engines that have none.
        mode: how the voice is chosen, for engines that have several ways, such as `zero_shot`; empty for the usual.
        instruct: how to speak, in words, for engines that take it.
        prompt_text: what is said in `prompt_audio`.
        prompt_audio: recording of the voice to speak with, base64 of 16-bit mono PCM at 16 kHz; empty for none.
    """

    voice: str = ""
    language: str | None = None
    speed: float = 1.0
    seed: int | None = None
    mode: str = ""
    instruct: str = ""
    prompt_text: str = ""
    prompt_audio: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Build options from `to_json`; unknown names are an error."""
        return cls(**data)


@dataclass(frozen=True, slots=True)
class Voice:
    """Describe a voice of a synthesiser.

    Args:
        name: what `SynthesiseOptions.voice` takes.
        languages: ISO 639-1 codes that it speaks; empty where the engine does not say.
        rate_hz: sampling rate of its sound; 0 where the engine does not say.
        description: what people may want to know of it.
        licence: licence of its weights; empty where unknown.
    """

    name: str
    languages: tuple[str, ...] = ()
    rate_hz: int = 0
    description: str = ""
    licence: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Build a voice from `to_json`."""
        return cls(**{**data, "languages": tuple(data["languages"])})


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the host must know of an engine before it loads one.

    Args:
        kind: what it does.
        needs_model: whether the catalogue must have the model.
        max_batch: windows that one call may take on this device (1 for whisper on a CPU).
        call_timeout_s: seconds after which a call of one window counts as hung.
        memory_bytes: resident memory of one loaded engine process, for admission; 0 where unknown.
        doubt: its text may be wrong, and tells so by its length: results of a shared batch that look wrong are decoded
            again alone, and every text is held against the speech under it (`steps/review.py`).
        uses_torch: whether its memory on a card is that of torch's allocator, which can be held to a share.
        shares_calls: windows of one call are one computation, so that one may come out better alone. Otherwise a
            doubtful result of a shared call is not asked for again: it would come again.
        names_model: the model is one of a server's, called by any name, and not of the catalogue.
        takes_speed: it can speak faster and slower.
        streams: it is a `StreamingSynthesiser`, which gives sound before a text is spoken to its end.
        takes_prompt: it speaks with the voice of a recording, where one is given.
    """

    kind: EngineKind
    needs_model: bool
    max_batch: int = 1
    call_timeout_s: float = 600.0
    memory_bytes: int = 0
    doubt: bool = True
    uses_torch: bool = False
    shares_calls: bool = True
    names_model: bool = False
    takes_speed: bool = True
    takes_prompt: bool = False
    streams: bool = False


@runtime_checkable
class Recogniser(Protocol):
    """Turn windows of speech into text."""

    def recognise(self, windows: Sequence[Pcm], options: RecogniseOptions) -> list[WindowResult]:
        """Return one result for each window (at most 30 s each), in order.

        The text is a function of the samples, the options and the weights alone: sampling is seeded by the window.
        """
        ...

    def detect_language(self, window: Pcm) -> tuple[str, float]:
        """Return the ISO 639-1 code of the speech in `window` and its probability 0..1."""
        ...


@runtime_checkable
class Synthesiser(Protocol):
    """Turn short texts into sound."""

    def synthesise(self, texts: Sequence[str], options: SynthesiseOptions) -> list[Sound]:
        """Return the sound of each text (a sentence or less, ready to be read out), in order.

        A text without anything to say gives an empty sound. With a seed, and from engines without sampling, the sound
        is a function of the text, the options and the weights alone.
        """
        ...

    def voices(self) -> list[Voice]:
        """Return the voices, the default first."""
        ...


@runtime_checkable
class StreamingSynthesiser(Synthesiser, Protocol):
    """Turn a text into sound that comes in pieces."""

    def stream(self, text: str, options: SynthesiseOptions) -> Iterator[Sound]:
        """Give the sound of one text in pieces, each as soon as it is there; nothing where nothing can be said.

        Nothing is tried again once a piece was given. To close the iterator ends the work.
        """
        ...


@runtime_checkable
class VoiceActivityDetector(Protocol):
    """Tell speech from everything else."""

    frame_samples: ClassVar[int]
    """Samples of one frame at 16 kHz (512 for silero)."""

    def probabilities(self, block: Pcm, state: bytes) -> tuple[NDArray[np.float32], bytes]:
        """Return the speech probability 0..1 of each frame of `block`, and the state for the next block.

        `state` is empty for the first block of a recording. A block holds a whole number of frames, save the
        last of a recording, which is padded with silence.
        """
        ...


class EngineClass(Protocol):
    """What an entry point of the group `voicejobs.engines` names."""

    name: ClassVar[str]

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts, without importing a model library."""
        ...

    @classmethod
    def load(cls, spec: EngineSpec) -> "Recogniser | Synthesiser | VoiceActivityDetector":
        """Load the model; called once, in the engine process."""
        ...
