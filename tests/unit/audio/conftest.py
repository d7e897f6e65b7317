"""The recordings beside the repository."""

from pathlib import Path

import pytest

from tests.unit.audio.recordings import SHARED


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of real recordings, which lies beside the repository."""
    if not SHARED.is_dir():
        pytest.skip("the recordings of ../shared are not here")
    return SHARED
