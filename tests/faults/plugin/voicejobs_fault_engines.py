"""A third-party engine that fails like a card or a native library where a window or its environment says so."""

import ctypes
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from voicejobs.audio.types import Pcm, WindowResult
from voicejobs.engines.base import EngineFacts, EngineSpec, RecogniseOptions
from voicejobs.engines.cost import Cost
from voicejobs.engines.fake import FakeEngine

GREEDY, DEADLY = (32_001, -31_999, 31_998), (32_003, -31_997, 31_996)
"""Three samples in a row: the window needs more memory than there is, or ends the process."""
BATCH = 8


class MoodyEngine(FakeEngine):
    """Say what the engine fake says.

    Variables of its environment: `TEST_FAULT_MEMORY_FOR` (windows that fit into the memory), `TEST_FAULT_NO_GIL_S`
    (seconds of each call in native code that keeps the interpreter locked), `TEST_FAULT_CALLS` (file to which the
    size of each call is added); `TEST_FAULT_CALM` switches everything off.
    """

    name: ClassVar[str] = "moody"

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts: batches of eight."""
        return replace(super().facts(spec), max_batch=BATCH)

    @classmethod
    def load(cls, spec: EngineSpec) -> Self:
        """Take half a second for each call, so that windows gather meanwhile."""
        return cls(Cost(0.5, 0.0, busy=False))

    def recognise(self, windows: Sequence[Pcm], options: RecogniseOptions) -> list[WindowResult]:
        """Fail as told."""
        if "TEST_FAULT_CALM" not in os.environ:
            self._note(len(windows))
            if len(windows) > int(os.environ.get("TEST_FAULT_MEMORY_FOR", "1000")) or holds(windows, GREEDY):
                raise RuntimeError("CUDA failed with error out of memory")
            if holds(windows, DEADLY):
                os.kill(os.getpid(), signal.SIGKILL)
            # PyDLL, unlike CDLL, does not unlock the interpreter.
            ctypes.PyDLL(None).usleep(int(float(os.environ.get("TEST_FAULT_NO_GIL_S", "0")) * 1_000_000))
        return super().recognise(windows, options)

    @staticmethod
    def _note(size: int) -> None:
        """Note the size of a call."""
        if "TEST_FAULT_CALLS" in os.environ:
            with Path(os.environ["TEST_FAULT_CALLS"]).open("a") as file:
                file.write(f"{size}\n")


def holds(windows: Sequence[Pcm], mark: tuple[int, int, int]) -> bool:
    """Tell whether a window has the mark."""
    first, second, third = mark
    return any(
        bool(np.any((window[:-2] == first) & (window[1:-1] == second) & (window[2:] == third))) for window in windows
    )
