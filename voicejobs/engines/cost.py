"""What a call of an engine without a model costs: a + b*n seconds for n items, asleep or at work."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from voicejobs.errors import BadOption

_BUSY_SLICE = 10_000


@dataclass(frozen=True, slots=True)
class Cost:
    """Hold the seconds of a call, those of each item in it, and whether they keep the processor busy."""

    base_s: float
    item_s: float
    busy: bool

    @classmethod
    def of(cls, params: Mapping[str, Any], engine: str) -> Self:
        """Build it from `cost_base_s`, `cost_window_s` and `cost_mode` of an engine's parameters.

        Raises:
            BadOption: `cost_mode` is neither `sleep` nor `busy`.
        """
        mode = params.get("cost_mode", "sleep")
        if mode not in {"sleep", "busy"}:
            raise BadOption(f"cost_mode of the engine {engine} is {mode!r}", hint="Use sleep or busy.")
        base_s, item_s = (float(params.get(name, 0.0)) for name in ("cost_base_s", "cost_window_s"))
        return cls(base_s, item_s, mode == "busy")

    def spend(self, items: int) -> None:
        """Let the time of a call with so many items pass."""
        seconds = self.base_s + self.item_s * items
        if seconds <= 0:
            return
        if not self.busy:
            time.sleep(seconds)
            return
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            sum(range(_BUSY_SLICE))
