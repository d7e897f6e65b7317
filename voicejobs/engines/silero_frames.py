"""What silero's model is given and leaves, whichever runtime runs it: framing, level and state.

The model misses soft speech (a second speaker 14 dB below the first was lost whole), so that sound is raised first, by
a level that follows peaks at once and falls slowly; the loud stays as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm
from voicejobs.units import SAMPLE_RATE_HZ

FRAME_SAMPLES = 512
_HIDDEN = 128
"""Length of each of the LSTM's two vectors."""

_CONTEXT_SAMPLES = 64
_ROWS_PER_RUN = 2048
"""Frames of one run (65 s): what bounds the memory of a long block."""
_FULL_SCALE = 32768.0
_TARGET_DB = -20.0
"""Frame level, relative to full scale, that soft sound is raised to."""
_MOST_GAIN_DB = 24.0
_DECAY_DB_PER_S = 10.0
_FLOOR_DB = -120.0

Vectors = NDArray[np.float32]
Run = Callable[[Vectors, Vectors, Vectors], tuple[Vectors, Vectors, Vectors]]
"""Run the model: rows of 576 samples (the last 64 of the frame before, then the frame; float32, shape (frames, 576)),
hidden and cell vector (1, 1, 128) in; probability of each frame (float32), hidden and cell vector out."""


def speech_probabilities(block: Pcm, state: bytes, run: Run) -> tuple[NDArray[np.float32], bytes]:
    """Return the probability of each frame of `block` (float32, shape (frames,)), and the state after it.

    Args:
        block: whole frames, save the last of a recording, which is padded with silence.
        state: what the block before returned, empty for the first.
        run: the model.
    """
    before = _State.unpack(state)
    frames = -(-block.size // FRAME_SAMPLES)
    if frames == 0:
        return np.zeros(0, np.float32), before.pack()
    samples = np.zeros(_CONTEXT_SAMPLES + frames * FRAME_SAMPLES, np.float32)
    samples[:_CONTEXT_SAMPLES] = before.context
    np.divide(block, np.float32(_FULL_SCALE), out=samples[_CONTEXT_SAMPLES : _CONTEXT_SAMPLES + block.size])
    level_db = _raise_soft(samples[_CONTEXT_SAMPLES:].reshape(frames, -1), before.level_db)
    rows = np.lib.stride_tricks.sliding_window_view(samples, _CONTEXT_SAMPLES + FRAME_SAMPLES)[::FRAME_SAMPLES]
    hidden, cell = before.hidden, before.cell
    parts: list[NDArray[np.float32]] = []
    for start in range(0, frames, _ROWS_PER_RUN):
        found, hidden, cell = run(np.ascontiguousarray(rows[start : start + _ROWS_PER_RUN]), hidden, cell)
        parts.append(found.reshape(-1))
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
