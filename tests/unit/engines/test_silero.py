from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm
from voicejobs.engines import silero, silero_frames
from voicejobs.engines.base import EngineSpec, VoiceActivityDetector
from voicejobs.engines.silero import SileroEngine
from voicejobs.errors import ExtraMissing, ModelCorrupt

SHARED = Path(__file__).parents[4] / "shared"
RATE_HZ = 16000


@pytest.fixture(scope="module")
def engine() -> SileroEngine:
    """Return the loaded detector."""
    pytest.importorskip("onnxruntime", reason="the extra worker is not installed")
    return SileroEngine.load(EngineSpec("silero"))


def speech(name: str) -> Pcm:
    """Return the samples of a plain recording of ../shared/speech, or skip."""
    path = SHARED / "speech" / name
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    import soundfile

    samples, rate = soundfile.read(path, dtype="int16", always_2d=True)
    assert rate == RATE_HZ
    return np.asarray(samples[:, 0], np.int16)


def run(engine: SileroEngine, samples: Pcm) -> NDArray[np.float32]:
    """Return the probabilities of a whole recording."""
    return engine.probabilities(samples, b"")[0]


@pytest.mark.parametrize("frames", [1, 3, 64, 200])
def test_blocks_give_what_the_whole_gives(engine: SileroEngine, frames: int) -> None:
    """The state carries everything from block to block, the level of soft speech included."""
    samples = np.concatenate([speech("pv_l_test.wav"), speech("ps_austen_0890.wav") // 20])
    whole = run(engine, samples)
    state, parts = b"", []
    for start in range(0, samples.size, frames * engine.frame_samples):
        part, state = engine.probabilities(samples[start : start + frames * engine.frame_samples], state)
        parts.append(part)
    assert np.abs(np.concatenate(parts) - whole).max() < 1e-5
    assert whole.shape == (-(-samples.size // engine.frame_samples),)
    assert whole.dtype == np.float32
    assert isinstance(engine, VoiceActivityDetector)


def test_long_blocks_are_run_in_parts_that_join_without_a_seam(
    engine: SileroEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound on the memory of a session run does not change the result."""
    samples = speech("pv_l_test.wav")
    whole = run(engine, samples)
    monkeypatch.setattr(silero_frames, "_ROWS_PER_RUN", 17)
    assert np.abs(run(engine, samples) - whole).max() < 1e-5


def test_an_empty_block_leaves_the_state_as_it_was(engine: SileroEngine) -> None:
    """No samples, no frames, and the next block goes on from before."""
    _, state = engine.probabilities(speech("pv_l_test.wav")[:5120], b"")
    found, after = engine.probabilities(np.zeros(0, np.int16), state)
    assert found.size == 0
    assert after == state


def test_speech_is_told_from_noise_hum_clicks_and_silence(engine: SileroEngine) -> None:
    """Only speech passes the threshold, at any loudness of the rest."""
    rng = np.random.default_rng(2)
    time_s = np.arange(10 * RATE_HZ) / RATE_HZ
    hum = 3000 * np.sin(2 * np.pi * 50 * time_s) + 1000 * np.sin(2 * np.pi * 150 * time_s)
    others = {
        "silence": np.zeros(time_s.size),
        "hiss": rng.normal(0, 300, time_s.size),
        "soft hiss": rng.normal(0, 8, time_s.size),
        "hum": hum,
        "soft hum": hum / 50,
        "clicks": (rng.random(time_s.size) > 0.9999) * 20000.0,
    }
    for name, samples in others.items():
        assert run(engine, samples.astype(np.int16)).max() < 0.45, name
    assert (run(engine, speech("pv_l_test.wav")) > 0.5).mean() > 0.7


def test_soft_speech_after_loud_speech_is_heard(engine: SileroEngine) -> None:
    """A second speaker 26 dB below the first is found nearly as well as alone at full level."""
    loud, other = speech("pv_l_test.wav"), speech("ps_austen_0890.wav")
    alone = (run(engine, other) > 0.5).sum()
    after = run(engine, np.concatenate([loud, np.zeros(RATE_HZ, np.int16), other // 20]))
    found = (after[-(-(loud.size + RATE_HZ) // 512) :] > 0.5).sum()
    assert found > 0.8 * alone


def test_a_changed_model_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing unverified is loaded."""
    fake = tmp_path / "model.onnx"
    fake.write_bytes(b"not the model")
    monkeypatch.setattr(silero, "model_path", lambda: fake)
    with pytest.raises(ModelCorrupt, match="SHA-256"):
        SileroEngine.load(EngineSpec("silero"))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without faster-whisper the error says what to install."""
    monkeypatch.setattr(silero, "find_spec", lambda _: None)
    with pytest.raises(ExtraMissing, match="faster-whisper"):
        silero.model_path()
