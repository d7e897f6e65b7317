"""How large blocks come and go."""

import subprocess
import sys

import pytest

_HOLES = """
import sys
from pathlib import Path
import numpy as np
from voicejobs.heap import give_back_large_blocks

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

if sys.argv[1] == "yes":
    give_back_large_blocks()
for _ in range(3):  # the C library learns from what is freed
    np.ones(1_000_000, np.uint8)
before = resident_mb()
windows = [np.ones(1_000_000, np.uint8) for _ in range(60)]
last = windows[-1]
del windows
print(resident_mb() - before)
"""


def _left_over_mb(*, give_back: bool) -> float:
    """Return what a process holds of sixty windows of which it has dropped all but the last."""
    answer = "yes" if give_back else "no"
    done = subprocess.run([sys.executable, "-c", _HOLES, answer], check=True, capture_output=True, text=True)
    return float(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_window_that_is_dropped_is_given_back_though_a_later_one_lives() -> None:
    """Without the setting the C library keeps what lies below the last window; where it does not, nothing is shown."""
    if _left_over_mb(give_back=False) < 40:
        pytest.skip("this C library gives everything back by itself")
    assert _left_over_mb(give_back=True) < 10
