"""What the tests of the voice engine send."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from voicejobs.proto import voice_engine_pb2 as pb

SPEECH = Path(__file__).parents[4] / "shared" / "speech"
RATE_HZ = 16_000
NO_VAD = pb.RecognitionOptions(vad_filter=False)
"""The fake engine hears noise and silence alike, if nobody leaves them out first."""


def noise(seconds: float = 1.0, seed: int = 1) -> bytes:
    """Return noise as 16-bit PCM at 16 kHz."""
    rng = np.random.default_rng(seed)
    return rng.integers(-3000, 3000, round(seconds * RATE_HZ)).astype("<i2").tobytes()


@dataclass(frozen=True, slots=True)
class Recording:
    """Hold a recording as raw 16-bit PCM, the name of that format, and its length."""

    data: bytes
    audio_format: str
    frame_bytes: int
    rate_hz: int
    duration_s: float


def recording(name: str) -> Recording:
    """Return a recording of ../shared/speech, at its own rate and with its own channels, or skip."""
    if not (SPEECH / name).is_file():
        pytest.skip(f"{SPEECH / name} is missing")
    import soundfile

    samples, rate_hz = soundfile.read(SPEECH / name, dtype="int16", always_2d=True)
    frames, channels = samples.shape
    return Recording(samples.tobytes(), f"pcm_s16le_{rate_hz}_{channels}ch", 2 * channels, rate_hz, frames / rate_hz)


def recognize(seconds: float = 1.0) -> pb.RecognizeRequest:
    """Return a request whose sound goes to the engine in one window."""
    return pb.RecognizeRequest(audio_data=noise(seconds), audio_format="pcm_s16le_16k", options=NO_VAD)
