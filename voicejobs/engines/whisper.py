"""Recognition by faster-whisper on CTranslate2: each window decoded alone, its fallback sampling seeded by it."""

import gc
from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import Any, ClassVar, Self
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm, Segment, WindowResult, Word
from voicejobs.engines.base import EngineFacts, EngineSpec, RecogniseOptions
from voicejobs.engines.cuda_libraries import preload
from voicejobs.errors import BadOption, ExtraMissing, ModelUnavailable
from voicejobs.units import samples_to_seconds

_FULL_SCALE = 32768.0
_MEMORY_BASE = 210_000_000
"""Resident bytes of Python, numpy, CTranslate2 and the buffers of a decode; the weights come on top."""
_MEMORY_OF_WEIGHTS = 1.25
"""Resident bytes for each byte of model.bin, at the peak: loading converts the weights."""


class WhisperEngine:
    """Turn windows of speech into text with a CTranslate2 whisper model from a local folder.

    CTranslate2 reads the random seed only when a worker thread samples for the first time. So a window is decoded
    at temperature 0 first, which uses no random numbers, and only if that looks bad with the whole ladder, in a
    worker thread that never sampled before: the text is a function of the window, not of what came before it.
    """

    name: ClassVar[str] = "whisper"

    def __init__(self, model: Any, spec: EngineSpec) -> None:
        self._model = model
        self._spec = spec
        self._sampled = False

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts.

        `max_batch` is 1: on a CPU a window costs the same alone and in a batch of 8 (1.9 s with base) while memory
        grows from 353 MB to 1 GB, so that the gain there is more processes; windows are decoded one by one on
        other devices too.
        """
        return EngineFacts(
            kind="recogniser", needs_model=True, max_batch=1, call_timeout_s=300.0, memory_bytes=_memory_bytes(spec)
        )

    @classmethod
    def load(cls, spec: EngineSpec) -> Self:
        """Load the model from `spec.model_dir`.

        Raises:
            ExtraMissing: faster-whisper is not installed.
            ModelUnavailable: the folder does not hold a CTranslate2 model.
            BadOption: there is no such GPU.
        """
        folder = Path(spec.model_dir)
        if not spec.model_dir or not (folder / "model.bin").is_file():
            raise ModelUnavailable(
                f"{spec.model_dir or 'no folder given'}: no model.bin of {spec.model!r} there",
                hint=f"Run `voicejobs models pull {spec.model or 'NAME'}`.",
            )
        try:
            from faster_whisper import WhisperModel
        except ImportError as error:
            raise ExtraMissing("faster-whisper is not installed", hint="pip install 'voicejobs[worker]'") from error
        device, index = _device(spec)
        _check_device(device, index)
        if device == "cuda":
            preload()
        model = WhisperModel(
            str(folder),
            device=device,
            device_index=index,
            compute_type=_compute_type(spec),
            cpu_threads=spec.threads,
            num_workers=1,
            local_files_only=True,
        )
        return cls(model, spec)

    def recognise(self, windows: Sequence[Pcm], options: RecogniseOptions) -> list[WindowResult]:
        """Return one result for each window, in order.

        Raises:
            BadOption: the model does not know the language or the task.
        """
        self._check(options)
        return [self._recognise_one(window, options) for window in windows]

    def detect_language(self, window: Pcm) -> tuple[str, float]:
        """Return the ISO 639-1 code of the speech in `window` and its probability 0..1."""
        if not self._model.model.is_multilingual:
            return "en", 1.0
        language, probability, _ = self._model.detect_language(audio=_to_float(window))
        return str(language), float(probability)

    def _check(self, options: RecogniseOptions) -> None:
        """Refuse what the model cannot do."""
        known = self._model.supported_languages
        if options.language is not None and options.language not in known:
            only = "it knows English alone" if known == ["en"] else "docs/engines.md tells where the codes come from"
            raise BadOption(
                f"model {self._spec.model!r} does not know the language {options.language!r}",
                hint=f"Use another model or language: {only}.",
            )
        if options.task == "translate" and known == ["en"]:
            raise BadOption(f"model {self._spec.model!r} cannot translate", hint="Use a multilingual model.")

    def _recognise_one(self, window: Pcm, options: RecogniseOptions) -> WindowResult:
        """Decode one window, at temperature 0 and, if the result looks bad, down the whole ladder."""
        if window.size == 0:
            return WindowResult((), options.language, None)
        audio = _to_float(window)
        probability: float | None = None
        if not options.temperatures or options.temperatures[0] == 0:
            first = self._decode(audio, replace(options, temperatures=(0.0,)))
            if not options.temperatures[1:] or not _looks_bad(first, options):
                return first
            # The language is told by now; telling it again would cost one more encoder pass.
            options = replace(options, language=first.language)
            probability = first.language_probability
        self._seed(crc32(np.ascontiguousarray(window).tobytes()))
        found = self._decode(audio, options)
        return found if probability is None else replace(found, language_probability=probability)

    def _seed(self, seed: int) -> None:
        """Make the next sampling start from `seed`: takes a fresh worker thread if this one has sampled."""
        import ctranslate2

        if self._sampled:
            self._model.model = None  # the old weights go first, so that memory does not double
            gc.collect()
            device, index = _device(self._spec)
            self._model.model = ctranslate2.models.Whisper(
                self._spec.model_dir,
                device=device,
                device_index=index,
                compute_type=_compute_type(self._spec),
                intra_threads=self._spec.threads,
                inter_threads=1,
            )
        self._sampled = True
        ctranslate2.set_random_seed(seed)

    def _decode(self, audio: NDArray[np.float32], options: RecogniseOptions) -> WindowResult:
        """Run faster-whisper over one window."""
        found, info = self._model.transcribe(
            audio,
            language=options.language,
            task=options.task,
            beam_size=options.beam_size,
            best_of=options.best_of,
            patience=options.patience,
            length_penalty=options.length_penalty,
            repetition_penalty=options.repetition_penalty,
            no_repeat_ngram_size=options.no_repeat_ngram_size,
            suppress_tokens=list(options.suppress_tokens),
            temperature=list(options.temperatures),
            compression_ratio_threshold=options.compression_ratio_threshold,
            log_prob_threshold=options.logprob_threshold,
            no_speech_threshold=options.no_speech_threshold,
            condition_on_previous_text=options.condition_on_previous_text,
            initial_prompt=options.initial_prompt or None,
            hotwords=options.hotwords or None,
            word_timestamps=options.word_timestamps,
            vad_filter=False,
        )
        end_s = samples_to_seconds(audio.size)
        segments = tuple(_convert(segment, end_s) for segment in found)
        return WindowResult(segments, info.language, float(info.language_probability))


def _looks_bad(result: WindowResult, options: RecogniseOptions) -> bool:
    """Tell whether faster-whisper would have gone on to the next temperature somewhere in this window."""
    most = inf if options.compression_ratio_threshold is None else options.compression_ratio_threshold
    least = -inf if options.logprob_threshold is None else options.logprob_threshold
    return not result.segments or any(
        (segment.compression_ratio or 0.0) > most or (segment.avg_logprob or 0.0) < least for segment in result.segments
    )


def _convert(segment: Any, end_s: float) -> Segment:
    """Return faster-whisper's segment as ours, its times inside the window."""
    words = tuple(
        Word(*_clamp(word.start, word.end, end_s), str(word.word), _finite(word.probability))
        for word in segment.words or ()
    )
    return Segment(
        *_clamp(segment.start, segment.end, end_s),
        text=str(segment.text),
        words=words,
        tokens=tuple(int(token) for token in segment.tokens),
        temperature=_finite(segment.temperature),
        avg_logprob=_finite(segment.avg_logprob),
        compression_ratio=_finite(segment.compression_ratio),
        no_speech_prob=_finite(segment.no_speech_prob),
    )


def _clamp(start_s: float, stop_s: float, end_s: float) -> tuple[float, float]:
    """Return both times inside 0..`end_s`, the second not before the first; what is no number counts as 0."""
    start = min(max(_finite(start_s) or 0.0, 0.0), end_s)
    return start, min(max(_finite(stop_s) or 0.0, start), end_s)


def _finite(value: float) -> float | None:
    """Return the number, None for NaN and infinity, which JSON cannot hold."""
    return float(value) if isfinite(value) else None


def _to_float(window: Pcm) -> NDArray[np.float32]:
    """Return float32 samples, full scale 1."""
    return window.astype(np.float32) / np.float32(_FULL_SCALE)


def _device(spec: EngineSpec) -> tuple[str, int]:
    """Split `cuda:1` into what CTranslate2 wants."""
    kind, _, index = spec.device.partition(":")
    return kind, int(index or 0)


def _check_device(device: str, index: int) -> None:
    """Refuse a GPU that is not there, before CTranslate2 does in words of its own."""
    import ctranslate2

    if device == "cuda" and index >= ctranslate2.get_cuda_device_count():
        raise BadOption(
            f"the worker has no GPU cuda:{index} that CTranslate2 can use",
            hint="Use --device cpu, or install the CUDA libraries that CTranslate2 asks for.",
        )


def _compute_type(spec: EngineSpec) -> str:
    """Return the number format: int8 on a CPU, float16 on a GPU, unless the spec says."""
    return spec.compute_type or ("int8" if _device(spec)[0] == "cpu" else "float16")


def _memory_bytes(spec: EngineSpec) -> int:
    """Estimate the resident memory from the size of the weights (docs/engines.md has what was measured)."""
    try:
        return _MEMORY_BASE + int(_MEMORY_OF_WEIGHTS * (Path(spec.model_dir) / "model.bin").stat().st_size)
    except OSError:
        return 2 * _MEMORY_BASE
