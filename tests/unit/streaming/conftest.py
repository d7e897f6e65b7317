"""What holds for every test of streams."""

import threading
from collections.abc import Iterator

import pytest

from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Demand that a test closes its streams: the next one looks whether closing leaves a thread behind."""
    yield
    wait_until(lambda: not any(thread.name.startswith("stream") for thread in threading.enumerate()), 5)
