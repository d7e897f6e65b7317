"""The lease on a step run: one holder, a rising fencing number, and nothing changed by whoever comes late."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests import rows
from voicejobs.errors import Damaged, LeaseLost
from voicejobs.store import leases, outbox
from voicejobs.store.database import Database
from voicejobs.store.leases import Ending, Lease
from voicejobs.store.owners import Owner, process_start
from voicejobs.store.states import JobState, StepState

LATE_S = 120.0
"""A lease of minus this length ran out that long ago."""


def test_one_of_many_claims_wins(database: Database) -> None:
    """Of twenty claims at the same moment exactly one gets the lease, and the fencing number rises by one."""
    step_run_id = rows.steps(database, rows.add_job(database))["prepare"].id
    won = [lease for lease in rows.at_once(20, lambda _: rows.claim(database, step_run_id)) if lease is not None]
    assert [lease.fence for lease in won] == [1]


def test_a_claim_tells_what_the_task_must_know(database: Database) -> None:
    """The lease carries options, source and the place of the step run; its job runs from then on."""
    job_id = rows.add_job(database, source={"path": "/a/ü.wav"}, input_sha256="ab", result_key="cd")
    step_run_id = rows.steps(database, job_id)["prepare"].id
    lease = rows.hold(database, step_run_id)
    assert (lease.step_run_id, lease.job_id, lease.node, lease.step) == (step_run_id, job_id, "prepare", "prepare")
    assert (lease.source, lease.input_sha256, lease.result_key) == ({"path": "/a/ü.wav"}, "ab", "cd")
    assert lease.options["recognise"]["beam_size"] == 5
    assert lease.trace_id == job_id
    assert rows.job(database, job_id).state == JobState.RUNNING
    row = rows.steps(database, job_id)["prepare"]
    assert (row.state, row.owner, row.worker, row.device) == ("running", rows.OWNER, "tester", "cpu")


def test_the_fencing_number_rises_with_each_claim(database: Database) -> None:
    """Giving a lease back and taking it again raises the number, and an attempt is not burnt."""
    step_run_id = rows.steps(database, rows.add_job(database))["prepare"].id
    seen = []
    for _ in range(3):
        lease = rows.hold(database, step_run_id)
        seen.append((lease.fence, lease.failures))
        end(database, lease, Ending(StepState.QUEUED, "released"))
    assert seen == [(1, 0), (2, 0), (3, 0)]
    assert rows.story(database, step_run_id) == [(1, "released"), (2, "released"), (3, "released")]


def end(database: Database, lease: Lease, ending: Ending) -> None:
    """End a step run in a transaction of its own."""
    with database.begin() as connection:
        leases.end(connection, lease, ending, owner=rows.OWNER)


@pytest.mark.parametrize(
    "late",
    [
        lambda database, lease: rows.succeed(database, lease, {"late": True}),
        lambda database, lease: leases.checkpoint(database, lease, {"late": True}, 9.0),
        lambda database, lease: end(database, lease, Ending(StepState.FAILED, "failed", is_failure=True)),
        lambda database, lease: end(database, lease, Ending(StepState.QUEUED, "released")),
    ],
    ids=["commit", "checkpoint", "fail", "release"],
)
def test_an_old_fencing_number_changes_nothing(database: Database, late: Callable[[Database, Lease], None]) -> None:
    """Whoever comes with the number of an earlier claim is told so, and neither row nor story changes."""
    job_id = rows.add_job(database)
    step_run_id = rows.steps(database, job_id)["prepare"].id
    zombie = rows.hold(database, step_run_id, lease_s=-LATE_S)
    with database.begin() as connection:
        assert outbox.free_expired(connection, grace_s=0) == [job_id]
    for _ in range(2):  # once while the row waits, once while another worker holds it
        before = rows.steps(database, job_id)["prepare"]
        told = rows.story(database, step_run_id)
        with pytest.raises(LeaseLost):
            late(database, zombie)
        assert rows.steps(database, job_id)["prepare"] == before
        assert rows.story(database, step_run_id) == told
        rows.claim(database, step_run_id)
    row = rows.steps(database, job_id)["prepare"]
    assert (row.state, row.fence) == ("running", zombie.fence + 2)


def test_progress_of_a_zombie_is_dropped(database: Database) -> None:
    """A report of progress with an old number is no error, and changes nothing."""
    job_id = rows.add_job(database)
    lease = rows.hold(database, rows.steps(database, job_id)["prepare"].id)
    leases.report_progress(database, lease, 7.0)
    rows.set_step(database, lease.step_run_id, fence=lease.fence + 1)
    leases.report_progress(database, lease, 99.0)
    assert rows.steps(database, job_id)["prepare"].progress_s == 7.0


def test_a_claim_refuses_what_is_not_queued(database: Database) -> None:
    """A blocked, running, succeeded, skipped or unknown step run gives no lease."""
    found = rows.steps(database, rows.add_job(database))
    assert rows.claim(database, found["deliver"].id) is None
    lease = rows.hold(database, found["prepare"].id)
    assert rows.claim(database, found["prepare"].id) is None
    rows.succeed(database, lease)
    assert rows.claim(database, found["prepare"].id) is None
    rows.set_step(database, found["prepare"].id, state=StepState.SKIPPED)
    assert rows.claim(database, found["prepare"].id) is None
    assert rows.claim(database, "run_of_nobody") is None


@pytest.mark.parametrize("state", ["cancelling", "cancelled", "failed", "succeeded", "expired"])
def test_a_claim_refuses_jobs_that_are_not_to_run(database: Database, state: str) -> None:
    """A queued step run of a job that has ended, or is about to, gives no lease."""
    job_id = rows.add_job(database)
    rows.set_job(database, job_id, state=state)
    found = rows.steps(database, job_id)["prepare"]
    assert rows.claim(database, found.id) is None
    assert rows.steps(database, job_id)["prepare"] == found


def test_a_claim_refuses_jobs_whose_time_has_not_come(database: Database) -> None:
    """A job with `run_after` ahead of the database's clock waits, one behind it runs."""
    job_id = rows.add_job(database)
    step_run_id = rows.steps(database, job_id)["prepare"].id
    lease = rows.hold(database, step_run_id)
    end(database, lease, Ending(StepState.QUEUED, "retried", is_failure=True))
    rows.set_job(database, job_id, run_after=lease.started_at + 3600)
    assert rows.claim(database, step_run_id) is None
    rows.set_job(database, job_id, run_after=lease.started_at - 1)
    assert rows.hold(database, step_run_id).failures == 1


def test_failures_count_and_their_reason_stays(database: Database) -> None:
    """Each failure counts, and the story tells number, outcome, code, message and trace of every attempt."""
    job_id = rows.add_job(database)
    step_run_id = rows.steps(database, job_id)["prepare"].id
    # Names of files need not be UTF-8, and decoders may say anything.
    error = Damaged("\udcff\0 is damaged", name="\udcfe")
    first = rows.hold(database, step_run_id)
    end(database, first, Ending(StepState.QUEUED, "retried", is_failure=True, error=error, traceback="Trace\0\udcff"))
    second = rows.hold(database, step_run_id)
    assert (second.failures, second.fence) == (1, 2)
    end(database, second, Ending(StepState.FAILED, "failed", is_failure=True, error=error))
    row = rows.steps(database, job_id)["prepare"]
    assert (row.state, row.failures, row.error_code, row.owner) == ("failed", 2, "damaged", None)
    assert rows.story(database, step_run_id) == [(1, "retried"), (2, "failed")]
    from voicejobs.queries import show_job

    told = show_job(database, job_id)["steps"][0]
    assert told["error"] == error.to_json()
    assert [one["message"] for one in told["attempts"]] == ["\\udcff\\0 is damaged"] * 2
    assert [one["traceback"] for one in told["attempts"]] == ["Trace\\0\\udcff", None]
    assert {(one["worker"], one["device"], one["owner"]) for one in told["attempts"]} == {("tester", "cpu", rows.OWNER)}
    assert all(one["started_at"] <= one["finished_at"] for one in told["attempts"])


def test_a_step_run_of_an_ended_job_waits_for_nothing(database: Database) -> None:
    """A lease given back after the job has ended leaves no queued step run behind."""
    job_id = rows.add_job(database)
    lease = rows.hold(database, rows.steps(database, job_id)["prepare"].id)
    rows.set_job(database, job_id, state=JobState.FAILED)
    end(database, lease, Ending(StepState.QUEUED, "released"))
    assert rows.steps(database, job_id)["prepare"].state == StepState.SKIPPED


def test_a_checkpoint_survives_its_worker(database: Database) -> None:
    """What was saved comes back with the next claim, and is gone once the step run has succeeded."""
    job_id = rows.add_job(database)
    step_run_id = rows.steps(database, job_id)["prepare"].id
    lease = rows.hold(database, step_run_id)
    leases.checkpoint(database, lease, {"results": [1, "ü"]}, 12.5)
    end(database, lease, Ending(StepState.QUEUED, "released"))
    again = rows.hold(database, step_run_id)
    assert again.checkpoint == {"results": [1, "ü"]}
    rows.succeed(database, again)
    row = rows.steps(database, job_id)["prepare"]
    assert (row.checkpoint, row.state) == (None, "succeeded")
    assert rows.story(database, step_run_id) == [(1, "released"), (2, "succeeded")]


def test_a_heartbeat_extends_leases_and_tells_the_lost_ones(database: Database) -> None:
    """Leases that the owner knows of are extended; the gone, the foreign and the forgotten are not in the answer."""
    ids = [rows.steps(database, rows.add_job(database))["prepare"].id for _ in range(4)]
    held = [rows.hold(database, step_run_id, lease_s=0.0) for step_run_id in ids[:2]]
    forgotten = rows.hold(database, ids[3], lease_s=-LATE_S)
    foreign = rows.hold(database, ids[2], "other/boot/2/2", lease_s=-LATE_S)
    rows.succeed(database, held[1])
    with database.begin() as connection:
        alive = outbox.heartbeat(connection, rows.OWNER, 60.0, ids[:3])
    assert alive == {(ids[0], 1)}
    with database.begin() as connection:
        assert outbox.free_expired(connection, grace_s=0) == sorted([foreign.job_id, forgotten.job_id])


def test_leases_that_ran_out_are_freed(database: Database) -> None:
    """An expired lease goes back to the queue with a new number, its job to the outbox with one more death."""
    lost, kept = (rows.add_job(database) for _ in range(2))
    gone = rows.hold(database, rows.steps(database, lost)["prepare"].id, lease_s=-10.0)
    rows.hold(database, rows.steps(database, kept)["prepare"].id)
    with database.begin() as connection:
        outbox.mark_sent(connection, [lost, kept])
        assert outbox.free_expired(connection, grace_s=30.0) == []
        assert outbox.free_expired(connection, grace_s=0.0) == [lost]
        assert outbox.free_expired(connection, grace_s=0.0) == []
    row = rows.steps(database, lost)["prepare"]
    assert (row.state, row.owner, row.fence, row.failures) == ("queued", None, 2, 0)
    assert (rows.job(database, lost).sent_at, rows.job(database, lost).deaths) == (None, 1)
    assert (rows.job(database, kept).sent_at is None, rows.job(database, kept).deaths) == (False, 0)
    assert rows.story(database, gone.step_run_id) == [(1, "lost")]


def test_a_lost_step_run_of_an_ended_job_is_skipped(database: Database) -> None:
    """Freeing the lease of a job that has ended neither queues its step run nor touches the job."""
    job_id = rows.add_job(database)
    rows.hold(database, rows.steps(database, job_id)["prepare"].id, lease_s=-LATE_S)
    rows.set_job(database, job_id, state=JobState.CANCELLED)
    with database.begin() as connection:
        outbox.free_expired(connection, grace_s=0.0)
    assert rows.steps(database, job_id)["prepare"].state == StepState.SKIPPED
    assert rows.job(database, job_id).deaths == 0


@pytest.mark.parametrize("count_deaths", [False, True])
def test_only_owners_that_are_proven_dead_lose_their_leases(database: Database, *, count_deaths: bool) -> None:
    """A dead process, a reused pid and an earlier boot are dead; this process and other machines are not."""
    us = Owner.of_this_process()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    killed = Owner(us.host, us.boot, child.pid, process_start(child.pid))
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    owners = {
        "killed": killed,
        "reused": Owner(us.host, us.boot, us.pid, "1"),
        "rebooted": Owner(us.host, "earlier", us.pid, us.started),
        "us": us,
        "other": Owner("elsewhere", "earlier", us.pid, "1"),
        "strange": "a name with no meaning",
    }
    ids = {}
    for name, owner in owners.items():
        ids[name] = rows.add_job(database)
        rows.hold(database, rows.steps(database, ids[name])["prepare"].id, str(owner))
    with database.begin() as connection:
        freed = outbox.free_dead_owners(connection, count_deaths=count_deaths)
    assert sorted(freed) == sorted(ids[name] for name in ("killed", "reused", "rebooted"))
    deaths = {name: rows.job(database, job_id).deaths for name, job_id in ids.items()}
    dead = int(count_deaths)
    assert deaths == {"killed": dead, "reused": dead, "rebooted": dead, "us": 0, "other": 0, "strange": 0}
    assert [rows.steps(database, ids[name])["prepare"].state for name in ("us", "other", "strange")] == ["running"] * 3


def test_two_sweepers_free_a_lease_once(database: Database) -> None:
    """Sweeps at the same moment count one death and write one line of the story."""
    job_id = rows.add_job(database)
    lease = rows.hold(database, rows.steps(database, job_id)["prepare"].id, lease_s=-LATE_S)

    def sweep(_: int) -> list[str]:
        with database.begin() as connection:
            return outbox.free_expired(connection, grace_s=0.0)

    assert sum(map(len, rows.at_once(6, sweep))) == 1
    assert rows.job(database, job_id).deaths == 1
    assert rows.story(database, lease.step_run_id) == [(1, "lost")]


def test_the_owner_learns_that_its_job_is_to_stop(database: Database) -> None:
    """A cancelled job shows among the stopped ones of the owner that runs it, and of nobody else."""
    job_id = rows.add_job(database)
    lease = rows.hold(database, rows.steps(database, job_id)["prepare"].id)
    with database.begin() as connection:
        assert outbox.stopped_jobs(connection, rows.OWNER) == []
    rows.set_job(database, job_id, state=JobState.CANCELLING)
    with database.read() as connection:
        assert outbox.stopped_jobs(connection, rows.OWNER) == [(lease.step_run_id, "cancelling")]
        assert outbox.stopped_jobs(connection, "other/boot/2/2") == []
