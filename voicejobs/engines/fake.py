"""An engine that needs no model: its text is a function of the samples, its time is a + b*n for n windows."""

from collections.abc import Sequence
from typing import ClassVar, Self
from zlib import crc32

import numpy as np

from voicejobs.audio.types import Pcm, Segment, WindowResult, Word
from voicejobs.engines.base import EngineFacts, EngineSpec, RecogniseOptions
from voicejobs.engines.cost import Cost
from voicejobs.units import samples_to_seconds


class FakeEngine:
    """Give each window the text ` n<samples> c<crc32 of the PCM bytes>`.

    A window that is lost, swapped, doubled or damaged on its way shows in the text. `params` of the spec:
    `cost_base_s` and `cost_window_s` (seconds of a call and of each window in it), `cost_mode` (`sleep` or
    `busy`), `max_batch`.
    """

    name: ClassVar[str] = "fake"

    def __init__(self, cost: Cost) -> None:
        self._cost = cost

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts; `max_batch` is the parameter of that name, or 8."""
        max_batch = int(dict(spec.params).get("max_batch", 8))
        # Its text is as short for 30 s as for one, and never wrong: nothing to doubt.
        return EngineFacts(
            kind="recogniser", needs_model=False, max_batch=max_batch, memory_bytes=40_000_000, doubt=False
        )

    @classmethod
    def load(cls, spec: EngineSpec) -> Self:
        """Build the engine from the parameters.

        Raises:
            BadOption: `cost_mode` is neither `sleep` nor `busy`.
        """
        return cls(Cost.of(dict(spec.params), cls.name))

    def recognise(self, windows: Sequence[Pcm], options: RecogniseOptions) -> list[WindowResult]:
        """Spend the time of the batch and return the text of each window."""
        self._cost.spend(len(windows))
        return [_describe(window, options) for window in windows]

    def detect_language(self, window: Pcm) -> tuple[str, float]:
        """Return English, with certainty."""
        return "en", 1.0


def _describe(window: Pcm, options: RecogniseOptions) -> WindowResult:
    """Return the count and the checksum of the samples as one segment that fills the window."""
    data = np.ascontiguousarray(window, dtype="<i2")
    texts = (f" n{data.size}", f" c{crc32(data.tobytes()):08x}")
    end_s = samples_to_seconds(data.size)
    words: tuple[Word, ...] = ()
    if options.word_timestamps:
        middle_s = end_s / 2
        words = (Word(0.0, middle_s, texts[0], 1.0), Word(middle_s, end_s, texts[1], 1.0))
    segment = Segment(0.0, end_s, "".join(texts), words, temperature=0.0, avg_logprob=0.0, no_speech_prob=0.0)
    return WindowResult((segment,), options.language or "en", 1.0)
