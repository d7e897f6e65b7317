"""What the tests of the voice engine send."""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from voicejobs.proto import voice_engine_pb2 as pb

SPEECH = Path(__file__).parents[4] / "shared" / "speech"
RATE_HZ = 16_000
NO_VAD = pb.RecognitionOptions(vad_filter=False)
"""The fake engine hears noise and silence alike, if nobody leaves them out first."""


def noise(seconds: float = 1.0, seed: int = 1) -> bytes:
    """Return noise as 16-bit PCM at 16 kHz."""
    rng = np.random.default_rng(seed)
    return rng.integers(-3000, 3000, round(seconds * RATE_HZ)).astype("<i2").tobytes()


def speech(name: str) -> NDArray[np.int16]:
    """Return a plain recording of ../shared/speech, 16 kHz mono, or skip."""
    if not (SPEECH / name).is_file():
        if os.environ.get("CI", "").lower() == "true" and SPEECH.is_dir():
            pytest.fail(f"{name} is missing")
        pytest.skip(f"{SPEECH / name} is missing")
    import soundfile

    samples, rate = soundfile.read(SPEECH / name, dtype="int16")
    assert rate == RATE_HZ
    return np.asarray(samples, np.int16)


def recognize(seconds: float = 1.0) -> pb.RecognizeRequest:
    """Return a request whose sound goes to the engine in one window."""
    return pb.RecognizeRequest(audio_data=noise(seconds), audio_format="pcm_s16le_16k", options=NO_VAD)
