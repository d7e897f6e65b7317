"""A worker that stands still although its servers answer."""

import pytest

from tests.bench import Bench
from voicejobs.tasks.watchdog import EXIT_STALLED

pytestmark = [pytest.mark.services, pytest.mark.timeout(120)]


def test_a_worker_whose_upkeep_is_stuck_is_replaced(bench: Bench) -> None:
    """It ends with its own code and says where each thread is; the next worker does the job."""
    faults = {"TEST_FAULT_STICK": str(bench.folder / "stuck")}
    worker = bench.start_worker(faults=faults, stall_s=4)
    assert worker.wait(60) == EXIT_STALLED
    assert "the worker stands still, and ends" in bench.log
    assert "Event().wait()" in bench.log
    (job_id,) = bench.submit(bench.recording("a.wav"))
    bench.start_worker(faults=faults, stall_s=4)
    assert bench.wait_ended(job_id) == {job_id: "succeeded"}
