"""A recording that is long at work, and a worker in the middle of it."""

import subprocess

from tests.bench import Bench
from tests.rows import steps
from tests.waiting import wait_until

ONCE = {"prepare": ["succeeded"], "recognise": ["succeeded"], "deliver": ["succeeded"]}
SLOW = {"fake_cost_window_s": 0.5}
"""Half a second for each window: a long recording is long at work."""
LONG_S = 250.0
"""More than one call of the engine, so that there is a checkpoint in between."""


def working_on_a_long_file(bench: Bench, faults: dict[str, str] | None = None) -> tuple[str, "subprocess.Popen[bytes]"]:
    """Start a worker on a long recording, wait for its first checkpoint, and return job and worker."""
    (job_id,) = bench.submit(bench.recording("long.wav", LONG_S))
    worker = bench.start_worker(faults=faults)
    bench.wait_running(job_id)
    wait_until(lambda: steps(bench.database, job_id)["recognise"].checkpoint)
    return job_id, worker
