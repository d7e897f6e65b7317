"""An engine process on torch takes its share of the card before it loads anything; torch is a stand-in here."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from voicejobs.engines.base import EngineSpec
from voicejobs.errors import OutOfMemory
from voicejobs.hosting.host import EngineHost

STAND_IN = """
import json, os, types

def _note(*what):
    with open(os.environ["TEST_TORCH_LOG"], "a") as log:
        log.write(json.dumps(what) + "\\n")

class OutOfMemoryError(RuntimeError):
    pass

cuda = types.SimpleNamespace(
    set_per_process_memory_fraction=lambda share, device: _note("share", share, device),
    OutOfMemoryError=OutOfMemoryError,
)

def set_num_threads(count):
    _note("threads", count)

def _load(path, map_location):
    _note("load", os.path.basename(path), map_location)
    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB")

jit = types.SimpleNamespace(load=_load)
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[list[object]]]:
    """Let engine processes find a torch that writes down what it is told, and return that."""
    (tmp_path / "torch.py").write_text(STAND_IN)
    log = tmp_path / "log.jsonl"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("TEST_TORCH_LOG", str(log))
    return lambda: [json.loads(line) for line in log.read_text().splitlines()]


def test_the_share_is_set_before_the_model_is_loaded(
    make_host: Callable[..., EngineHost], told: Callable[[], list[list[object]]]
) -> None:
    """The fraction of the slot reaches torch first; what torch then says about memory becomes our error."""
    spec = EngineSpec("silero_torch", "silero-vad", "/nowhere", "cuda:0", memory_fraction=0.45)
    with pytest.raises(OutOfMemory, match="CUDA out of memory"):
        make_host().vad(spec).probabilities(np.zeros(512, np.int16), b"")
    assert told()[:3] == [["share", 0.45, "cuda:0"], ["threads", 1], ["load", "silero_vad.jit", "cuda:0"]]
