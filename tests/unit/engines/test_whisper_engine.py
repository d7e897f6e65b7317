from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from voicejobs.engines.base import EngineSpec, RecogniseOptions
from voicejobs.engines.whisper import WhisperEngine
from voicejobs.errors import BadOption, ModelUnavailable


def test_a_missing_model_is_named_with_its_remedy(tmp_path: Path) -> None:
    """A folder without weights ends in an error that says which command fetches them."""
    for folder in ("", str(tmp_path)):
        with pytest.raises(ModelUnavailable) as caught:
            WhisperEngine.load(EngineSpec("whisper", "base", folder))
        assert "voicejobs models pull base" in caught.value.hint


def test_memory_follows_the_size_of_the_weights(tmp_path: Path) -> None:
    """Admission can tell a large model from a small one before it is loaded."""
    with (tmp_path / "model.bin").open("wb") as file:
        file.truncate(145_217_532)
    facts = WhisperEngine.facts(EngineSpec("whisper", "base", str(tmp_path)))
    assert 350_000_000 < facts.memory_bytes < 450_000_000
    assert facts.max_batch == 1
    assert facts.needs_model


class Model:
    """Stand in for faster-whisper's model: keep each call, answer from a list."""

    is_multilingual = True
    supported_languages: ClassVar[list[str]] = ["en", "de"]

    def __init__(self, *answers: list[SimpleNamespace]) -> None:
        self.model = self
        self.answers = list(answers)
        self.calls: list[dict[str, Any]] = []

    def transcribe(self, audio: Any, **options: Any) -> tuple[list[SimpleNamespace], SimpleNamespace]:
        """Return the next answer."""
        self.calls.append(options)
        return self.answers.pop(0), SimpleNamespace(language="en", language_probability=0.9)


def phrase(logprob: float = -0.2, ratio: float = 1.0) -> list[SimpleNamespace]:
    """Return one segment as faster-whisper gives it, its end behind that of the window."""
    return [
        SimpleNamespace(
            start=0.0, end=9.0, text=" hello", words=None, tokens=[1], temperature=0.0, avg_logprob=logprob,
            compression_ratio=ratio, no_speech_prob=0.1,
        )
    ]  # fmt: skip


def test_every_option_reaches_faster_whisper() -> None:
    """The names differ here and there; no option is dropped on the way."""
    model = Model(phrase())
    options = RecogniseOptions(
        language="de", task="translate", word_timestamps=True, beam_size=2, best_of=3, patience=1.5,
        length_penalty=0.9, repetition_penalty=1.1, no_repeat_ngram_size=4, suppress_tokens=(-1, 7),
        temperatures=(0.0,), compression_ratio_threshold=2.0, logprob_threshold=None, no_speech_threshold=0.5,
        condition_on_previous_text=True, initial_prompt="Glossary", hotwords="Celery",
    )  # fmt: skip
    (result,) = WhisperEngine(model, EngineSpec("whisper", "base")).recognise([np.zeros(16000, np.int16)], options)
    assert result.segments[0].end_s == 1.0
    assert model.calls == [
        {
            "language": "de", "task": "translate", "word_timestamps": True, "beam_size": 2, "best_of": 3,
            "patience": 1.5, "length_penalty": 0.9, "repetition_penalty": 1.1, "no_repeat_ngram_size": 4,
            "suppress_tokens": [-1, 7], "temperature": [0.0], "compression_ratio_threshold": 2.0,
            "log_prob_threshold": None, "no_speech_threshold": 0.5, "condition_on_previous_text": True,
            "initial_prompt": "Glossary", "hotwords": "Celery", "vad_filter": False,
        }
    ]  # fmt: skip


def test_the_ladder_is_climbed_by_the_limits_that_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """A doubtful window is decoded with all temperatures, unless the user has lifted that limit."""
    monkeypatch.setattr(WhisperEngine, "_seed", lambda self, seed: None)
    window = np.zeros(16000, np.int16)
    cases: list[tuple[dict[str, Any], list[SimpleNamespace], int]] = [
        ({}, phrase(-1.2), 2),
        ({"logprob_threshold": None}, phrase(-1.2), 1),
        ({"logprob_threshold": -1.5}, phrase(-1.2), 1),
        ({}, phrase(-0.2, 3.0), 2),
        ({"compression_ratio_threshold": None}, phrase(-0.2, 3.0), 1),
        ({"temperatures": (0.0,)}, phrase(-1.2), 1),
    ]
    for changes, answer, calls in cases:
        model = Model(answer, phrase())
        WhisperEngine(model, EngineSpec("whisper", "base")).recognise([window], replace(RecogniseOptions(), **changes))
        assert len(model.calls) == calls, changes


def test_a_gpu_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker says what to do, before CTranslate2 fails in words of its own."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 0)
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(BadOption, match="cuda:0") as caught:
        WhisperEngine.load(EngineSpec("whisper", "base", str(tmp_path), device="cuda:0"))
    assert "--device cpu" in caught.value.hint
