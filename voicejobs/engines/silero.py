"""Voice activity detection by silero v6, run through onnxruntime with its state carried from block to block."""

from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm
from voicejobs.engines.base import EngineFacts, EngineSpec
from voicejobs.errors import ExtraMissing, ModelCorrupt
from voicejobs.units import SAMPLE_RATE_HZ

MODEL_SHA256 = "4cbf549b8326f60f80f2536d9eefeb450a9abe83365a098031c89719f1be17d2"
_MODEL_FILE = "assets/silero_vad_v6.onnx"
_CONTEXT_SAMPLES = 64
_HIDDEN = 128
_ROWS_PER_RUN = 2048
"""Frames of one session run (65 s): what bounds the memory of a long block."""
_FULL_SCALE = 32768.0
_TARGET_DB = -20.0
"""Frame level, relative to full scale, that soft sound is raised to."""
_MOST_GAIN_DB = 24.0
_DECAY_DB_PER_S = 10.0
_FLOOR_DB = -120.0


class SileroEngine:
    """Give the speech probability of each 32 ms.

    The model misses soft speech (a second speaker 14 dB below the first was lost whole), so that sound is raised
    first, by a level that follows peaks at once and falls slowly; the loud stays as it is. The state is the LSTM's
    two vectors, the last 64 samples and that level, so that blocks give what the whole would.
    """

    name: ClassVar[str] = "silero"
    frame_samples: ClassVar[int] = 512

    def __init__(self, session: Any) -> None:
        self._session = session

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts; the model travels with the package faster-whisper, so the catalogue need not have it."""
        return EngineFacts(kind="vad", needs_model=False, call_timeout_s=120.0, memory_bytes=110_000_000)

    @classmethod
    def load(cls, spec: EngineSpec) -> Self:
        """Verify the model file and open it.

        Raises:
            ExtraMissing: faster-whisper or onnxruntime is not installed.
            ModelCorrupt: the file is not the one this code was measured with.
        """
        model = model_path().read_bytes()
        found = sha256(model).hexdigest()
        if found != MODEL_SHA256:
            raise ModelCorrupt(
                f"{model_path()} has SHA-256 {found}, expected {MODEL_SHA256}",
                hint="Install faster-whisper 1.2 again: pip install --force-reinstall 'faster-whisper>=1.2,<1.3'.",
            )
        try:
            import onnxruntime
        except ImportError as error:
            raise ExtraMissing("onnxruntime is not installed", hint="pip install 'voicejobs[worker]'") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = spec.threads
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        return cls(onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]))

    def probabilities(self, block: Pcm, state: bytes) -> tuple[NDArray[np.float32], bytes]:
        """Return the probability of each frame of `block` (float32, shape (frames,)), and the state after it."""
        before = _State.unpack(state)
        frames = -(-block.size // self.frame_samples)
        if frames == 0:
            return np.zeros(0, np.float32), before.pack()
        samples = np.zeros(_CONTEXT_SAMPLES + frames * self.frame_samples, np.float32)
        samples[:_CONTEXT_SAMPLES] = before.context
        np.divide(block, np.float32(_FULL_SCALE), out=samples[_CONTEXT_SAMPLES : _CONTEXT_SAMPLES + block.size])
        level_db = _raise_soft(samples[_CONTEXT_SAMPLES:].reshape(frames, -1), before.level_db)
        width = _CONTEXT_SAMPLES + self.frame_samples
        rows = np.lib.stride_tricks.sliding_window_view(samples, width)[:: self.frame_samples]
        hidden, cell = before.hidden, before.cell
        parts: list[NDArray[np.float32]] = []
        for start in range(0, frames, _ROWS_PER_RUN):
            feed = {"input": np.ascontiguousarray(rows[start : start + _ROWS_PER_RUN]), "h": hidden, "c": cell}
            output, hidden, cell = self._session.run(None, feed)
            parts.append(output.reshape(-1))
        return np.concatenate(parts), _State(hidden, cell, samples[-_CONTEXT_SAMPLES:], level_db).pack()


@dataclass(frozen=True, slots=True)
class _State:
    """Hold what one block leaves to the next: hidden and cell vector (1, 1, 128), 64 samples, the level."""

    hidden: NDArray[np.float32]
    cell: NDArray[np.float32]
    context: NDArray[np.float32]
    level_db: float

    def pack(self) -> bytes:
        """Return the state as bytes."""
        level = np.asarray([self.level_db], np.float64)
        return self.hidden.tobytes() + self.cell.tobytes() + self.context.tobytes() + level.tobytes()

    @classmethod
    def unpack(cls, state: bytes) -> Self:
        """Read the bytes of `pack`; empty means that nothing was before."""
        size = 2 * _HIDDEN + _CONTEXT_SAMPLES
        values = np.frombuffer(state, np.float32, size) if state else np.zeros(size, np.float32)
        level_db = float(np.frombuffer(state, np.float64, 1, 4 * size)[0]) if state else _FLOOR_DB
        hidden, cell, context = np.split(values, [_HIDDEN, 2 * _HIDDEN])
        return cls(hidden.reshape(1, 1, -1), cell.reshape(1, 1, -1), context, level_db)


def _raise_soft(frames: NDArray[np.float32], level_db: float) -> float:
    """Raise soft frames in place, shape (frames, samples), and return the level after the last.

    The level of a frame is its own, or that of the frame before less the decay, whichever is higher: written as a
    running maximum over `own + decay * index`, it needs no loop.
    """
    size = frames.shape[1]
    power = np.einsum("ij,ij->i", frames, frames, dtype=np.float64) / size
    slope = _DECAY_DB_PER_S * size / SAMPLE_RATE_HZ * np.arange(1, len(frames) + 1)
    own = 10.0 * np.log10(np.maximum(power, 10.0 ** (_FLOOR_DB / 10)))
    levels = np.maximum(np.maximum.accumulate(own + slope), level_db) - slope
    gain_db = np.clip(_TARGET_DB - levels, 0.0, _MOST_GAIN_DB)
    frames *= (10.0 ** (gain_db / 20)).astype(np.float32)[:, np.newaxis]
    np.clip(frames, -1.0, 1.0, out=frames)
    return float(levels[-1])


def model_path() -> Path:
    """Return where the installed faster-whisper keeps the model, without importing it.

    Raises:
        ExtraMissing: faster-whisper is not installed, or has no such file.
    """
    spec = find_spec("faster_whisper")
    path = Path(spec.origin).parent / _MODEL_FILE if spec is not None and spec.origin else None
    if path is None or not path.is_file():
        raise ExtraMissing(
            f"the package faster-whisper with {_MODEL_FILE} is not installed", hint="pip install 'voicejobs[worker]'"
        )
    return path
