"""The slot of a worker process."""

from pathlib import Path

import pytest
from voicejobs_workers.slots import MIN_WINDOW_JOBS, SPARE_THREADS, cpu_slot

from voicejobs.settings import Settings

HERE = Path("/nowhere")


@pytest.mark.parametrize(
    ("engine_processes", "window_jobs", "expected"), [(1, 0, MIN_WINDOW_JOBS), (8, 0, 32), (8, 5, 5), (0, 7, 7)]
)
def test_the_window_follows_the_engine_processes(engine_processes: int, window_jobs: int, expected: int) -> None:
    """Four jobs are out for each engine process, eight at least, unless a number is set; threads outnumber them."""
    settings = Settings(state_dir=HERE, models_dir=HERE, engine_processes=engine_processes, window_jobs=window_jobs)
    slot = cpu_slot(settings)
    assert (slot.device, slot.window_jobs, slot.threads) == ("cpu", expected, expected + SPARE_THREADS)


def test_the_cores_of_this_machine_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a number there is an engine process for each core that this process may use."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(6)), raising=False)
    assert cpu_slot(Settings(state_dir=HERE, models_dir=HERE)).window_jobs == 24
