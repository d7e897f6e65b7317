"""What the task that joins keeps of its first pass."""

from collections.abc import Iterator

import numpy as np

from voicejobs.steps.join import Block
from voicejobs.tasks.joining import kept_blocks


def test_only_short_sound_is_kept_for_the_second_pass() -> None:
    """All blocks pass once; of sound that is longer, or has long pauses, none is held."""
    passed: list[int] = []

    def blocks(count: int) -> Iterator[Block]:
        for number in range(count):
            passed.append(number)
            yield np.full(100, number, np.float32)

    short = kept_blocks(blocks(3), 300)
    assert short is not None
    assert [float(block[0]) for block in short] == [0, 1, 2]
    assert kept_blocks(blocks(4), 300) is None
    assert passed == [0, 1, 2, 0, 1, 2, 3]
