"""An engine's share of a card: what torch is told, and who is refused."""

import sys
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from voicejobs.accelerators import Ask
from voicejobs.engines.base import EngineFacts, EngineSpec
from voicejobs.errors import OutOfMemory
from voicejobs.hosting.share import demand_share, hold_torch_to_share

ON_CARD = EngineSpec("some", "large", device="cuda:0", memory_fraction=0.45, memory_bytes=8_000_000_000)
PLAIN = EngineFacts("recogniser", needs_model=True)
TORCH = EngineFacts("recogniser", needs_model=True, uses_torch=True)


def driver(held_mib: int) -> Ask:
    """Return a driver's tool that tells of one process, 41."""

    def ask(words: Sequence[str]) -> str:
        return f"41, GPU-aaaa, {held_mib}\n42, GPU-aaaa, 99999\n"

    return ask


def test_torch_is_told_its_share_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only engines on torch, only on a card, and only with a share."""
    told: list[tuple[float, str]] = []
    cuda = SimpleNamespace(set_per_process_memory_fraction=lambda share, device: told.append((share, device)))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    hold_torch_to_share(ON_CARD, TORCH)
    hold_torch_to_share(ON_CARD, PLAIN)
    hold_torch_to_share(EngineSpec("some", device="cuda:0"), TORCH)
    hold_torch_to_share(EngineSpec("some", memory_fraction=0.5), TORCH)
    assert told == [(0.45, "cuda:0")]


def test_an_engine_beyond_its_share_is_refused_with_words() -> None:
    """The message names engine, model, what it takes and its share; within the share it goes ahead."""
    demand_share(ON_CARD, PLAIN, pids=[41], ask=driver(7000))
    with pytest.raises(OutOfMemory, match=r"'large' takes 8388 MB of its card, and its share is 8000 MB") as caught:
        demand_share(ON_CARD, PLAIN, pids=[41], ask=driver(8000))
    assert caught.value.details == {"held_bytes": 8000 << 20, "share_bytes": 8_000_000_000}


@pytest.mark.parametrize(
    ("spec", "facts"), [(ON_CARD, TORCH), (EngineSpec("some", device="cuda:0"), PLAIN), (EngineSpec("some"), PLAIN)]
)
def test_whoever_has_no_share_to_measure_is_not_measured(spec: EngineSpec, facts: EngineFacts) -> None:
    """Torch keeps its own limit; without a share, or on the CPU, the driver is not asked."""
    demand_share(spec, facts, pids=[42], ask=driver(0))
