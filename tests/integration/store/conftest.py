from collections.abc import Iterator

import pytest

from tests.rows import opened
from voicejobs.store.database import Database


@pytest.fixture
def database(store_url: str) -> Iterator[Database]:
    """Return an open, empty store of each kind."""
    with opened(store_url) as database:
        yield database
