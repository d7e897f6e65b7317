"""Decoder, detector and planner on real recordings: speech is found, and nothing else is."""

from pathlib import Path

import numpy as np
import pytest

from voicejobs.audio.decode import DecodeOptions, decode
from voicejobs.audio.types import Pcm, Span
from voicejobs.engines.base import EngineSpec
from voicejobs.engines.silero import SileroEngine
from voicejobs.errors import InputError
from voicejobs.steps.windows import plan_windows, speech_spans

SHARED = Path(__file__).parents[4] / "shared"
SPEECH = sorted(path for path in (SHARED / "speech").glob("*.*") if path.suffix not in {".jsonl", ".raw"})
NO_SPEECH = ("silence-30s/muted.wav", "music-only-40s/hold music.ogg", "click-50ms/tap.wav")


@pytest.fixture(scope="module")
def engine() -> SileroEngine:
    """Return the loaded detector."""
    pytest.importorskip("onnxruntime", reason="the extra worker is not installed")
    pytest.importorskip("av", reason="the extra worker is not installed")
    return SileroEngine.load(EngineSpec("silero"))


def samples_of(path: Path) -> Pcm:
    """Return the first channel of a recording, or skip."""
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    try:
        with decode(path, DecodeOptions()) as audio:
            return np.concatenate([np.zeros(0, np.int16), *(block[0] for block in audio.blocks())])
    except InputError as error:
        pytest.skip(f"not decoded here: {error.message}")


def windows_of(engine: SileroEngine, samples: Pcm) -> tuple[list[Span], list[Span]]:
    """Return speech and windows."""
    found, _ = engine.probabilities(samples, b"")
    spans = speech_spans(found, samples.size, engine.frame_samples)
    return spans, plan_windows(spans, samples.size)


@pytest.mark.skipif(not SPEECH, reason=f"{SHARED / 'speech'} is missing")
@pytest.mark.parametrize("path", SPEECH, ids=lambda path: path.name)
def test_every_recording_of_speech_has_windows(engine: SileroEngine, path: Path) -> None:
    """Speech is never lost, however short, soft or narrow, and packing needs few windows."""
    samples = samples_of(path)
    spans, windows = windows_of(engine, samples)
    assert sum(span.length_samples for span in spans) >= 0.1 * samples.size
    assert 1 <= len(windows) <= 1 + samples.size / (20 * 16000)


@pytest.mark.parametrize("name", NO_SPEECH)
def test_silence_music_and_a_click_have_no_windows(engine: SileroEngine, name: str) -> None:
    """What holds no speech never reaches the recogniser, which would invent a text."""
    assert windows_of(engine, samples_of(SHARED / "cases" / name)) == ([], [])


def test_speech_after_a_long_silence_is_found_at_its_place(engine: SileroEngine) -> None:
    """The window lies over the speech, not over the forty silent seconds before it."""
    samples = samples_of(SHARED / "cases" / "silent-first-40s" / "late start.flac")
    _, windows = windows_of(engine, samples)
    assert len(windows) == 1
    assert windows[0].start_samples >= 39 * 16000


def test_the_soft_second_speaker_of_a_mixed_call_is_kept(engine: SileroEngine) -> None:
    """Both halves of a recording whose second speaker is much softer are covered."""
    samples = samples_of(SHARED / "speech" / "mfa_michaelandsickmichael.wav")
    _, windows = windows_of(engine, samples)
    covered = sum(max(0, window.end_samples - max(window.start_samples, samples.size // 2)) for window in windows)
    assert covered > 0.8 * samples.size / 2
