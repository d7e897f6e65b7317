"""The collector of the service looks at few objects at once."""

import subprocess
import sys

LARGE = """
import gc
from voicejobs.api import calm

looked = []

def note(phase, about):
    if phase == "start":
        looked.append((about["generation"], sum(len(gc.get_objects(one)) for one in range(about["generation"] + 1))))

calm.calm_down()
gc.callbacks.append(note)
kept = [{"number": [number]} for number in range(300_000)]
gc.callbacks.clear()
assert len(looked) > 100, looked
assert max(generation for generation, _ in looked) == 1, looked
assert max(count for _, count in looked) < 20_000, looked
"""

OLD = """
import gc
import weakref
from voicejobs.api import calm

class Circle: pass

calm.calm_down()
circle = Circle()
circle.itself = circle
gone = weakref.ref(circle)
gc.collect(1)
del circle
assert not calm.collect_if_quick()
calm.MIDDLE_BEFORE_WHOLE = 0
calm.MOST_AT_ONCE = 0
assert not calm.collect_if_quick() and gone() is not None
assert calm.collect_if_quick(is_overdue=True) and gone() is None
calm.MOST_AT_ONCE = 10**6
gc.collect(1)
assert calm.collect_if_quick()
"""


def test_a_large_request_lets_python_look_at_few_objects_at_once() -> None:
    """Ten times ten thousand jobs grow in memory, and no collection goes through all of them."""
    subprocess.run([sys.executable, "-c", LARGE], check=True)


def test_what_has_grown_old_in_circles_is_collected_when_that_is_quick_or_overdue() -> None:
    """Not before enough has happened, and not while there is much to look at, unless it was put off for long."""
    subprocess.run([sys.executable, "-c", OLD], check=True)
