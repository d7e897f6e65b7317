"""Hold an engine process to its share of a card.

Torch's allocator takes a limit. Others (CTranslate2, onnxruntime) take none: what they hold is asked of the driver once
the model is loaded, and one that holds more than its share is refused with words, before it takes a neighbour's memory.
"""

import os
from collections.abc import Sequence

from voicejobs.accelerators import Ask, ask_driver, memory_in_use
from voicejobs.engines.base import EngineFacts, EngineSpec
from voicejobs.errors import OutOfMemory

_MB = 1_000_000


def hold_torch_to_share(spec: EngineSpec, facts: EngineFacts) -> None:
    """Limit torch's allocator to the share of the spec, before anything is allocated.

    torch.cuda.set_per_process_memory_fraction counts what its caching allocator takes, and neither the context of the
    device nor what other libraries take.
    """
    if not facts.uses_torch or not spec.memory_fraction or spec.device == "cpu":
        return
    import torch

    torch.cuda.set_per_process_memory_fraction(spec.memory_fraction, spec.device)


def demand_share(spec: EngineSpec, facts: EngineFacts, *, pids: Sequence[int] = (), ask: Ask = ask_driver) -> None:
    """Refuse an engine that holds more memory of its card than its share, now that its model is loaded.

    Args:
        spec: with the share.
        facts: of the engine; torch's are held to their share by torch.
        pids: processes to count; this one where left out.
        ask: the driver's tool.

    Raises:
        OutOfMemory: it holds more, or there is no share in bytes to hold it to.
    """
    if facts.uses_torch or not spec.memory_bytes or spec.device == "cpu":
        return
    held = memory_in_use(pids or [os.getpid()], ask)
    if held > spec.memory_bytes:
        raise OutOfMemory(
            f"The engine {spec.engine!r} with the model {spec.model!r} takes {held // _MB} MB of its card, "
            f"and its share is {spec.memory_bytes // _MB} MB",
            hint="Give the worker a larger share (--devices cuda:0@0.9), or use a smaller model or compute type.",
            held_bytes=held,
            share_bytes=spec.memory_bytes,
        )
