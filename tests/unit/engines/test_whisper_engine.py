from pathlib import Path

import pytest

from voicejobs.engines.base import EngineSpec
from voicejobs.engines.whisper import WhisperEngine
from voicejobs.errors import ModelUnavailable


def test_a_missing_model_is_named_with_its_remedy(tmp_path: Path) -> None:
    """A folder without weights ends in an error that says which command fetches them."""
    for folder in ("", str(tmp_path)):
        with pytest.raises(ModelUnavailable) as caught:
            WhisperEngine.load(EngineSpec("whisper", "base", folder))
        assert "voicejobs models pull base" in caught.value.hint


def test_memory_follows_the_size_of_the_weights(tmp_path: Path) -> None:
    """Admission can tell a large model from a small one before it is loaded."""
    with (tmp_path / "model.bin").open("wb") as file:
        file.truncate(145_217_532)
    facts = WhisperEngine.facts(EngineSpec("whisper", "base", str(tmp_path)))
    assert 350_000_000 < facts.memory_bytes < 450_000_000
    assert facts.max_batch == 1
    assert facts.needs_model
