"""Listening: every sample is kept, every frame is judged once, however the blocks are cut."""

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm
from voicejobs.engines.base import EngineFacts, EngineSpec
from voicejobs.steps.prepare import LISTEN_S, listen

FRAME = 512


class Loudness:
    """Stand for a detector: the probability of a frame is its peak, and the state counts the samples before it."""

    name: ClassVar[str] = "loudness"
    frame_samples: ClassVar[int] = FRAME

    def __init__(self) -> None:
        self.calls: list[int] = []

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return nothing: no host asks."""
        raise NotImplementedError

    @classmethod
    def load(cls, spec: EngineSpec) -> Self:
        """Return one."""
        return cls()

    def probabilities(self, block: Pcm, state: bytes) -> tuple[NDArray[np.float32], bytes]:
        """Return the peak of each frame; only the last call of a channel may have a broken one."""
        before = int.from_bytes(state, "big")
        assert before % FRAME == 0, "nothing follows a broken frame"
        self.calls.append(len(block))
        padded = np.pad(block, (0, -len(block) % FRAME)).reshape(-1, FRAME)
        return padded.max(axis=1).astype(np.float32), (before + len(block)).to_bytes(8, "big")


def cut(channels: NDArray[np.int16], lengths: Sequence[int]) -> list[list[Pcm]]:
    """Cut a recording, shape (channels, samples), into blocks."""
    places = np.cumsum([0, *lengths])
    return [list(channels[:, start:end]) for start, end in pairwise(places)]


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40_000), max_size=12),
    channels=st.integers(1, 3),
    chunk=st.sampled_from([1, 2, LISTEN_S]),
)
def test_cutting_changes_nothing(lengths: list[int], channels: int, chunk: int) -> None:
    """However a recording is cut, each channel is kept whole, and each frame has its own probability."""
    recording = np.random.default_rng(1).integers(0, 30_000, (channels, sum(lengths))).astype(np.int16)
    kept: list[list[Pcm]] = [[] for _ in range(channels)]
    told: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("voicejobs.steps.prepare.LISTEN_S", chunk)
        detector = Loudness()
        heard = listen(
            cut(recording, lengths), detector, lambda channel, block: kept[channel].append(block), told.append
        )
    assert told == list(np.cumsum(lengths))
    if not lengths:
        assert heard == []
        return
    assert len(heard) == channels
    for number, channel in enumerate(heard):
        assert channel.samples == recording.shape[1]
        assert (np.concatenate(kept[number]) == recording[number]).all()
        padded = np.pad(recording[number], (0, -recording.shape[1] % FRAME)).reshape(-1, FRAME)
        assert (channel.probabilities == padded.max(axis=1)).all()


def test_the_detector_is_asked_in_large_pieces() -> None:
    """Small blocks are gathered: one call for half a minute, so that calls are few and memory is bounded."""
    detector = Loudness()
    block = np.zeros((1, 16_000), np.int16)
    listen([list(block)] * 100, detector, lambda channel, block: None)
    assert len(detector.calls) == 4
    assert max(detector.calls) <= (LISTEN_S + 1) * 16_000
    assert sum(detector.calls) == 1_600_000


def test_an_error_of_the_sink_or_of_progress_stops_the_listening() -> None:
    """Whoever keeps the samples, or watches, can stop the work at any block."""

    def stop(samples: int) -> None:
        raise InterruptedError

    seen: list[int] = []
    with pytest.raises(InterruptedError):
        listen([[np.zeros(10, np.int16)]] * 3, Loudness(), lambda channel, block: seen.append(channel), stop)
    assert seen == [0]
