"""The detector on torch: against its model's own forward, against the detector on onnxruntime, and what it refuses."""

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm
from voicejobs.engines import silero_frames
from voicejobs.engines.base import EngineSpec, VoiceActivityDetector
from voicejobs.engines.silero import SileroEngine
from voicejobs.engines.silero_torch import MODEL_FILE, SileroTorchEngine
from voicejobs.errors import ExtraMissing, ModelCorrupt, ModelUnavailable
from voicejobs.models.installed import resolve
from voicejobs.settings import Settings

SHARED = Path(__file__).parents[4] / "shared"
RATE_HZ = 16000
RECORDINGS = ["pv_l_test.wav", "ps_austen_0890.wav", "sb_spk1_snt1.wav", "mfa_michaelandsickmichael.wav"]
PROBABLE = 0.45
"""Where speech begins, as `prepare` has it by default."""


@pytest.fixture(scope="module")
def folder(models_dir: Path) -> Path:
    """Return the folder of the verified model, or skip."""
    pytest.importorskip("torch", reason="torch is not installed")
    try:
        return resolve("silero-vad", Settings(models_dir, models_dir)).dir
    except ModelUnavailable as error:
        pytest.skip(error.message)


@pytest.fixture(scope="module")
def engine(folder: Path) -> SileroTorchEngine:
    """Return the loaded detector."""
    return SileroTorchEngine.load(EngineSpec("silero_torch", model_dir=str(folder)))


def speech(name: str) -> Pcm:
    """Return the samples of a plain recording of ../shared/speech, or skip."""
    path = SHARED / "speech" / name
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    import soundfile

    samples, rate = soundfile.read(path, dtype="int16", always_2d=True)
    assert rate == RATE_HZ
    return np.asarray(samples[:, 0], np.int16)


def run(engine: SileroTorchEngine | SileroEngine, samples: Pcm) -> NDArray[np.float32]:
    """Return the probabilities of a whole recording."""
    return engine.probabilities(samples, b"")[0]


def spoken(probabilities: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return which frames count as speech: from `PROBABLE` on, down to 0.25 below."""
    found, on = [], False
    for value in probabilities:
        on = value >= (PROBABLE - 0.25 if on else PROBABLE)
        found.append(on)
    return np.asarray(found)


@pytest.mark.models
def test_its_parts_give_what_the_model_gives_frame_by_frame(engine: SileroTorchEngine, folder: Path) -> None:
    """All frames at once, through a layer with the cell's weights, are the model's own forward with its own state."""
    import torch

    samples = speech("pv_l_test.wav")
    frames = np.zeros((-(-samples.size // 512), 512), np.float32)
    frames.reshape(-1)[: samples.size] = samples / np.float32(32768.0)
    silero_frames._raise_soft(frames, -120.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model: Any = torch.jit.load(folder / MODEL_FILE)
    own = [model(torch.from_numpy(frame[np.newaxis]), RATE_HZ).item() for frame in frames]
    assert np.abs(run(engine, samples) - np.asarray(own)).max() < 1e-4


@pytest.mark.models
@pytest.mark.parametrize("frames", [1, 64])
def test_blocks_give_what_the_whole_gives(engine: SileroTorchEngine, frames: int) -> None:
    """The state carries everything from block to block, as bytes, the level of soft speech included."""
    samples = np.concatenate([speech("pv_l_test.wav"), speech("ps_austen_0890.wav") // 20])
    whole = run(engine, samples)
    state, parts = b"", []
    for start in range(0, samples.size, frames * engine.frame_samples):
        part, state = engine.probabilities(samples[start : start + frames * engine.frame_samples], state)
        parts.append(part)
    assert np.abs(np.concatenate(parts) - whole).max() < 1e-4
    assert whole.dtype == np.float32
    assert isinstance(engine, VoiceActivityDetector)


@pytest.mark.models
@pytest.mark.parametrize("name", RECORDINGS)
def test_it_decides_as_the_other_detector_does(engine: SileroTorchEngine, name: str) -> None:
    """They are two releases of one model: their numbers differ, their decisions in one frame of ten at most."""
    pytest.importorskip("onnxruntime", reason="the extra worker is not installed")
    samples = speech(name)
    other = SileroEngine.load(EngineSpec("silero"))
    assert (spoken(run(engine, samples)) == spoken(run(other, samples))).mean() > 0.9


@pytest.mark.models
def test_speech_is_told_from_noise_hum_and_silence(engine: SileroTorchEngine) -> None:
    """Only speech passes the threshold."""
    rng = np.random.default_rng(2)
    time_s = np.arange(10 * RATE_HZ) / RATE_HZ
    hum = 3000 * np.sin(2 * np.pi * 50 * time_s)
    for name, samples in {"silence": 0 * time_s, "hiss": rng.normal(0, 300, time_s.size), "hum": hum}.items():
        assert run(engine, samples.astype(np.int16)).max() < PROBABLE, name
    assert (run(engine, speech("pv_l_test.wav")) > PROBABLE).mean() > 0.7


@pytest.mark.parametrize("content", [b"", b"not a model"])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    """The error names the file and the command that brings the right one."""
    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / MODEL_FILE).write_bytes(content)
    with pytest.raises(ModelCorrupt, match=MODEL_FILE) as caught:
        SileroTorchEngine.load(EngineSpec("silero_torch", model_dir=str(tmp_path)))
    assert "models pull silero-vad" in caught.value.hint


def test_without_torch_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without torch gets a sentence and no traceback."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ExtraMissing, match="torch") as caught:
        SileroTorchEngine.load(EngineSpec("silero_torch"))
    assert "voicejobs[gpu]" in caught.value.hint


def test_its_facts_need_no_torch() -> None:
    """A process that only looks at the engine does not load torch, and learns that torch can hold it to a share."""
    code = (
        "import sys; from voicejobs.engines.registry import engine_class;"
        "from voicejobs.engines.base import EngineSpec;"
        "facts = engine_class('silero_torch').facts(EngineSpec('silero_torch'));"
        "assert facts.uses_torch and facts.needs_model and facts.kind == 'vad'; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
