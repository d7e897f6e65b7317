"""The whisper engine on real weights, where they are installed."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from voicejobs.audio.types import Pcm
from voicejobs.engines.base import EngineSpec, RecogniseOptions
from voicejobs.engines.whisper import WhisperEngine
from voicejobs.errors import BadOption
from voicejobs.hosting.host import EngineHost

SPEECH = Path(__file__).parents[4] / "shared" / "speech"
MakeHost = Callable[..., EngineHost]
pytestmark = [pytest.mark.models, pytest.mark.timeout(180)]


SpecOf = Callable[[str], EngineSpec]


@pytest.fixture
def spec_of(models_dir: Path) -> SpecOf:
    """Return a maker of specs of installed models, which skips where one is missing."""

    def make(name: str) -> EngineSpec:
        folder = models_dir / name
        if not (folder / "model.bin").is_file():
            reason = f"model {name} is not installed in {folder}: voicejobs models pull {name}"
            if os.environ.get("CI", "").lower() == "true":
                pytest.fail(reason)
            pytest.skip(reason)
        return EngineSpec("whisper", name, str(folder))

    return make


def read(name: str) -> Pcm:
    """Return the samples of a plain 16 kHz recording of ../shared/speech, or skip."""
    if not (SPEECH / name).is_file():
        pytest.skip(f"{SPEECH / name} is missing")
    import soundfile

    samples, rate = soundfile.read(SPEECH / name, dtype="int16")
    assert rate == 16000
    return np.asarray(samples, np.int16)


def words(recogniser: object, window: Pcm, options: RecogniseOptions) -> str:
    """Return the text of one window in lower case."""
    assert isinstance(recogniser, WhisperEngine)
    (result,) = recogniser.recognise([window], options)
    return "".join(segment.text for segment in result.segments).lower()


def test_tiny_en_recognises_speech_with_word_times(spec_of: SpecOf) -> None:
    """A sentence comes out right, its times ordered and inside the window."""
    engine = WhisperEngine.load(spec_of("tiny.en"))
    window = read("pv_l_test.wav")
    (result,) = engine.recognise([window], RecogniseOptions(language="en", word_timestamps=True))
    assert "apostle of the middle classes" in "".join(segment.text for segment in result.segments).lower()
    times = [time for segment in result.segments for word in segment.words for time in (word.start_s, word.end_s)]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] <= window.size / 16000
    segment = result.segments[0]
    assert segment.tokens
    assert segment.avg_logprob is not None
    assert segment.avg_logprob < 0
    assert result.language == "en"
    assert engine.recognise([np.zeros(0, np.int16)], RecogniseOptions())[0].segments == ()


def test_an_english_model_refuses_other_languages_and_translation(spec_of: SpecOf) -> None:
    """A wrong language is an error, not a wrong text."""
    engine = WhisperEngine.load(spec_of("tiny.en"))
    window = np.zeros(16000, np.int16)
    with pytest.raises(BadOption, match="'de'"):
        engine.recognise([window], RecogniseOptions(language="de"))
    with pytest.raises(BadOption, match="translate"):
        engine.recognise([window], RecogniseOptions(task="translate"))
    assert engine.detect_language(window) == ("en", 1.0)


def test_fallback_sampling_depends_on_the_window_alone(spec_of: SpecOf) -> None:
    """A window that is sampled gives the same text first, after other windows, and in a new process."""
    spec = spec_of("tiny.en")
    rng = np.random.default_rng(3)
    speech = read("ps_austen_0890.wav").astype(np.float64)
    noisy = np.clip(speech + rng.normal(0, 2500, speech.size), -32768, 32767).astype(np.int16)
    other = np.clip(speech[::-1] + rng.normal(0, 2500, speech.size), -32768, 32767).astype(np.int16)
    options = RecogniseOptions(language="en", temperatures=(1.0,), beam_size=1)
    engine = WhisperEngine.load(spec)
    first = words(engine, noisy, options)
    assert words(engine, other, options) != first
    assert words(engine, noisy, options) == first
    assert words(WhisperEngine.load(spec), noisy, options) == first


def test_base_tells_languages_and_shares_work_between_processes(spec_of: SpecOf, make_host: MakeHost) -> None:
    """The multilingual model knows French from English, through the engine processes."""
    recogniser = make_host(2).recogniser(spec_of("base"))
    french, english = read("pv_l_test_fr.wav"), read("pv_l_test.wav")
    found = recogniser.recognise([french, english], RecogniseOptions())
    assert [result.language for result in found] == ["fr", "en"]
    language, probability = recogniser.detect_language(french)
    assert language == "fr"
    assert 0.5 < probability <= 1


def test_the_worker_itself_imports_no_model_library() -> None:
    """Neither the host nor the engine classes pull a model library into the process of the worker."""
    code = (
        "import sys, voicejobs.hosting.host, voicejobs.engines.registry as r, voicejobs.engines.base as b\n"
        "[r.engine_class(name).facts(b.EngineSpec(name)) for name in r.list_engines()]\n"
        "print([m for m in ('torch','ctranslate2','onnxruntime','faster_whisper','av') if m in sys.modules])\n"
    )
    python = sys.executable
    assert subprocess.check_output([python, "-c", code], text=True).strip() == "[]"
