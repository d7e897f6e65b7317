"""Two that change the same jobs at the same moment: nobody gets an error, and nothing is left that never runs."""

import threading
from typing import Any

import pytest
from sqlalchemy import Connection, select, text

from tests import rows
from voicejobs import canvas
from voicejobs.canvas import Done
from voicejobs.errors import Damaged, DatabaseUnavailable
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store import jobs as store
from voicejobs.store import leases, outbox, retry
from voicejobs.store.database import Database, InTheWay
from voicejobs.store.expiry import expire_jobs
from voicejobs.store.schema import batches, jobs
from voicejobs.store.states import BatchState, JobState
from voicejobs.submit import cancel_batch
from voicejobs.tasks.keeper import LeaseKeeper

ROUNDS = 6
JOBS = 60


def in_the_middle(database: Database) -> "tuple[threading.Event, threading.Event]":
    """Return events for "I am in my transaction" and "go on"; skip where transactions come one after the other."""
    if database.is_sqlite:
        pytest.skip("transactions of SQLite that write come one after the other")
    return threading.Event(), threading.Event()


def test_expiring_and_cancelling_never_wait_for_each_other(database: Database) -> None:
    """While a batch is cancelled its jobs expire: each ends once, and no side gets an error of the database."""
    for _ in range(ROUNDS):
        batch_id = rows.add_batch(database)
        new = [rows.new_job(seq, expires_after_s=-1.0) for seq in range(JOBS)]
        with database.begin() as connection:
            store.insert_jobs(connection, batch_id, new)

        def act(number: int, batch_id: str = batch_id) -> int:
            if number:
                with database.begin() as connection:  # not `run`: the order alone must do
                    return store.cancel_jobs(connection, batch_id=batch_id)
            with database.begin() as connection:
                return expire_jobs(connection)

        assert sum(rows.at_once(2, act)) == JOBS


def test_a_circle_of_waiting_is_broken_and_gone_through_again(database: Database) -> None:
    """Two that lock two rows crosswise: Postgres ends one of them, and it comes again."""
    in_the_middle(database)
    first, second = rows.add_batch(database), rows.add_batch(database)
    barrier = threading.Barrier(2)
    met: list[str] = []

    def lock(connection: Connection, *batch_ids: str) -> None:
        for number, batch_id in enumerate(batch_ids):
            connection.execute(select(batches.c.id).where(batches.c.id == batch_id).with_for_update())
            if not number and len(met) < 2:
                met.append(batch_id)
                barrier.wait(10)

    rows.at_once(
        2, lambda number: database.run(lambda connection: lock(connection, *[(first, second), (second, first)][number]))
    )
    assert sorted(met) == sorted([first, second])


def test_what_stays_in_the_way_is_an_error_in_the_end(database: Database) -> None:
    """A transaction that is broken off time and again is told as a database that does not answer."""
    in_the_middle(database)
    tries = []

    def act(connection: Connection) -> None:
        tries.append(1)
        connection.execute(text("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$"))

    with pytest.raises(InTheWay) as raised:
        database.run(act)
    assert isinstance(raised.value, DatabaseUnavailable)
    assert len(tries) > 2


def test_a_batch_is_not_completed_while_one_of_its_jobs_is_taken_up(database: Database) -> None:
    """Completing waits for a retry that has the batch, and then sees its live job."""
    inside, go_on = in_the_middle(database)
    batch_id = rows.add_batch(database)
    job_id = rows.add_job(database, batch_id)
    rows.set_job(database, job_id, state="failed", finished_at=1.0)

    def take_up() -> None:
        with database.begin() as connection:
            assert retry.reopen_job(connection, job_id, {})
            retry.reopen_batches(connection, [batch_id])
            inside.set()
            assert go_on.wait(10)

    thread = threading.Thread(target=take_up)
    thread.start()
    assert inside.wait(10)
    threading.Timer(0.5, go_on.set).start()
    database.run(store.complete_batches)
    thread.join()
    assert rows.batch(database, batch_id).state == BatchState.IN_PROGRESS
    with database.read() as connection:
        assert [one.id for one in outbox.open_batches(connection)] == [batch_id]


def test_a_batch_that_completed_is_open_for_further_jobs(database: Database) -> None:
    """A producer took longer than a day, and its batch had been completed: what it adds is sent all the same."""
    batch_id = rows.add_batch(database, sealed=False)
    with database.begin() as connection:
        connection.execute(batches.update().values(created_at=1.0))
        assert store.complete_batches(connection) == 1
    with database.begin() as connection:
        assert store.keep_open(connection, batch_id)
        store.insert_jobs(connection, batch_id, [rows.new_job()])
    with database.begin() as connection:
        assert store.complete_batches(connection) == 0
        assert [one.id for one in outbox.open_batches(connection)] == [batch_id]


def test_a_job_that_ends_while_it_forks_has_nothing_queued(database: Database) -> None:
    """The commit that makes the shards is under way when the job expires: none of them waits to be run."""
    inside, go_on = in_the_middle(database)
    job_id = rows.add_job(database, expires_after_s=-1.0)
    lease = rows.hold(database, store.step_run_id(job_id, "prepare"))

    def fork() -> None:
        output: dict[str, Any] = {"shards": [{"first": 0}, {"first": 1}]}
        with database.begin() as connection:
            leases.succeed(connection, lease, output, owner=rows.OWNER)
            canvas.release(connection, TRANSCRIBE, Done(job_id, "prepare", is_only=True), output)
            inside.set()
            assert go_on.wait(10)

    thread = threading.Thread(target=fork)
    thread.start()
    assert inside.wait(10)
    threading.Timer(0.5, go_on.set).start()
    assert database.run(expire_jobs) == 1
    thread.join()
    assert rows.job(database, job_id).state == JobState.EXPIRED
    assert {row.state for row in rows.steps(database, job_id).values()} == {"succeeded", "skipped"}


def test_a_lease_that_could_not_be_given_back_is_no_death(database: Database) -> None:
    """The database was away when a step ended: once it answers, its worker gives the lease back at no cost."""
    job_id = rows.add_job(database)
    lease = rows.hold(database, store.step_run_id(job_id, "prepare"))
    keeper = LeaseKeeper(database, rows.OWNER, 60.0)
    keeper.owe(lease)
    keeper._pay()
    keeper._pay()
    assert rows.steps(database, job_id)["prepare"].state == "queued"
    assert rows.story(database, lease.step_run_id) == [(1, "released")]
    assert (rows.job(database, job_id).deaths, rows.job(database, job_id).sent_at) == (0, None)


def test_a_lease_that_is_owed_and_was_committed_stays_committed(database: Database) -> None:
    """Only the answer to the commit was lost: there is nothing to give back."""
    job_id = rows.add_job(database)
    lease = rows.hold(database, store.step_run_id(job_id, "prepare"))
    rows.succeed(database, lease)
    keeper = LeaseKeeper(database, rows.OWNER, 60.0)
    keeper.owe(lease)
    keeper._pay()
    assert rows.steps(database, job_id)["prepare"].state == "succeeded"


def test_a_cancelled_batch_takes_the_chunk_along_that_is_being_added(database: Database) -> None:
    """Jobs that are inserted at the moment of the cancellation are cancelled too."""
    inside, go_on = in_the_middle(database)
    batch_id = rows.add_batch(database, sealed=False)

    def add() -> None:
        with database.begin() as connection:
            assert store.keep_open(connection, batch_id)
            store.insert_jobs(connection, batch_id, [rows.new_job(seq) for seq in range(3)])
            inside.set()
            assert go_on.wait(10)

    thread = threading.Thread(target=add)
    thread.start()
    assert inside.wait(10)
    threading.Timer(0.5, go_on.set).start()
    assert cancel_batch(database, batch_id) == 3
    thread.join()
    with database.read() as connection:
        assert set(connection.execute(select(jobs.c.state)).scalars()) == {"cancelled"}


def test_an_error_of_a_job_goes_through_a_run_unchanged(database: Database) -> None:
    """What `act` raises is raised, and nothing of it is committed."""
    batch_id = rows.add_batch(database)

    def act(connection: Connection) -> None:
        store.insert_jobs(connection, batch_id, [rows.new_job()])
        raise Damaged("odd")

    with pytest.raises(Damaged):
        database.run(act)
    with database.read() as connection:
        assert not connection.execute(select(jobs.c.id)).all()
