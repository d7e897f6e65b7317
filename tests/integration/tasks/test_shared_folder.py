"""Workers with state folders of their own and one folder of blobs: no shard misses what another worker decoded."""

from voicejobs_workers.slots import Slot

from tests.bench import Bench
from voicejobs.messages import QUEUE_CLASSES

SLOT = Slot("cpu", "cpu", window_jobs=8, threads=2, queues=QUEUE_CLASSES)


def test_short_channels_are_read_by_either_worker(bench: Bench) -> None:
    """What forks is not kept in the memory of one machine, however short it is."""
    ids = bench.submit(*(bench.stereo_recording(f"{number}.wav", 4) for number in range(5)), channels="split")
    shared = {"blobs_url": bench.folder / "nfs", "fake_cost_base_s": 0.1}
    for name in ("machine-a", "machine-b"):
        bench.start_worker("--slot", SLOT.dump(), state_dir=bench.folder / name, **shared)
    assert set(bench.wait_ended(*ids).values()) == {"succeeded"}
    for job_id in ids:
        assert all(outcomes == ["succeeded"] for outcomes in bench.stories(job_id).values()), bench.stories(job_id)
    assert not list((bench.folder / "nfs" / "scratch").iterdir())
    assert not [path for name in ("machine-a", "machine-b") for path in (bench.folder / name).glob("blobs/**/*")]
