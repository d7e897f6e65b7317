"""Workers that are killed, stopped, asked to end, or wrong about the time: every job ends once, as without them."""

import signal
import time

import pytest

from tests.bench import LEASE_S, Bench, MakeBench, family
from tests.faults.long_work import LONG_S, ONCE, SLOW, working_on_a_long_file
from tests.faults.oracle import judge, succeeded
from tests.rows import job, steps
from tests.servers.process import wait_gone
from tests.waiting import patience, wait_until
from voicejobs import queries
from voicejobs.store.schema import attempts
from voicejobs.submit import cancel_batch
from voicejobs.tasks.runtime import TICK_EVERY_S

pytestmark = pytest.mark.timeout(400)
SLACK_S = 3.0
"""For a machine that does other things as well."""


@pytest.mark.parametrize("host", ["here", "elsewhere"])
def test_a_worker_beside_a_killed_one_takes_over(
    make_bench: MakeBench, postgres_url: str, broker_url: str, host: str
) -> None:
    """After SIGKILL another worker goes on from the checkpoint: at once if it can see the death, else after a lease."""
    bench = make_bench(postgres_url, broker_url, **SLOW)
    job_id, worker = working_on_a_long_file(bench, {"TEST_FAULT_HOST": "elsewhere"} if host == "elsewhere" else None)
    children = family(worker.pid)
    bench.start_worker(fake_cost_window_s=0)
    before = steps(bench.database, job_id)["recognise"]
    bench.stop(worker)
    killed = time.monotonic()
    wait_gone(children, 10)  # its decoder and its engines end with it
    wait_until(lambda: steps(bench.database, job_id)["recognise"].fence > before.fence)
    silent_s = time.monotonic() - killed
    assert silent_s < (LEASE_S if host == "elsewhere" else 0) + (TICK_EVERY_S + SLACK_S) * patience()
    bench.start_worker("--restart", fake_cost_window_s=0)  # as its supervisor would
    (other,) = bench.submit(bench.recording("other.wav"))
    assert bench.wait_ended(job_id, other) == succeeded([job_id, other])
    assert bench.stories(job_id) == {**ONCE, "recognise": ["lost", "succeeded"]}
    row = steps(bench.database, job_id)["recognise"]
    assert (row.fence, row.failures) == (before.fence + 2, 0)
    assert job(bench.database, job_id).deaths <= 1
    judge(bench, succeeded([job_id, other]))


def test_a_killed_worker_loses_no_job(make_bench: MakeBench, store_url: str, broker_url: str) -> None:
    """With no other worker the next one that starts takes over at once, from the checkpoint, and counts no death."""
    bench = make_bench(store_url, broker_url, **SLOW)
    job_id, worker = working_on_a_long_file(bench)
    before = steps(bench.database, job_id)["recognise"]
    bench.stop(worker)
    began = time.monotonic()
    bench.start_worker(fake_cost_window_s=0)
    assert bench.wait_ended(job_id) == {job_id: "succeeded"}
    assert time.monotonic() - began < 15 * patience()
    assert bench.stories(job_id) == {**ONCE, "recognise": ["lost", "succeeded"]}
    row = steps(bench.database, job_id)["recognise"]
    assert (row.fence, row.failures, job(bench.database, job_id).deaths) == (before.fence + 2, 0, 0)
    judge(bench, succeeded([job_id]))


def test_a_frozen_worker_is_fenced_out(make_bench: MakeBench, postgres_url: str, broker_url: str) -> None:
    """A worker that is stopped for two leases loses its step run; awake again it commits nothing and lives on."""
    bench = make_bench(postgres_url, broker_url, fake_cost_base_s=2.0)
    (job_id,) = bench.submit(bench.recording("one.wav"))
    zombie = bench.start_worker()
    bench.wait_running(job_id)
    zombie.send_signal(signal.SIGSTOP)
    frozen = time.monotonic()
    bench.start_worker(fake_cost_base_s=0)
    assert bench.wait_ended(job_id, timeout_s=4 * LEASE_S + 20) == {job_id: "succeeded"}
    ended = queries.show_job(bench.database, job_id)
    time.sleep(max(0.0, 2 * LEASE_S - (time.monotonic() - frozen)))
    zombie.send_signal(signal.SIGCONT)
    wait_until(lambda: "lease_lost" in bench.log, what=lambda: bench.log[-3000:])
    assert queries.show_job(bench.database, job_id) == ended
    assert bench.stories(job_id)["recognise"] == ["lost", "succeeded"]
    (other,) = bench.submit(bench.recording("other.wav"))
    assert bench.wait_ended(other) == {other: "succeeded"}
    assert zombie.poll() is None
    judge(bench, succeeded([job_id, other]))


def test_a_zombie_that_decodes_leaves_nothing(make_bench: MakeBench, postgres_url: str, broker_url: str) -> None:
    """Stopped while it decodes, a worker loses its step run too; what it had decoded is gone in the end."""
    bench = make_bench(postgres_url, broker_url)
    (job_id,) = bench.submit(bench.recording("long.wav", 1200.0))
    zombie = bench.start_worker()
    scratch = bench.folder / "state" / "blobs" / "scratch"
    wait_until(lambda: scratch.exists() and any(path.stat().st_size > 0 for path in scratch.iterdir()))
    zombie.send_signal(signal.SIGSTOP)
    assert steps(bench.database, job_id)["prepare"].state == "running"
    bench.start_worker()
    wait_until(lambda: "lost" in bench.stories(job_id)["prepare"])
    zombie.send_signal(signal.SIGCONT)
    assert bench.wait_ended(job_id, timeout_s=60) == {job_id: "succeeded"}
    wait_until(lambda: "lease_lost" in bench.log, what=lambda: bench.log[-3000:])
    assert bench.stories(job_id)["prepare"] == ["lost", "succeeded"]
    judge(bench, succeeded([job_id]))


def test_sigterm_gives_the_lease_back(make_bench: MakeBench, postgres_url: str, broker_url: str) -> None:
    """SIGTERM in the middle of a step ends the worker within ten seconds, burns no attempt, and loses no window."""
    bench = make_bench(postgres_url, broker_url, **SLOW)
    job_id, worker = working_on_a_long_file(bench)
    began = time.monotonic()
    bench.stop(worker, signal.SIGTERM)
    assert time.monotonic() - began < 10 * patience()
    assert worker.returncode == 0
    row = steps(bench.database, job_id)["recognise"]
    assert (row.state, row.failures, row.owner) == ("queued", 0, None)
    assert row.checkpoint, "what was recognised is kept"
    bench.start_worker(fake_cost_window_s=0)
    assert bench.wait_ended(job_id) == {job_id: "succeeded"}
    assert bench.stories(job_id) == {**ONCE, "recognise": ["released", "succeeded"]}
    judge(bench, succeeded([job_id]))


def test_a_cancelled_job_stops_between_windows(make_bench: MakeBench, postgres_url: str, broker_url: str) -> None:
    """Cancelling a batch stops what runs within seconds, what waits never begins, and what is done stays."""
    bench = make_bench(postgres_url, broker_url, **SLOW)
    (done,) = bench.submit(bench.recording("done.wav"))
    bench.start_worker(window_jobs=1)
    bench.wait_ended(done)
    long, waiting = bench.submit(bench.recording("long.wav", LONG_S), bench.recording("waiting.wav"))
    bench.wait_running(long)
    began = time.monotonic()
    assert cancel_batch(bench.database, job(bench.database, long).batch_id) == 2
    assert set(bench.wait_ended(long, waiting, timeout_s=10).values()) == {"cancelled"}
    assert time.monotonic() - began < 8 * patience()
    assert bench.stories(long) == {"prepare": ["succeeded"], "recognise": ["cancelled"], "deliver": []}
    assert bench.stories(waiting) == {"prepare": [], "deliver": []}
    assert cancel_batch(bench.database, job(bench.database, done).batch_id) == 0
    wait_until(lambda: not list((bench.folder / "state" / "blobs" / "scratch").iterdir()), what="decoded audio is left")
    judge(bench, {done: "succeeded", long: "cancelled", waiting: "cancelled"})


def test_wrong_clocks_change_nothing(make_bench: MakeBench, postgres_url: str, broker_url: str) -> None:
    """Workers two hours ahead and behind steal no lease, keep none for ever, and no time in the rows is theirs."""
    bench = make_bench(postgres_url, broker_url, fake_cost_base_s=1.0)
    ids = bench.submit(*(bench.recording(f"{number}.wav") for number in range(8)))
    early = bench.start_worker(faults={"TEST_FAULT_CLOCK_S": "-7200", "TEST_FAULT_HOST": "early"})
    bench.start_worker(faults={"TEST_FAULT_CLOCK_S": "7200", "TEST_FAULT_HOST": "late"})
    bench.wait_running(ids[0])
    assert bench.wait_ended(*ids[:4]) == succeeded(ids[:4])
    assert all("lost" not in outcomes for job_id in ids for outcomes in bench.stories(job_id).values())
    more = bench.submit(*(bench.recording(f"{number}.wav") for number in range(8, 12)))
    bench.wait_running(more[0])
    bench.stop(early)  # nobody but the clock of the database can tell that its leases have run out
    assert bench.wait_ended(*ids, *more) == succeeded([*ids, *more])
    with bench.database.read() as connection:
        rows = connection.execute(attempts.select().order_by(attempts.c.started_at)).all()
    now = time.time()
    assert all(now - 150 < row.started_at <= row.finished_at < now + 10 for row in rows)
    judge(bench, succeeded([*ids, *more]))


def test_an_engine_that_locks_the_interpreter_costs_no_lease(bench: Bench) -> None:
    """Native code that keeps the interpreter of an engine process locked for two leases delays no heartbeat."""
    (job_id,) = bench.submit(bench.recording("one.wav"), engine="moody")
    bench.start_worker(faults={"TEST_FAULT_NO_GIL_S": str(2 * LEASE_S)})
    bench.wait_running(job_id)
    bench.start_worker()  # would take what is free
    assert bench.wait_ended(job_id) == {job_id: "succeeded"}
    assert bench.stories(job_id) == ONCE
    judge(bench, succeeded([job_id]))
