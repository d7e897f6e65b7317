"""A third-party engine that fails on quiet windows, in a way that voicejobs cannot foresee."""

from collections.abc import Sequence
from typing import ClassVar, Self

from voicejobs.audio.types import Pcm, Segment, WindowResult
from voicejobs.engines.base import EngineFacts, EngineSpec, RecogniseOptions

QUIET = 4000


class ChoosyEngine:
    """Answer with the number of samples, unless the peak of a window is below `QUIET`."""

    name: ClassVar[str] = "choosy"

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts."""
        return EngineFacts(kind="recogniser", needs_model=False)

    @classmethod
    def load(cls, spec: EngineSpec) -> Self:
        """Load nothing."""
        return cls()

    def recognise(self, windows: Sequence[Pcm], options: RecogniseOptions) -> list[WindowResult]:
        """Answer, or raise what no caller expects."""
        for window in windows:
            if abs(window.astype(int)).max() < QUIET:
                raise ZeroDivisionError("nobody can hear that")
        return [WindowResult((Segment(0.0, 1.0, f" {len(window)}"),), "en", 1.0) for window in windows]

    def detect_language(self, window: Pcm) -> tuple[str, float]:
        """Return English."""
        return "en", 1.0
