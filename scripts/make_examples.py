"""Make the recordings in examples/ again: our sentences, read by the voice en_US-joe-medium.

Needs the extras `piper` and `worker`: `.venv/bin/python scripts/make_examples.py`.
"""

from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from voicejobs.models.pull import ensure
from voicejobs.settings import Settings

EXAMPLES = Path(__file__).parents[1] / "examples"
VOICE = "en_US-joe-medium"
SEED = 1953
"""The voice draws noise; with a seed the same versions of its packages give the same sound."""

RECORDINGS = {
    "grandmother.wav": (
        "pcm_s16le",
        16_000,
        "My grandmother kept a tape recorder under her bed, and every Sunday one of us had to tell it a story.",
    ),
    "harbor.flac": (
        "flac",
        22_050,
        "This is the harbor, early in the morning. You can hear the water, a church bell, and far away a radio.",
    ),
    "village hall/choir practice.m4a": (
        "aac",
        22_050,
        "The choir met on Thursday evenings. One winter the stove broke, and everybody sang in warm winter coats.",
    ),
}


def main() -> None:
    """Write every recording."""
    import onnxruntime
    from piper import PiperVoice

    files = ensure(VOICE, Settings.from_env())
    for name, (codec, rate_hz, text) in RECORDINGS.items():
        onnxruntime.set_seed(SEED)
        voice = PiperVoice.load(files.dir / f"{VOICE}.onnx")
        chunks = list(voice.synthesize(text))
        pause = np.zeros(chunks[0].sample_rate // 3, np.int16)
        sound = np.concatenate([part for chunk in chunks for part in (pause, chunk.audio_int16_array)] + [pause])
        write(EXAMPLES / name, codec, rate_hz, sound, chunks[0].sample_rate)
        seconds = len(sound) / chunks[0].sample_rate
        print(f"{name}: {seconds:.1f} s, {(EXAMPLES / name).stat().st_size / 1000:.0f} kB")


def write(path: Path, codec: str, rate_hz: int, sound: NDArray[np.int16], sound_rate_hz: int) -> None:
    """Encode mono int16 `sound` into the container that the name of the file asks for."""
    import av
    from av.audio.stream import AudioStream

    path.parent.mkdir(parents=True, exist_ok=True)
    frame = av.AudioFrame.from_ndarray(sound.reshape(1, -1), format="s16", layout="mono")
    frame.sample_rate = sound_rate_hz
    frame.time_base = Fraction(1, sound_rate_hz)
    frame.pts = 0
    with av.open(path, "w") as container:
        stream = container.add_stream(codec, rate=rate_hz, layout="mono")
        if not isinstance(stream, AudioStream):
            raise TypeError(f"{codec} is no audio codec")
        if codec == "aac":
            stream.bit_rate = 48_000
        for packet in stream.encode(frame):
            container.mux(packet)
        for packet in stream.encode(None):
            container.mux(packet)


if __name__ == "__main__":
    main()
