"""Which lane a step run belongs to, for whoever gives its work to an engine."""

import pytest

from tests.rows import new_job, opened
from voicejobs.store import jobs as rows
from voicejobs.store import leases
from voicejobs.store.ids import new_id
from voicejobs.store.jobs import NewBatch
from voicejobs.store.leases import Claimer


@pytest.mark.parametrize("lane", ["interactive", "bulk"])
def test_a_lease_knows_the_lane_of_its_batch(store_url: str, lane: str) -> None:
    """Engines serve windows of the interactive lane first: every claim tells which it is."""
    with opened(store_url) as database:
        with database.begin() as connection:
            batch_id = rows.insert_batch(connection, NewBatch(lane, "", {}))
            job = new_job(id=new_id("job"))
            rows.insert_jobs(connection, batch_id, [job])
        lease = leases.claim(database, rows.step_run_id(job.id, "prepare"), Claimer("host/boot/1/1", 60.0))
        assert lease is not None
        assert lease.lane == lane
