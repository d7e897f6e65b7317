"""Everything is killed at one moment, and commands are killed between what they commit and what they send."""

import signal
import subprocess
import sys
from functools import partial

import pytest
from sqlalchemy import func, select

from tests.bench import Bench
from tests.faults.conftest import MakeSite
from tests.faults.long_work import ONCE
from tests.faults.oracle import judge, succeeded
from tests.rows import job, steps
from tests.waiting import wait_until
from voicejobs.store.schema import jobs, step_runs

pytestmark = pytest.mark.timeout(400)
SUBMITTED_JOBS = 6_000


def test_everything_is_killed(make_site: MakeSite) -> None:
    """After SIGKILL of workers, Valkey and Postgres what was done is not done again, and the rest ends."""
    site = make_site(fake_cost_base_s=0.5)
    bench = site.bench
    ids = bench.submit(*(bench.recording(f"{number}.wav") for number in range(12)))
    for _ in range(2):
        bench.start_worker()
    wait_until(lambda: [job(bench.database, job_id).state for job_id in ids].count("succeeded") >= 3, 40)
    for worker in bench.workers:
        worker.send_signal(signal.SIGSTOP)
    done = {run.id: run.finished_at for one in ids for run in steps(bench.database, one).values() if run.finished_at}
    bench.database.engine.dispose()
    site.valkey.kill()
    site.postgres.kill()
    bench.close()
    site.postgres.start()
    site.valkey.start()
    for _ in range(2):
        bench.start_worker()
    assert bench.wait_ended(*ids, timeout_s=60) == succeeded(ids)
    after = {run.id: run.finished_at for one in ids for run in steps(bench.database, one).values()}
    assert done.items() <= after.items()
    judge(bench, succeeded(ids))


def test_a_worker_dies_between_commit_and_message(bench: Bench) -> None:
    """What was noted as sent and never was is sent by the next worker."""
    ids = bench.submit(*(bench.recording(f"{number}.wav") for number in range(4)))
    dying = bench.start_worker(faults={"TEST_FAULT_DIE_BEFORE_SENDING": "1"})
    assert dying.wait(40) == -signal.SIGKILL
    assert {job(bench.database, job_id).sent_count for job_id in ids} == {1}
    bench.start_worker("--restart")
    assert bench.wait_ended(*ids) == succeeded(ids)
    assert [bench.stories(job_id) for job_id in ids] == [ONCE] * 4
    judge(bench, succeeded(ids))


SUBMIT = """
import sys
from pathlib import Path
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store.database import Database
from voicejobs.submit import InputFile, Submission

folder = Path(sys.argv[2])
options = TRANSCRIBE.options({"recognise": {"engine": "fake", "model": ""}})
submission = Submission(Database(sys.argv[1]), TRANSCRIBE, options)
paths = sorted(folder.iterdir())
for first in range(0, len(paths), 500):
    chunk = paths[first : first + 500]
    submission.add([InputFile(str(path), path.name, f"{folder}-out/{path.stem}") for path in chunk])
submission.seal()
"""


@pytest.mark.timeout(400)
def test_a_submission_that_is_killed_goes_on(bench: Bench) -> None:
    """Killed three times in the middle and run to its end, a submission has made each job once."""
    folder = bench.copies(bench.recording("one.wav", 1.0), SUBMITTED_JOBS, "many")[0].parent
    command = [sys.executable, "-c", SUBMIT, bench.database.url, str(folder)]
    for most in (SUBMITTED_JOBS // 10, SUBMITTED_JOBS // 3, SUBMITTED_JOBS // 2):
        with subprocess.Popen(command) as submission:
            wait_until(partial(has, bench, most), 60)
            submission.kill()
        assert submission.returncode == -signal.SIGKILL
    subprocess.run(command, check=True)
    with bench.database.read() as connection:
        targets = list(connection.execute(select(jobs.c.target)).scalars())
        runs = connection.execute(select(func.count()).select_from(step_runs).where(step_runs.c.node == "prepare"))
        assert runs.scalar_one() == SUBMITTED_JOBS
    assert len(targets) == len(set(targets)) == SUBMITTED_JOBS


def has(bench: Bench, count: int) -> bool:
    """Tell whether there are so many jobs."""
    with bench.database.read() as connection:
        return int(connection.execute(select(func.count()).select_from(jobs)).scalar_one()) >= count
