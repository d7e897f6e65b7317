"""Listen to decoded audio as it comes: keep the samples, and ask where there is speech."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm
from voicejobs.engines.base import VoiceActivityDetector
from voicejobs.units import SAMPLE_RATE_HZ

LISTEN_S = 30
"""Audio that one call of the detector takes: few calls, and yet a stop within a second."""

FRAMES_AT_FIRST = 4096
"""Frames for which a channel has room at first: two minutes."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Hold what listening to one channel gave: its length, and the speech probability of each frame."""

    samples: int
    frame_samples: int
    probabilities: NDArray[np.float32]


class _Listener:
    """Feed one channel to the detector in whole frames."""

    def __init__(self, detector: VoiceActivityDetector) -> None:
        self._detector = detector
        self._frame = type(detector).frame_samples
        self._chunk = max(1, LISTEN_S * SAMPLE_RATE_HZ // self._frame) * self._frame
        self._waiting: list[Pcm] = []
        self._waiting_samples = 0
        self._state = b""
        self._found = np.empty(FRAMES_AT_FIRST, np.float32)
        self._frames = 0
        self.samples = 0

    def feed(self, block: Pcm) -> None:
        """Take the next block, of any length."""
        self.samples += len(block)
        self._waiting.append(block)
        self._waiting_samples += len(block)
        if self._waiting_samples >= self._chunk:
            self._listen(self._waiting_samples // self._chunk * self._chunk)

    def finish(self) -> Heard:
        """Listen to the rest; the detector pads its last frame."""
        if self._waiting_samples:
            self._listen(self._waiting_samples)
        return Heard(self.samples, self._frame, self._found[: self._frames].copy())

    def _listen(self, samples: int) -> None:
        """Pass the first `samples` of what waits to the detector."""
        together = self._waiting[0] if len(self._waiting) == 1 else np.concatenate(self._waiting)
        probabilities, self._state = self._detector.probabilities(together[:samples], self._state)
        self._note(probabilities)
        rest = together[samples:]
        self._waiting = [rest] if len(rest) else []
        self._waiting_samples = len(rest)

    def _note(self, probabilities: NDArray[np.float32]) -> None:
        """Keep probabilities in one array that doubles: a small piece after each large block scatters the heap."""
        wanted = self._frames + len(probabilities)
        if wanted > len(self._found):
            self._found = np.concatenate([self._found, np.empty(wanted, np.float32)])
        self._found[self._frames : wanted] = probabilities
        self._frames = wanted


def listen(
    blocks: Iterable[Sequence[Pcm]],
    detector: VoiceActivityDetector,
    keep: Callable[[int, Pcm], None],
    progress: Callable[[int], None] = lambda samples: None,
) -> list[Heard]:
    """Pass every block to `keep` and to the detector, in flat memory; return what was heard, by channel.

    Args:
        blocks: one Pcm for each channel at a time; every block has the same channels, all of one length.
        detector: gives the speech probability of each frame.
        keep: called with channel and samples, in order.
        progress: called with the samples behind us, once for each block.
    """
    listeners: list[_Listener] = []
    for channels in blocks:
        while len(listeners) < len(channels):
            listeners.append(_Listener(detector))
        for number, block in enumerate(channels):
            keep(number, block)
            listeners[number].feed(block)
        progress(listeners[0].samples if listeners else 0)
    return [listener.finish() for listener in listeners]
