"""Keeping leases: one heartbeat for all, and a word to tasks that must stop."""

from collections.abc import Iterator

import pytest

from tests import rows
from tests.waiting import wait_until
from voicejobs.errors import Cancelled, LeaseLost, ShuttingDown, StepTimeout
from voicejobs.store.database import Database
from voicejobs.store.leases import Lease
from voicejobs.tasks.keeper import LeaseKeeper

LEASE_S = 0.6


@pytest.fixture
def database(sqlite_url: str) -> Iterator[Database]:
    """Return an empty store."""
    with rows.opened(sqlite_url) as database:
        yield database


@pytest.fixture
def keeper(database: Database) -> Iterator[LeaseKeeper]:
    """Return a keeper that runs."""
    keeper = LeaseKeeper(database, rows.OWNER, LEASE_S)
    keeper.start()
    yield keeper
    keeper.close()


def lease_of(database: Database) -> Lease:
    """Return the lease of a new job."""
    return rows.hold(database, rows.steps(database, rows.add_job(database))["prepare"].id, lease_s=LEASE_S)


def test_leases_are_extended_while_they_are_held(database: Database, keeper: LeaseKeeper) -> None:
    """The end of each held lease moves on; that of one which is no longer held stays."""
    lease, dropped = lease_of(database), lease_of(database)
    with keeper.hold(dropped):
        assert keeper.held == 1

    def end_of(one: Lease) -> float:
        return float(rows.steps(database, one.job_id)["prepare"].lease_until)

    before = end_of(lease)
    with keeper.hold(lease) as hold:
        wait_until(lambda: end_of(lease) > before)
        dropped_before = end_of(dropped)
        wait_until(lambda: end_of(lease) > before + LEASE_S)
        hold.check()
        assert not hold.is_stopped
    assert end_of(dropped) == dropped_before
    assert keeper.held == 0


@pytest.mark.parametrize("change", [{"fence": 2}, {"owner": "other/boot/2/2"}, {"state": "queued"}])
def test_a_task_whose_lease_is_gone_is_told(database: Database, keeper: LeaseKeeper, change: dict[str, object]) -> None:
    """A lease with another number, of another owner or back in the queue stops its task."""
    lease = lease_of(database)
    with keeper.hold(lease) as hold:
        rows.set_step(database, lease.step_run_id, **change)
        wait_until(lambda: hold.is_stopped)
        with pytest.raises(LeaseLost, match=lease.step_run_id):
            hold.check()


def test_a_task_whose_job_was_cancelled_is_told(database: Database, keeper: LeaseKeeper) -> None:
    """A job that is not to run any more stops its task, and no other."""
    lease, other = lease_of(database), lease_of(database)
    with keeper.hold(lease) as hold, keeper.hold(other) as kept:
        rows.set_job(database, lease.job_id, state="cancelling")
        wait_until(lambda: hold.is_stopped)
        with pytest.raises(Cancelled, match="cancelling"):
            hold.check()
        assert not kept.is_stopped


def test_a_worker_that_goes_down_tells_all_tasks(database: Database, keeper: LeaseKeeper) -> None:
    """Tasks that run, and those that begin afterwards, are stopped at once; the first reason stays."""
    with keeper.hold(lease_of(database)) as hold:
        keeper.shut_down()
        assert keeper.is_closing
        with pytest.raises(ShuttingDown):
            hold.check()
        hold.stop(Cancelled("later"))
        with pytest.raises(ShuttingDown):
            hold.check()
    with keeper.hold(lease_of(database)) as late:
        assert late.is_stopped


def test_a_step_run_claimed_again_here_stops_the_task_that_had_it(database: Database, keeper: LeaseKeeper) -> None:
    """A process that was frozen and claims its own lost step run again runs it once, not twice."""
    lease = lease_of(database)
    with keeper.hold(lease) as zombie:
        rows.set_step(database, lease.step_run_id, state="queued")
        again = rows.hold(database, lease.step_run_id, lease_s=LEASE_S)
        with keeper.hold(again) as hold:
            with pytest.raises(LeaseLost):
                zombie.check()
            hold.check()
            assert keeper.held == 1


def test_an_outage_of_the_database_is_told_and_survived(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats that fail tell the upkeep to be patient, and go on once the database is back."""
    outages: list[bool] = []
    keeper = LeaseKeeper(database, rows.OWNER, LEASE_S, on_outage=lambda: outages.append(True))
    lease = lease_of(database)
    away = Database("postgresql+psycopg://postgres@127.0.0.1:9/none")
    keeper.database = away
    keeper.start()
    with keeper.hold(lease) as hold:
        wait_until(lambda: outages)
        keeper.database = database
        before = rows.steps(database, lease.job_id)["prepare"].lease_until
        wait_until(lambda: rows.steps(database, lease.job_id)["prepare"].lease_until > before)
        assert not hold.is_stopped
    keeper.close()
    away.close()


def test_a_step_has_time_in_proportion_to_its_audio(database: Database, keeper: LeaseKeeper) -> None:
    """One that takes longer is stopped, and one whose audio allows it goes on."""
    with (
        keeper.hold(lease_of(database), base_s=5.0, factor=100.0) as patient,
        keeper.hold(lease_of(database), base_s=0.0, factor=0.001) as hasty,
    ):
        patient.allow(60.0)
        hasty.allow(60.0)
        wait_until(lambda: hasty.is_stopped)
        with pytest.raises(StepTimeout):
            hasty.check()
        patient.check()
