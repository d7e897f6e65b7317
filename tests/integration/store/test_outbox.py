"""What the dispatcher sends, in which order, and what comes back to the outbox."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery

from tests import rows
from tests.rows import opened
from tests.servers.valkey import Valkey
from voicejobs import dispatch
from voicejobs.dispatch import Upkeep, fill
from voicejobs.messages import queue_name
from voicejobs.store import outbox
from voicejobs.store.database import Database
from voicejobs.store.jobs import finish_job
from voicejobs.store.states import JobState
from voicejobs.tasks.app import configure


@pytest.fixture
def app(broker_url: str) -> Iterator[Celery]:
    """Return an application whose broker is empty, and no worker listens."""
    app = Celery("test", set_as_current=False)
    configure(app, broker_url)
    yield app
    app.close()


def take(app: Celery, queue: str = "cpu") -> list[str]:
    """Take every message from a queue and return the ids of their jobs, in order."""
    ids = []
    with app.connection_for_read() as connection:
        client: Any = getattr(connection.default_channel, "client")  # noqa: B009 - kombu's types do not know it
        while (message := client.rpop(queue_name(queue))) is not None:
            ids.append(json.loads(b64decode(json.loads(message)["body"]))[0][0])
    return ids


def add_jobs(database: Database, batch_id: str, count: int, **fields: object) -> list[str]:
    """Insert some jobs of one kind."""
    return [rows.add_job(database, batch_id, seq=seq, **fields) for seq in range(count)]


def finish(database: Database, *job_ids: str) -> None:
    """End jobs."""
    with database.begin() as connection:
        for job_id in job_ids:
            finish_job(connection, job_id, JobState.SUCCEEDED)


def test_the_window_is_never_passed(database: Database, app: Celery) -> None:
    """Only as many jobs go out as the window has room for, and an ended job makes room for one more."""
    ids = add_jobs(database, rows.add_batch(database), 7)
    assert [fill(database, app, 4), fill(database, app, 4)] == [4, 0]
    assert take(app) == ids[:4]
    finish(database, ids[0], ids[2])
    assert fill(database, app, 4) == 2
    assert take(app) == ids[4:6]
    assert rows.job(database, ids[0]).sent_count == 1


def test_dispatchers_at_once_send_each_job_once(database: Database, app: Celery) -> None:
    """Several dispatchers together keep the window, and no job is sent twice."""
    ids = add_jobs(database, rows.add_batch(database), 12)
    for _ in range(3):
        rows.at_once(4, lambda _: fill(database, app, 8))
    assert sorted(take(app)) == sorted(ids[:8])


def test_batches_share_the_lane_evenly(database: Database, app: Celery) -> None:
    """A batch that comes later gets its half of the window as soon as there is room."""
    first, second = sorted(rows.add_batch(database) for _ in range(2))
    early, late = add_jobs(database, first, 10), add_jobs(database, second, 10)
    assert fill(database, app, 6) == 6
    sent = take(app)
    assert sent[:2] == [early[0], late[0]]
    for pair in (sent[2:4], sent[4:]):  # which of two with equally many out is next, chance decides
        assert len({*pair} & {*early}) == 1
    assert [one for one in sent if one in early] == early[:3]
    assert [one for one in sent if one in late] == late[:3]
    finish(database, *late[:3])
    third = add_jobs(database, rows.add_batch(database), 10)
    assert fill(database, app, 6) == 3
    sent = take(app)
    assert {late[3], third[0]} <= set(sent) <= {late[3], late[4], third[0], third[1]}


def test_the_interactive_lane_has_a_window_of_its_own(database: Database, app: Celery) -> None:
    """A full bulk lane keeps no interactive job waiting, and interactive jobs go out first."""
    bulk = add_jobs(database, rows.add_batch(database), 5)
    assert fill(database, app, 3) == 3
    urgent = add_jobs(database, rows.add_batch(database, lane="interactive"), 5)
    finish(database, bulk[0])
    assert fill(database, app, 3) == 4
    assert take(app) == [*bulk[:3], *urgent[:3], bulk[3]]


def test_order_is_priority_then_length_then_sequence(database: Database, app: Celery) -> None:
    """In a batch the lowest priority number goes first, then the longest recording, then the order of submission."""
    batch_id = rows.add_batch(database)
    wanted = {(50, -1, 9): "", (100, -900, 3): "", (100, -900, 4): "", (100, -5, 1): "", (200, -999, 0): ""}
    for priority, cost, seq in sorted(wanted, key=lambda key: key[2]):
        job_id = rows.add_job(database, batch_id, seq=seq, priority=priority, cost_order=cost)
        wanted[priority, cost, seq] = job_id
    fill(database, app, 10)
    assert take(app) == list(wanted.values())


def test_jobs_that_are_not_due_wait(database: Database, app: Celery) -> None:
    """A job with `run_after` ahead is passed over, one behind goes out; cancelled jobs never do."""
    later, due, cancelled = add_jobs(database, rows.add_batch(database), 3)
    now_s = rows.job(database, due).created_at
    rows.set_job(database, later, run_after=now_s + 3600)
    rows.set_job(database, due, run_after=now_s - 1)
    rows.set_job(database, cancelled, state=JobState.CANCELLING)
    assert fill(database, app, 10) == 1
    assert take(app) == [due]


def test_a_suspect_runs_alone_and_then_counts_as_poison(database: Database, app: Celery) -> None:
    """A job under which workers died three times waits for the others, runs with nothing beside it, then fails."""
    *others, suspect = add_jobs(database, rows.add_batch(database), 3)
    rows.set_job(database, suspect, deaths=outbox.DEATHS_BEFORE_ISOLATION)
    assert fill(database, app, 3) == 2
    finish(database, others[0])
    assert fill(database, app, 3) == 0, "one is still out"
    assert take(app) == others
    finish(database, others[1])
    assert fill(database, app, 3) == 1
    assert take(app) == [suspect]
    rows.add_job(database, rows.add_batch(database))
    rows.add_job(database, rows.add_batch(database, lane="interactive"))
    assert fill(database, app, 2) == 0, "nothing may run beside it"
    rows.set_job(database, suspect, deaths=outbox.DEATHS_BEFORE_ISOLATION + 1, sent_at=None)
    assert fill(database, app, 2) == 2
    row = rows.job(database, suspect)
    assert (row.state, row.error_code) == ("failed", "poison")
    assert {one.state for one in rows.steps(database, suspect).values()} == {"skipped"}


def test_two_suspects_of_two_lanes_do_not_meet(database: Database, app: Celery) -> None:
    """Suspects of both lanes go out one after the other, also where one turn looks at both lanes."""
    lanes = ("interactive", "bulk")
    ids = [rows.add_job(database, rows.add_batch(database, lane=lane)) for lane in lanes]
    for job_id in ids:
        rows.set_job(database, job_id, deaths=outbox.DEATHS_BEFORE_ISOLATION)
    assert fill(database, app, 4) == 1
    assert take(app) == ids[:1]
    finish(database, ids[0])
    assert fill(database, app, 4) == 1
    assert take(app) == ids[1:]


def test_a_suspect_does_not_go_out_beside_the_other_lane(database: Database, app: Celery) -> None:
    """A bulk suspect waits for interactive jobs that the same turn sends."""
    suspect = rows.add_job(database, rows.add_batch(database))
    rows.set_job(database, suspect, deaths=outbox.DEATHS_BEFORE_ISOLATION)
    urgent = rows.add_job(database, rows.add_batch(database, lane="interactive"))
    assert fill(database, app, 4) == 1
    assert take(app) == [urgent]


def test_lost_messages_are_found_on_the_second_look_only(database: Database, app: Celery, valkey: Valkey) -> None:
    """Jobs whose messages are gone come back after two looks; while their messages wait they stay."""
    ids = add_jobs(database, rows.add_batch(database), 3)
    fill(database, app, 10)
    rung: list[bool] = []
    upkeep = Upkeep(database, app, 60.0, wake=lambda: rung.append(True))
    assert [upkeep.find_lost_messages() for _ in range(3)] == [0, 0, 0], "their messages are in the queue"
    assert take(app) == ids
    assert upkeep.find_lost_messages() == 0
    assert rows.claim(database, rows.steps(database, ids[0])["prepare"].id), "one was only on its way"
    assert (upkeep.find_lost_messages(), rung) == (2, [True])
    assert [rows.job(database, job_id).sent_at is None for job_id in ids] == [False, True, True]
    assert fill(database, app, 10) == 2
    assert take(app) == ids[1:]
    assert rows.job(database, ids[1]).sent_count == 2


def test_a_broker_that_does_not_answer_keeps_jobs_in_the_outbox(
    sqlite_url: str, start_valkey: Callable[..., Valkey]
) -> None:
    """Nothing counts as sent or lost while the broker is away, and all goes out once it is back."""
    with opened(sqlite_url) as database:
        outlive_the_broker(database, start_valkey())


def outlive_the_broker(database: Database, server: Valkey) -> None:
    """Fill and look for lost messages while the server is away, and again once it is back."""
    app = Celery("test", set_as_current=False)
    configure(app, server.broker_url(1))
    ids = add_jobs(database, rows.add_batch(database), 3)
    server.kill()
    fill(database, app, 10)
    assert [rows.job(database, job_id).sent_at for job_id in ids] == [None] * 3
    upkeep = Upkeep(database, app, 60.0)
    assert [upkeep.find_lost_messages() for _ in range(2)] == [0, 0]
    server.start()
    assert fill(database, app, 10) == 3
    assert take(app) == ids
    app.close()


def test_a_stack_that_starts_forgets_what_an_empty_broker_lost(database: Database, app: Celery) -> None:
    """With an empty broker sent jobs go out again at once, except those that a live worker runs."""
    ids = add_jobs(database, rows.add_batch(database), 3)
    fill(database, app, 10)
    rows.hold(database, rows.steps(database, ids[0])["prepare"].id)
    upkeep = Upkeep(database, app, 60.0)
    upkeep.stack_started(after_crash=False)
    assert fill(database, app, 10) == 0, "the messages are still there"
    take(app)
    upkeep.stack_started(after_crash=False)
    assert fill(database, app, 10) == 2
    assert take(app) == ids[1:]


def test_leases_that_ran_out_in_an_outage_get_a_grace(database: Database, app: Celery) -> None:
    """Right after an outage of the database nobody loses a lease; one lease's time later silent workers do."""
    job_id = rows.add_job(database)
    rows.hold(database, rows.steps(database, job_id)["prepare"].id, lease_s=-10.0)
    upkeep = Upkeep(database, app, 60.0)
    upkeep.tick()
    assert rows.job(database, job_id).deaths == 0
    upkeep._healthy_since -= 61
    upkeep.tick()
    assert rows.job(database, job_id).deaths == 1
    upkeep.database_was_away()
    rows.hold(database, rows.steps(database, job_id)["prepare"].id, lease_s=-10.0)
    upkeep.tick()
    assert rows.job(database, job_id).deaths == 1


def test_retries_wait_longer_and_longer_within_bounds() -> None:
    """The delay doubles with each failure, keeps at least half of it, and is capped."""
    for failures in range(1, 40):
        ceiling = min(dispatch.RETRY_CAP_S, dispatch.RETRY_BASE_S * 2.0 ** (failures - 1))
        delays = [dispatch.retry_delay_s(failures) for _ in range(20)]
        assert all(ceiling / 2 <= delay <= ceiling for delay in delays)
