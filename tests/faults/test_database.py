"""A database that goes away: for less than a lease, and for three."""

import time

import pytest

from tests.bench import LEASE_S
from tests.faults.conftest import MakeSite, Site
from tests.faults.long_work import ONCE
from tests.faults.oracle import judge, succeeded
from tests.rows import job, steps
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(400)
SHORT_S = 5.0
LONG_CALL_S = 25.0
FOUR_CALLS_S = 430.0
"""Sixteen windows: four calls of the engine, 2.4 seconds each."""
CALL_S = 2.4
LEASE_OF_AN_OUTAGE_S = 10.0


def outage(site: Site, seconds: float) -> None:
    """Stop Postgres at once, and start it again after some seconds."""
    site.bench.database.engine.dispose()
    site.postgres.stop_immediately()
    time.sleep(seconds)
    site.postgres.start()
    site.bench.database.engine.dispose()


def test_an_outage_shorter_than_a_lease_costs_no_lease(make_site: MakeSite) -> None:
    """Postgres is away for five seconds while steps run: heartbeats go on, no lease runs out, each step runs once."""
    site = make_site(fake_cost_base_s=8.0, lease_s=LEASE_OF_AN_OUTAGE_S)
    bench = site.bench
    ids = bench.submit(*(bench.recording(f"{number}.wav") for number in range(4)))
    worker = bench.start_worker()
    for job_id in ids:
        bench.wait_running(job_id)
    outage(site, SHORT_S)
    assert bench.wait_ended(*ids, timeout_s=60) == succeeded(ids)
    assert [bench.stories(job_id) for job_id in ids] == [ONCE] * len(ids)
    assert worker.poll() is None
    judge(bench, succeeded(ids))


def test_checkpoints_that_cannot_be_written_stop_nobody(make_site: MakeSite) -> None:
    """A step whose checkpoint falls into an outage goes on, and commits what it has once the database is back."""
    site = make_site(fake_cost_window_s=0.6, lease_s=LEASE_OF_AN_OUTAGE_S)
    bench = site.bench
    (job_id,) = bench.submit(bench.recording("long.wav", FOUR_CALLS_S))
    bench.start_worker()
    wait_until(lambda: "recognise" in steps(bench.database, job_id))
    wait_until(lambda: steps(bench.database, job_id)["recognise"].checkpoint)
    outage(site, CALL_S)
    assert bench.wait_ended(job_id) == {job_id: "succeeded"}
    assert bench.stories(job_id) == ONCE
    judge(bench, succeeded([job_id]))


def test_an_outage_in_the_middle_of_commits_burns_no_attempt(make_site: MakeSite) -> None:
    """What could not be committed is given back and runs again; its worker lives, and no death is noted."""
    site = make_site(fake_cost_base_s=2.0, engine_processes=2)
    bench = site.bench
    (long,) = bench.submit(bench.recording("long.wav"), engine="moody")
    worker = bench.start_worker(faults={"TEST_FAULT_NO_GIL_S": str(LONG_CALL_S)})
    bench.wait_running(long)
    ids = bench.submit(*(bench.recording(f"{number}.wav") for number in range(2)))
    bench.wait_running(ids[0])
    outage(site, LEASE_S)
    assert bench.wait_ended(*ids, timeout_s=60) == succeeded(ids)
    assert steps(bench.database, long)["recognise"].state == "running"
    assert bench.stories(ids[0])["recognise"] == ["released", "succeeded"]
    for job_id in ids:
        assert job(bench.database, job_id).deaths == 0
        assert {row.failures for row in steps(bench.database, job_id).values()} == {0}
    assert bench.wait_ended(long, timeout_s=60) == {long: "succeeded"}
    assert bench.stories(long) == ONCE
    assert worker.poll() is None
    judge(bench, succeeded([*ids, long]))


def test_an_outage_of_three_leases_ends_in_single_commits(make_site: MakeSite) -> None:
    """Nothing is freed before one lease after the outage, what still runs commits, and nothing commits twice."""
    site = make_site(fake_cost_base_s=4 * LEASE_S)
    bench = site.bench
    (running,) = bench.submit(bench.recording("one.wav"))
    workers = [bench.start_worker() for _ in range(2)]
    bench.wait_running(running)
    outage(site, 3 * LEASE_S)
    assert steps(bench.database, running)["recognise"].state == "running"
    (later,) = bench.submit(bench.recording("later.wav"))
    assert bench.wait_ended(running, later, timeout_s=60) == succeeded([running, later])
    assert bench.stories(running) == ONCE, "the worker without leases has waited too"
    assert job(bench.database, running).deaths == 0
    assert [worker.poll() for worker in workers] == [None, None]
    judge(bench, succeeded([running, later]))
