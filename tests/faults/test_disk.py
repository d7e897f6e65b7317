"""A disk that is full."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import Bench
from tests.faults.oracle import judge, succeeded
from tests.rows import job, steps
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(400)
SIZE_BYTES = 8 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a file system of eight megabytes; skip where this user may not mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(folder)]
    if sys.platform != "linux" or os.getuid() != 0:
        pytest.skip("only root may mount a small file system")
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("place", ["state/blobs", "out"])
def test_a_full_disk_costs_only_time(bench: Bench, small_disk: Path, place: str) -> None:
    """Without room nothing is left half-written, no attempt is burnt, and work goes on when there is room."""
    folder = bench.folder / place
    folder.parent.mkdir(exist_ok=True)
    folder.symlink_to(small_disk)
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(2 * SIZE_BYTES))
    # Long enough not to stay in memory when they are decoded.
    ids = bench.submit(*(bench.recording(f"{number}.wav", 40.0) for number in range(3)))
    worker = bench.start_worker()
    node = "prepare" if place == "state/blobs" else "deliver"
    wait_until(
        lambda: all(bench.stories(job_id)[node] == ["retried"] for job_id in ids), what=lambda: bench.log[-3000:]
    )
    time.sleep(1)
    assert [path for path in small_disk.rglob("*") if path.is_file() and path != filler and path.stat().st_size] == []
    for job_id in ids:
        row = steps(bench.database, job_id)[node]
        assert (row.state, row.failures, row.error_code) == ("queued", 0, "disk_full")
        assert job(bench.database, job_id).state in {"queued", "running"}
    filler.unlink()
    assert bench.wait_ended(*ids) == succeeded(ids)
    assert worker.poll() is None
    judge(bench, succeeded(ids))
