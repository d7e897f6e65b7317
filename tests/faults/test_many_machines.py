"""Two machines that share database, broker and object store, and no folder: together they finish what one could not."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from sqlalchemy import func, select
from voicejobs_workers.slots import Slot

from tests.bench import RATE_HZ, Bench, MakeBench
from tests.faults.oracle import succeeded
from tests.rows import job, steps
from tests.servers.s3 import S3, new_bucket, serving
from tests.speaking import FAKE
from tests.waiting import patience, wait_until
from voicejobs.audio.types import Transcript
from voicejobs.messages import QUEUE_CLASSES
from voicejobs.pipelines.pipeline import SPEAK, TRANSCRIBE
from voicejobs.settings import Settings
from voicejobs.store import artifacts
from voicejobs.store.remote_blobs import RemoteBlobStore, blob_store
from voicejobs.store.schema import artifacts as artifacts_table
from voicejobs.store.schema import attempts
from voicejobs.submit import Blob, InputFile, Submission

pytestmark = pytest.mark.timeout(180)

WINDOW_S = 0.3
"""What the engine needs for a window on a quiet machine; more on a busy one, so that this is what takes the time."""
CHANNELS, WINDOWS = 4, 5
"""Of the long recording: a shard for each channel, with so many windows."""
SHORT_JOBS = 6
SLOT = Slot("cpu", "cpu", window_jobs=16, threads=2, queues=QUEUE_CLASSES)
"""Two tasks at once, so that no machine takes all shards before the other has looked."""
MACHINES = {"machine-a", "machine-b"}
TEXT = b"The harbour lies still. The tide is low."


@pytest.fixture
def s3() -> Iterator[S3]:
    """Return an empty bucket of a server that speaks S3."""
    with serving() as endpoint_url:
        yield new_bucket(endpoint_url)


def machine_of(owner: str) -> str:
    """Return the machine of an owner of leases."""
    return owner.partition("/")[0].partition(":")[0]


class Site:
    """Hold the machines: one that takes work in, and those that do it, each with a folder of its own."""

    def __init__(self, bench: Bench, s3: S3, window_s: float) -> None:
        self.bench = bench
        self.window_s = window_s
        self.s3 = s3
        folder = bench.folder / "front"
        blobs = blob_store(s3.settings(Settings(state_dir=folder, models_dir=folder, disk_floor_bytes=0)))
        assert isinstance(blobs, RemoteBlobStore)
        self.blobs = blobs
        self.machines: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start the worker of a machine."""
        words = ("--slot", SLOT.dump())
        state = self.bench.folder / name
        self.machines[name] = self.bench.start_worker(*words, faults={"TEST_FAULT_HOST": name}, state_dir=state)

    def submit(self, *recordings: Path) -> list[str]:
        """Submit recordings as uploads, and a text, all without a place for outputs."""
        heard = TRANSCRIBE.options(
            {
                "prepare": {"vad_filter": False, "channels": "split"},
                "recognise": {"engine": "fake", "model": "", "language": "en"},
            }
        )
        batch = Submission(self.bench.database, TRANSCRIBE, heard, force=True)
        accepted = batch.add([self._upload(path.name, path.read_bytes()) for path in recordings])
        batch.seal()
        said = SPEAK.options({"synthesise": FAKE, "join": {"formats": ["wav"], "captions": []}})
        other = Submission(self.bench.database, SPEAK, said, force=True)
        accepted += other.add([self._upload("letter.txt", TEXT)])
        other.seal()
        return [one.job_id for one in accepted]

    def _upload(self, name: str, data: bytes) -> InputFile:
        """Keep bytes as a blob."""
        return InputFile(f"/uploads/{name}", name, blob=Blob(*self.blobs.put_stream([data])))

    def workers_of(self, *job_ids: str, step: str = "") -> dict[str, list[str]]:
        """Return the machines of the attempts at each step run of jobs, or those of one step, in their order."""
        found: dict[str, list[str]] = {}
        for job_id in job_ids:
            for row in steps(self.bench.database, job_id).values():
                if step in {"", row.step}:
                    query = select(attempts.c.owner).where(attempts.c.step_run_id == row.id).order_by(attempts.c.fence)
                    with self.bench.database.read() as connection:
                        found[row.id] = [machine_of(owner) for owner in connection.execute(query).scalars()]
        return found

    def told(self, job_ids: Sequence[str]) -> str:
        """Return what ran where, from when on and for how long, in seconds."""
        lines = []
        for job_id in job_ids:
            for name, row in steps(self.bench.database, job_id).items():
                query = select(attempts).where(attempts.c.step_run_id == row.id)
                with self.bench.database.read() as connection:
                    lines += [
                        f"{one.started_at % 1000:8.2f} {one.finished_at - one.started_at:6.2f} "
                        f"{machine_of(one.owner)} {one.outcome} {name}"
                        for one in connection.execute(query)
                    ]
        return "\n".join(sorted(lines))

    def texts(self, job_ids: Sequence[str]) -> list[str]:
        """Return what was heard in each recording, as a machine reads it that did nothing of the work."""
        return [
            Transcript.from_json(
                json.loads(artifacts.load_kind(self.bench.database, self.blobs, job_id, "transcript"))
            ).text
            for job_id in job_ids
        ]

    def demand_once(self, job_ids: Sequence[str]) -> None:
        """Demand one success of each step run, one result of each job, and no decoded audio that is left."""
        for job_id in job_ids:
            for name, outcomes in self.bench.stories(job_id).items():
                assert outcomes.count("succeeded") == 1, (name, outcomes)
                assert outcomes[-1] == "succeeded"
        *recordings, spoken = job_ids
        kinds = [*["transcript"] * len(recordings), "captions", "sound"]
        query = select(artifacts_table.c.kind).where(artifacts_table.c.job_id.in_(job_ids))
        with self.bench.database.read() as connection:
            assert sorted(connection.execute(query).scalars()) == sorted(kinds)
        (output,) = json.loads(job(self.bench.database, spoken).outputs)
        kept = artifacts.describe(self.bench.database, "default", output["artifact"])
        with artifacts.open_content(self.bench.database, self.blobs, kept) as file:
            assert len(sf.read(file)[0]) / kept.meta["rate_hz"] > 10
        wait_until(lambda: not self.s3.names("scratch/"), what=lambda: str(self.s3.names("scratch/")))


@pytest.fixture
def site(make_bench: MakeBench, postgres_url: str, broker_url: str, s3: S3) -> Site:
    """Return two machines at work that have both shown that they are."""
    window_s = WINDOW_S * patience()
    costs = {"fake_cost_window_s": window_s, "fake_character_s": 0.5}
    bench = make_bench(postgres_url, broker_url, **costs, disk_floor_bytes=0, **s3.variables)
    site = Site(bench, s3, window_s)
    for name in MACHINES:
        site.start(name)
    seen: set[str] = set()

    def have_worked() -> bool:
        ids = site.submit(*(bench.recording(f"first-{number}.wav") for number in range(4)))
        bench.wait_ended(*ids)
        seen.update(chain.from_iterable(site.workers_of(*ids, step="recognise").values()))
        return seen == MACHINES

    wait_until(have_worked)
    return site


def long_recording(bench: Bench) -> Path:
    """Write a recording that forks."""
    path = bench.folder / "in" / "long.flac"
    path.parent.mkdir(exist_ok=True)
    side = np.resize(bench.speech, WINDOWS * 30 * RATE_HZ)
    sf.write(path, np.stack([side // (number + 1) for number in range(CHANNELS)], axis=1), RATE_HZ, subtype="PCM_16")
    return path


def test_machines_finish_together_what_one_could_not(site: Site) -> None:
    """A batch is done in less time than the engine of either machine needs; if one is killed, the other ends it."""
    bench = site.bench
    recordings = [long_recording(bench), *(bench.recording(f"{number}.wav") for number in range(SHORT_JOBS))]
    first = site.submit(*recordings)
    assert bench.wait_ended(*first, timeout_s=60) == succeeded(first)
    needed_s = site.window_s * (CHANNELS * WINDOWS + SHORT_JOBS)  # by one engine, which sleeps so long for each window
    runs = [row.id for job_id in first for row in steps(bench.database, job_id).values()]
    spent = func.max(attempts.c.finished_at) - func.min(attempts.c.started_at)
    query = select(spent).where(attempts.c.step_run_id.in_(runs))
    with bench.database.read() as connection:
        took_s = float(connection.execute(query).scalar_one())
    assert took_s < needed_s, site.told(first)
    site.demand_once(first)
    shards = site.workers_of(first[0], step="recognise")
    assert len(shards) == CHANNELS
    assert set(chain.from_iterable(shards.values())) == MACHINES

    again = site.submit(*recordings)

    def at_work() -> bool:
        running = [row.owner for row in steps(bench.database, again[0]).values() if row.state == "running"]
        return set(map(machine_of, running)) == MACHINES

    wait_until(at_work)
    ((prepared_on,),) = site.workers_of(again[0], step="prepare").values()
    (other,) = MACHINES - {prepared_on}
    bench.stop(site.machines[prepared_on])
    assert bench.wait_ended(*again, timeout_s=90) == succeeded(again)
    site.demand_once(again)
    assert list(site.workers_of(again[0], step="deliver").values()) == [[other]]
    assert site.texts(again[:-1]) == site.texts(first[:-1])
    # What a machine decoded for a job that the other one ended goes with its next sweep.
    left = {path.name.partition(".")[0] for path in bench.folder.glob(f"{other}/blobs/scratch/*") if path.is_file()}
    assert not [one for one in left if list(site.workers_of(one, step="deliver").values()) == [[other]]]
