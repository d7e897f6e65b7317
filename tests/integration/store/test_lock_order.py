"""Those who end a job at the same moment lock its rows in the same order."""

from tests import rows
from voicejobs.errors import Damaged
from voicejobs.store import jobs as store
from voicejobs.store import leases
from voicejobs.store.database import Database
from voicejobs.store.states import JobState, StepState

ROUNDS = 12
JOBS = 8


def test_failing_and_cancelling_never_wait_for_each_other(database: Database) -> None:
    """While a batch is cancelled its jobs fail: no side gets an error of the database."""
    for _ in range(ROUNDS):
        batch_id = rows.add_batch(database)
        ids = [rows.add_job(database, batch_id, seq=seq) for seq in range(JOBS)]
        held = [rows.hold(database, store.step_run_id(job_id, "prepare")) for job_id in ids]

        def act(number: int, batch_id: str = batch_id, held: list[leases.Lease] = held) -> None:
            with database.begin() as connection:
                if number == JOBS:
                    store.cancel_jobs(connection, batch_id=batch_id)
                    return
                ending = leases.Ending(StepState.FAILED, "failed", error=Damaged("odd"))
                leases.end(connection, held[number], ending, owner=rows.OWNER)
                store.finish_job(connection, held[number].job_id, JobState.FAILED, error=ending.error)

        rows.at_once(JOBS + 1, act)
        assert {rows.job(database, job_id).state for job_id in ids} == {"failed"}
