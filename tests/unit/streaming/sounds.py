"""Sound whose words are levels, an engine that reads them, and a detector that calls everything but silence speech."""

import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm, Segment, WindowResult, Word
from voicejobs.engines.base import RecogniseOptions
from voicejobs.units import SAMPLE_RATE_HZ

WORD_S = 0.3
_GAP_S = 0.05
FRAME_20_MS = 320


def silence(seconds: float) -> Pcm:
    """Return silence."""
    return np.zeros(round(seconds * SAMPLE_RATE_HZ), np.int16)


def speech(*levels: int) -> Pcm:
    """Return one word of 0.3 s for each level, 1000 or more, with short gaps that the detector takes for speech."""
    gap = np.ones(round(_GAP_S * SAMPLE_RATE_HZ), np.int16)
    word = round(WORD_S * SAMPLE_RATE_HZ)
    return np.concatenate([part for level in levels for part in (np.full(word, level, np.int16), gap)])


def frames(sound: Pcm, size: int = FRAME_20_MS) -> list[Pcm]:
    """Return the sound in frames."""
    return [sound[start : start + size] for start in range(0, len(sound), size)]


class LevelDetector:
    """Give each frame 0.95 where anything sounds, else 0.05."""

    frame_samples: ClassVar[int] = 512

    def __init__(self) -> None:
        self.calls = 0

    def probabilities(self, block: Pcm, state: bytes) -> tuple[NDArray[np.float32], bytes]:
        """Return one probability for each frame."""
        self.calls += 1
        frames = -(-len(block) // self.frame_samples)
        padded = np.pad(block, (0, frames * self.frame_samples - len(block))).reshape(frames, -1)
        return np.where(np.abs(padded).max(axis=1) > 0, 0.95, 0.05).astype(np.float32), b"state"


class LevelRecogniser:
    """Write each level as a word; a word that the window cuts off has another end.

    Args:
        delay_s: seconds of each call.
        prefix: written before each level.
    """

    def __init__(self, delay_s: float = 0.0, prefix: str = "w") -> None:
        self.delay_s = delay_s
        self.prefix = prefix
        self.windows: list[Pcm] = []
        self.options: list[RecogniseOptions] = []
        self.running = 0
        self.most_running = 0
        self.fail_next: list[Exception] = []
        self.gate: threading.Event | None = None
        self._lock = threading.Lock()

    def recognise(self, windows: Sequence[Pcm], options: RecogniseOptions) -> list[WindowResult]:
        """Return the words of each window."""
        with self._lock:
            self.windows += windows
            self.options.append(options)
            self.running += 1
            self.most_running = max(self.running, self.most_running)
            error = self.fail_next.pop(0) if self.fail_next else None
        try:
            time.sleep(self.delay_s)
            if self.gate is not None:
                self.gate.wait(30)
            if error is not None:
                raise error
            return [self._read(window, options) for window in windows]
        finally:
            with self._lock:
                self.running -= 1

    def detect_language(self, window: Pcm) -> tuple[str, float]:
        """Return English."""
        return "en", 1.0

    def _read(self, window: Pcm, options: RecogniseOptions) -> WindowResult:
        """Return one segment with a word for each level."""
        edges = np.flatnonzero(np.diff(window, prepend=0, append=0))
        words = []
        for start, end in pairwise(edges):
            level = int(window[start])
            if level < 1000:
                continue
            whole = end - start >= round(WORD_S * SAMPLE_RATE_HZ)
            text = f" {self.prefix}{level}" if whole else f" {self.prefix}{level}-"
            words.append(Word(start / SAMPLE_RATE_HZ, end / SAMPLE_RATE_HZ, text, 0.9))
        if not words:
            return WindowResult((), options.language or "en", 0.99)
        text = "".join(word.text for word in words)
        kept = tuple(words) if options.word_timestamps else ()
        segment = Segment(words[0].start_s, words[-1].end_s, text, kept, avg_logprob=-0.1, no_speech_prob=0.01)
        return WindowResult((segment,), options.language or "en", 0.99)
