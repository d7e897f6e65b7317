"""A third-party engine that crashes, hangs, runs out of memory or loses passages when a window tells it to."""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from voicejobs.audio.types import Pcm, Segment, Sound, WindowResult
from voicejobs.engines.base import EngineFacts, EngineSpec, RecogniseOptions, SynthesiseOptions, Voice

NOT_AN_ENGINE = 3
DIE, HANG, MEMORY, ERROR, LOST_IN_BATCH, DIE_ONCE, SLOW = range(1, 8)
"""First sample of a window: what happens to the call that holds it."""


class FaultyEngine:
    """Answer with the second sample of each window as the text; `tokens` are the batch size and the process id."""

    name: ClassVar[str] = "faulty"

    def __init__(self, params: dict[str, Any]) -> None:
        self._params = params

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts, as the parameters want them."""
        params = dict(spec.params)
        return EngineFacts(
            kind="recogniser",
            needs_model=False,
            max_batch=params.get("max_batch", 1),
            call_timeout_s=params.get("timeout_s", 30.0),
        )

    @classmethod
    def load(cls, spec: EngineSpec) -> Self:
        """Load, unless the parameters say that it fails."""
        params = dict(spec.params)
        time.sleep(params.get("load_s", 0.0))
        if "load_error" in params:
            raise RuntimeError(params["load_error"])
        return cls(params)

    def recognise(self, windows: Sequence[Pcm], options: RecogniseOptions) -> list[WindowResult]:
        """Do what the windows say."""
        if len(windows) > self._params.get("memory_for", 1000):
            raise RuntimeError("CUDA failed with error out of memory")
        time.sleep(self._params.get("call_s", 0.0))
        for window in windows:
            self._act(int(window[0]))
        return [self._result(window, len(windows)) for window in windows]

    def detect_language(self, window: Pcm) -> tuple[str, float]:
        """Return a language that no default would give."""
        return "mi", 0.75

    def _act(self, order: int) -> None:
        """Fail as told."""
        if order == DIE or (order == DIE_ONCE and self._first_time()):
            os.kill(os.getpid(), signal.SIGKILL)
        elif order == HANG:
            time.sleep(1000)
        elif order == MEMORY:
            raise MemoryError
        elif order == ERROR:
            raise ValueError("this window is not to my taste")
        elif order == SLOW:
            time.sleep(0.4)

    def _first_time(self) -> bool:
        """Tell whether no process has been here before."""
        marker = Path(self._params["marker"])
        if marker.exists():
            return False
        marker.touch()
        return True

    def _result(self, window: Pcm, batch: int) -> WindowResult:
        """Return the text of a window, or nothing where sharing a batch loses it."""
        if window[0] == LOST_IN_BATCH and batch > 1:
            return WindowResult((), "mi")
        segment = Segment(0.0, window.size / 16000, f" {window[1]}", tokens=(batch, os.getpid()))
        return WindowResult((segment,), "mi")


class FaultyVoice(FaultyEngine):
    """Answer `<order> <number>` with three samples: the number, the batch size and the process id; orders as above."""

    name: ClassVar[str] = "faulty_voice"

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts, as the parameters want them."""
        return replace(super().facts(spec), kind="synthesiser")

    def synthesise(self, texts: Sequence[str], options: SynthesiseOptions) -> list[Sound]:
        """Do what the texts say."""
        if len(texts) > self._params.get("memory_for", 1000):
            raise RuntimeError("CUDA failed with error out of memory")
        time.sleep(self._params.get("call_s", 0.0))
        for text in texts:
            self._act(int(text.split()[0]))
        return [
            Sound(np.array([int(text.split()[1]), len(texts), os.getpid()], np.float32), 8000 + int(text.split()[1]))
            for text in texts
        ]

    def voices(self) -> list[Voice]:
        """Return one voice."""
        return [Voice("only", ("mi",), 8000)]
