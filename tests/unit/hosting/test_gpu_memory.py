"""What an engine process tells of the memory of its device, and what a pool makes of that."""

import sys
import time
from types import SimpleNamespace

import pytest

from voicejobs.hosting import child
from voicejobs.hosting.figures import PoolFigures, gpu_sum, resident_bytes


def fake_torch(*, started: bool = True, reserved: int = 300, allocated: int = 200) -> SimpleNamespace:
    """Return what a process sees of torch that holds memory on a card."""
    cuda = SimpleNamespace(
        is_initialized=lambda: started, memory_reserved=lambda: reserved, memory_allocated=lambda: allocated
    )
    return SimpleNamespace(cuda=cuda)


def test_memory_of_the_device_is_told_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reserved and allocated bytes go with an answer, and not with each of them."""
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    memory = child.GpuMemory()
    assert memory.told({"ok": True}) == {"ok": True, "gpu": [300, 200]}
    assert memory.told({"ok": True}) == {"ok": True}
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 2 * child.GPU_EVERY_S)
    assert "gpu" in memory.told({"ok": True})


@pytest.mark.parametrize("torch", [None, fake_torch(started=False), SimpleNamespace()])
def test_an_engine_without_a_card_tells_nothing(monkeypatch: pytest.MonkeyPatch, torch: object) -> None:
    """No torch, one that uses no card, and one that is strange: the answer is what it was."""
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert child.GpuMemory().told({"ok": True}) == {"ok": True}


def test_memory_of_several_processes_is_added() -> None:
    """Those that have told count, and nothing is made up where none has."""
    assert gpu_sum([(300, 200), None, (10, 5)]) == (310, 205)
    assert gpu_sum([None]) is None
    assert resident_bytes([999_999_999]) == 0


def test_batches_are_counted_in_steps() -> None:
    """Each call falls into the step of its size; calls for something else than windows count as calls alone."""
    figures = PoolFigures()
    for items in (0, 1, 2, 3, 64, 65):
        figures.called(items, 0.5)
    told = figures.to_json()
    assert told["batches"] == [1, 1, 1, 0, 0, 0, 1, 1]
    assert (told["calls"], told["items"], told["busy_s"]) == (6, 135, 3.0)
