"""Recordings that crash the decoder or the engine, and memory that ends: only who is at fault pays."""

from pathlib import Path

import pytest
import soundfile as sf

from tests.bench import RATE_HZ, Bench
from tests.faults.long_work import ONCE
from tests.faults.oracle import judge, succeeded
from tests.faults.plugin.voicejobs_fault_engines import BATCH, DEADLY, GREEDY
from tests.rows import job, steps

pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize("name", ["segv", "greedy"])
def test_a_poison_file_costs_only_itself(bench: Bench, name: str) -> None:
    """A file on which the decoder crashes, or wants 50 GB, fails after three attempts; others do not notice."""
    good = [bench.recording(f"{number}.wav") for number in range(6)]
    *others, poison = bench.submit(*good, bench.recording(f"{name}.wav"))
    worker = bench.start_worker()
    states = {**succeeded(others), poison: "failed"}
    assert bench.wait_ended(poison, *others) == states
    row = job(bench.database, poison)
    assert row.error_code == "decoder_crash"
    assert f"{name}.wav" in row.error
    assert bench.stories(poison) == {"prepare": ["retried", "retried", "failed"], "deliver": []}
    assert steps(bench.database, poison)["deliver"].state == "skipped"
    assert [bench.stories(job_id) for job_id in others] == [ONCE] * len(others)
    assert worker.poll() is None
    judge(bench, states)


def marked(bench: Bench, name: str, mark: tuple[int, int, int]) -> Path:
    """Write a recording with a mark in the middle of its speech."""
    path = bench.recording(name)
    samples, _ = sf.read(path, dtype="int16")
    middle = len(samples) // 2
    samples[middle : middle + 3] = mark
    sf.write(path, samples, RATE_HZ, subtype="PCM_16")
    return path


@pytest.mark.parametrize(("mark", "code"), [(GREEDY, "out_of_memory"), (DEADLY, "engine_crash")])
def test_one_bad_window_of_a_batch_fails_alone(
    bench: Bench, tmp_path: Path, mark: tuple[int, int, int], code: str
) -> None:
    """A batch of eight with a window that kills its engine or takes all memory is halved: seven succeed at once."""
    calls = tmp_path / "calls"
    good = [bench.recording(f"{number}.wav") for number in range(BATCH + 1)]
    *others, bad = bench.submit(*good, marked(bench, "bad.wav", mark), engine="moody")
    worker = bench.start_worker(faults={"TEST_FAULT_CALLS": str(calls)}, window_jobs=16, max_attempts=2)
    states = {**succeeded(others), bad: "failed"}
    assert bench.wait_ended(*states, timeout_s=60) == states
    assert job(bench.database, bad).error_code == code
    assert bench.stories(bad)["recognise"] == ["retried", "failed"]
    assert [bench.stories(job_id) for job_id in others] == [ONCE] * len(others)
    assert max(map(int, calls.read_text().split())) > 1, "windows of several jobs shared a call"
    assert worker.poll() is None
    judge(bench, states)


def test_memory_that_ends_lowers_the_batch(bench: Bench, tmp_path: Path) -> None:
    """Where eight windows do not fit and four do, nothing fails, and no later call is larger than what fitted."""
    calls = tmp_path / "calls"
    ids = bench.submit(*(bench.recording(f"{number}.wav") for number in range(4 * BATCH)), engine="moody")
    bench.start_worker(faults={"TEST_FAULT_CALLS": str(calls), "TEST_FAULT_MEMORY_FOR": "4"}, window_jobs=32)
    assert bench.wait_ended(*ids, timeout_s=60) == succeeded(ids)
    assert [bench.stories(job_id) for job_id in ids] == [ONCE] * len(ids)
    sizes = list(map(int, calls.read_text().split()))
    too_large = [number for number, size in enumerate(sizes) if size > 4]
    assert len(too_large) == 1, sizes
    assert max(sizes[too_large[0] + 1 :]) <= 4
    judge(bench, succeeded(ids))
