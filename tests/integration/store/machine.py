"""Two workers, a dispatcher and people at one store, as a state machine: what they may do, and what must hold then.

The workers use the frame of the tasks (`voicejobs.tasks.base`); the broker is a list of messages, which lose themselves
and come twice. After each step the rows are compared with those before it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import delete, update

from tests import rows
from tests.integration.store.model import check_step, look
from tests.integration.tasks.shapes import SHARDS
from voicejobs import control, dispatch
from voicejobs.errors import AudioGone, Cancelled, Damaged, DecoderCrash, LeaseLost, ShuttingDown, VoicejobsError
from voicejobs.pipelines import pipeline as pipelines
from voicejobs.store import jobs as store
from voicejobs.store import leases, outbox
from voicejobs.store.database import Database
from voicejobs.store.expiry import expire_jobs
from voicejobs.store.jobs import NewArtifact, NewResult
from voicejobs.store.leases import Claimer, Lease
from voicejobs.store.prune import Rules, prune
from voicejobs.store.retry import RETRIABLE_JOB
from voicejobs.store.schema import batches, jobs
from voicejobs.store.states import FINAL_JOB, LIVE_JOB, BatchState
from voicejobs.submit import cancel_batch
from voicejobs.tasks import base

LEASE_S = 3600.0
LONG_AGO_S = -10 * LEASE_S
MOST_JOBS = 6
ROUNDS = 80
STEPS = ("o-load", "o-map", "o-join")
BODIES: dict[str, Any] = dict.fromkeys(STEPS)
"""The frame asks only which steps a worker has a body for."""

picks = st.integers(0, 99)
graphs = st.sampled_from(["late-fan", "fan-of-one", "two-fans", "diamond", "line"])


@dataclass
class World:
    """Hold what outlives a machine: the store, the two workers' runtimes and the mail.

    Args:
        runtimes: what the frame of a task uses, one for each worker.
        dead: owners that are proven dead.
        mail: ids of step runs that have a message in the broker.
    """

    runtimes: Sequence[Any]
    dead: set[str] = field(default_factory=set)
    mail: list[str] = field(default_factory=list)
    given_ids: int = 0

    def new_id(self, prefix: str) -> str:
        """Return an id that is the same when a machine runs again: ids decide who comes first."""
        self.given_ids += 1
        return f"{prefix}_{self.given_ids:032x}"

    @property
    def database(self) -> Database:
        """Return the store, as the first worker and everybody else see it."""
        database: Database = self.runtimes[0].database
        return database

    def publish(self, signature: Any) -> bool:
        """Stand for the broker; of a chain only its first message: what follows is found missing and sent later."""
        kind = signature.get("subtask_type")
        if kind == "group":
            for task in signature.tasks:
                self.publish(task)
            return True
        self.mail.append((signature.tasks[0] if kind == "chain" else signature).args[1])
        return True


@dataclass(frozen=True)
class Held:
    """Name a lease that somebody believes to hold: the worker, and what it was called when it claimed."""

    worker: int
    owner: str
    lease: Lease


class Machine(RuleBasedStateMachine):
    """Let everybody act in any order."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.database = world.database
        self.held: list[Held] = []
        self.batch_ids: list[str] = []
        self.cancelled: set[str] = set()
        self.generation = 0
        self.action = ""
        world.given_ids = 0
        world.dead.clear()
        world.mail.clear()
        with self.database.begin() as connection:
            connection.execute(delete(batches))
        for worker in range(len(world.runtimes)):
            self.begin_worker(worker)
        self.before = look(self.database)

    def begin_worker(self, worker: int) -> None:
        """Give a worker a name that none had before."""
        self.generation += 1
        self.world.runtimes[worker].owner = f"host/boot/{worker + 1}/{self.generation}"

    def pick_job(self, number: int, among: Sequence[str]) -> Any:
        """Return some job in one of these states."""
        found = [job for _, job in sorted(self.before.jobs.items()) if job.state in among]
        return found[number % len(found)]

    # People.

    @initialize(names=st.lists(graphs, min_size=1, max_size=3), limits=st.booleans())
    def begin(self, names: Sequence[str], limits: bool) -> None:
        """Begin with some jobs."""
        for name in names:
            self.submit(name, "bulk", is_new_batch=False, limit_s=LEASE_S if limits else None)
            self.holds()

    @precondition(lambda self: len(self.before.jobs) < MOST_JOBS)
    @rule(
        name=graphs,
        lane=st.sampled_from(dispatch.LANES),
        is_new_batch=st.booleans(),
        limit_s=st.sampled_from([None, LEASE_S]),
    )
    def submit(self, name: str, lane: str, is_new_batch: bool, limit_s: float | None) -> None:
        """Add a job to a batch that is open, or to a new one."""
        self.action = "submit"
        open_ids = [one for one in self.batch_ids if one in self.before.batches and not self.before.sealed(one)]
        if is_new_batch or not open_ids:
            open_ids = [rows.add_batch(self.database, lane=lane, sealed=False)]
            self.batch_ids += open_ids
        rows.add_job(
            self.database,
            open_ids[-1],
            seq=self.world.given_ids,
            id=self.world.new_id("job"),
            pipeline=pipelines.pipeline(name),
            input_sha256="0" * 64,
            expires_after_s=limit_s,
        )

    @precondition(lambda self: not all(map(self.before.sealed, self.before.batches)))
    @rule(number=picks)
    def seal(self, number: int) -> None:
        """Say that no further job joins a batch."""
        self.action = "seal"
        with self.database.begin() as connection:
            store.seal_batch(connection, sorted(self.before.batches)[number % len(self.before.batches)])

    @precondition(lambda self: self.before.any_in(LIVE_JOB))
    @rule(number=picks, whole_batch=st.booleans())
    def cancel(self, number: int, whole_batch: bool) -> None:
        """Cancel a job, or its batch."""
        self.action = "cancel"
        job = self.pick_job(number, LIVE_JOB)
        if whole_batch:
            cancel_batch(self.database, job.batch_id)
            self.cancelled.add(job.batch_id)
        else:
            assert control.cancel_jobs(self.database, [job.id]) == ([] if job.state == "cancelling" else [job.id])

    @precondition(lambda self: self.before.any_in(RETRIABLE_JOB))
    @rule(number=picks, whole_batch=st.booleans())
    def retry(self, number: int, whole_batch: bool) -> None:
        """Take up again what ended without success."""
        self.action = "retry"
        job = self.pick_job(number, RETRIABLE_JOB)
        if whole_batch:
            done = control.retry_batch(self.database, job.batch_id, RETRIABLE_JOB)
        else:
            done = control.retry_jobs(self.database, [job.id])
        assert job.id in done.queued
        assert not done.refused
        for job_id in done.queued:
            self.before.begin_again(job_id)
            self.cancelled.discard(self.before.jobs[job_id].batch_id)

    @precondition(lambda self: len(self.before.jobs) == MOST_JOBS)
    @rule(keep_failed=st.booleans())
    def prune(self, keep_failed: bool) -> None:
        """Remove all that has ended."""
        self.action = "prune"
        prune(self.database, self.world.runtimes[0].blobs, Rules(0.0, keep_failed=keep_failed))

    # Dispatcher and upkeep.

    @rule(window_jobs=st.integers(1, 4))
    def fill(self, window_jobs: int) -> None:
        """Send what the window has room for."""
        self.action = "fill"
        dispatch.fill(self.database, self.world.runtimes[0].app, window_jobs)
        after = look(self.database)
        for lane in dispatch.LANES:
            out = after.out(lane)
            assert out <= max(window_jobs, self.before.out(lane)), "the broker holds more than the window"

    @rule(worker=st.integers(0, 1))
    def tick(self, worker: int) -> None:
        """Mend what crashes leave behind."""
        self.action = "tick"
        self.world.runtimes[worker].upkeep.tick()

    @precondition(lambda self: self.held)
    @rule()
    def leases_run_out(self) -> None:
        """Let all leases be older than they may be, whoever holds them; the holders do not know yet."""
        self.action = "free"
        with self.database.begin() as connection:
            outbox.free_expired(connection, grace_s=LONG_AGO_S)

    @precondition(lambda self: any(job.expires_at for job in self.before.jobs.values()))
    @rule(number=picks)
    def expire(self, number: int) -> None:
        """Let the time of a job be over."""
        self.action = "expire"
        ids = sorted(job.id for job in self.before.jobs.values() if job.expires_at)
        # Those at work are the ones for which it matters.
        ids = sorted({one.lease.job_id for one in self.held} & set(ids)) or ids
        rows.set_job(self.database, ids[number % len(ids)], expires_at=1.0)
        with self.database.begin() as connection:
            expire_jobs(connection)

    @rule()
    def lose_messages(self) -> None:
        """Let the broker come back empty."""
        self.action = "forget"
        self.world.mail.clear()
        with self.database.begin() as connection:
            outbox.forget_sent(connection)

    # Workers.

    @precondition(lambda self: self.world.mail)
    @rule(worker=st.integers(0, 1), number=picks)
    def deliver(self, worker: int, number: int) -> None:
        """Let a worker take a message."""
        self.world.mail.sort()  # Postgres returns rows of the same rank in any order, and a machine must run again
        self.claim(worker, self.world.mail.pop(number % len(self.world.mail)))

    @precondition(lambda self: self.before.steps)
    @rule(worker=st.integers(0, 1), number=picks)
    def deliver_again(self, worker: int, number: int) -> None:
        """Let a worker take a message that nobody has sent, or that came twice."""
        ids = sorted(self.before.steps)
        self.claim(worker, ids[number % len(ids)])

    def claim(self, worker: int, step_run_id: str) -> None:
        """Claim a step run; exactly what is queued for a job that may go on can be had."""
        self.action = "claim"
        runtime = self.world.runtimes[worker]
        row = self.before.steps.get(step_run_id)
        may = row is not None and row.state == "queued" and self.before.jobs[row.job_id].state in {"queued", "running"}
        lease = leases.claim(runtime.database, step_run_id, Claimer(runtime.owner, LEASE_S, f"worker-{worker}", "cpu"))
        assert (lease is not None) == may
        if lease is not None:
            self.held.append(Held(worker, runtime.owner, lease))

    def runtime_of(self, held: Held) -> Any:
        """Return the runtime of a worker as it was when it claimed, also of one that has died."""
        return SimpleNamespace(**{**vars(self.world.runtimes[held.worker]), "owner": held.owner})

    def take_held(self, number: int) -> tuple[Any, Lease, bool]:
        """Return one who believes to hold a lease, the lease, and whether it is right about that."""
        held = self.held.pop(number % len(self.held))
        return self.runtime_of(held), held.lease, self.before.is_held(held.lease)

    def demand_unchanged(self, is_ours: bool) -> None:
        """Insist that whoever comes late has changed nothing."""
        assert is_ours or look(self.database) == self.before, "an old fencing number changed something"

    @precondition(lambda self: self.held)
    @rule(number=picks)
    def commit(self, number: int) -> None:
        """Let a step succeed; a zombie too thinks that it has."""
        self.action = "commit"
        runtime, lease, is_ours = self.take_held(number)
        worker = int(runtime.owner.split("/")[2]) - 1
        try:
            done = base._commit(runtime, lease, product(lease), BODIES)
        except LeaseLost:
            assert not is_ours
            self.demand_unchanged(is_ours)
            return
        assert is_ours, "an old fencing number committed"
        if done.following is not None:
            self.held.append(Held(worker, runtime.owner, done.following))
        else:
            task: Any = SimpleNamespace(request=SimpleNamespace(chain=None))
            base._go_on(runtime, task, lease, done.ready)

    @precondition(lambda self: self.held)
    @rule(number=picks, error=st.sampled_from([Damaged("odd"), DecoderCrash("it crashed")]))
    def fail(self, number: int, error: VoicejobsError) -> None:
        """Let a step fail, for good or for now."""
        self.action = "fail"
        runtime, lease, is_ours = self.take_held(number)
        base._failed(runtime, lease, error)
        self.demand_unchanged(is_ours)

    @precondition(lambda self: self.held)
    @rule(number=picks, reason=st.sampled_from([ShuttingDown("it goes"), AudioGone("gone"), LeaseLost("lost")]))
    def give_back(self, number: int, reason: ShuttingDown | AudioGone | LeaseLost) -> None:
        """Let a step be interrupted."""
        self.action = type(reason).__name__
        runtime, lease, is_ours = self.take_held(number)
        base._interrupted(runtime, lease, reason)
        self.demand_unchanged(is_ours)

    @precondition(lambda self: any(self.before.is_stopped(held.lease) for held in self.held))
    @rule()
    def stop(self) -> None:
        """Let the workers see which of their jobs are no longer to run."""
        self.action = "stop"
        for held in [one for one in self.held if self.before.is_stopped(one.lease)]:
            self.held.remove(held)
            base._interrupted(self.runtime_of(held), held.lease, Cancelled("The job has ended"))

    @precondition(lambda self: self.held)
    @rule(number=picks)
    def save(self, number: int) -> None:
        """Save a checkpoint, or learn that the lease is gone."""
        self.action = "checkpoint"
        lease = self.held[number % len(self.held)].lease
        is_ours = self.before.is_held(lease)
        try:
            leases.checkpoint(self.database, lease, {"windows": number}, float(number))
        except LeaseLost:
            assert not is_ours
        else:
            assert is_ours

    @precondition(lambda self: self.held)
    @rule(worker=st.integers(0, 1))
    def die(self, worker: int) -> None:
        """Let a worker die and another come in its place; what it had begun may still commit, before it is noticed."""
        self.action = "die"
        self.world.dead.add(self.world.runtimes[worker].owner)
        self.begin_worker(worker)

    @rule(worker=st.integers(0, 1), steps=st.integers(1, 8))
    def work(self, worker: int, steps: int) -> None:
        """Let a worker do what it is there for, so that jobs get far in spite of all else."""
        for _ in range(steps):
            if self.world.mail:
                self.deliver(worker, 0)
            elif self.held:
                self.commit(0)
            else:
                self.fill(4)
            self.holds()

    @rule(worker=st.integers(0, 1))
    def work_on(self, worker: int) -> None:
        """Let a worker do a little."""
        self.work(worker, 2)

    # What must hold.

    @invariant()
    def holds(self) -> None:
        """Compare the rows with those before the step."""
        after = look(self.database)
        check_step(self.before, after, self.action)
        self.before = after

    def teardown(self) -> None:
        """Let time pass, and one healthy worker run: every live job ends, and with it its batch."""
        if not self.before.jobs:
            return
        self.held.clear()
        self.leases_run_out()
        self.holds()
        for batch_id in self.before.batches:
            with self.database.begin() as connection:
                store.seal_batch(connection, batch_id)
        for _ in range(ROUNDS):
            self.run_round()
            if all(job.state in FINAL_JOB for job in self.before.jobs.values()):
                break
        else:
            states = {job.id: (job.state, self.before.states_of(job.id)) for job in self.before.jobs.values()}
            raise AssertionError(f"stuck: {states}")
        for one in self.before.batches.values():
            assert one.state == (BatchState.CANCELLED if one.id in self.cancelled else BatchState.COMPLETED)
        assert not any(step.state == "running" for step in self.before.steps.values())

    def run_round(self) -> None:
        """Let whatever must wait be due, send all that is missing, and do it."""
        with self.database.begin() as connection:
            connection.execute(update(jobs).values(run_after=None))
        acts: list[Callable[[], None]] = [self.lose_messages, lambda: self.tick(0), lambda: self.fill(4)]
        for act in acts:
            act()
            self.holds()
        while self.world.mail:
            self.deliver(1, 0)
            self.holds()
            while self.held:
                self.commit(0)
                self.holds()
        self.tick(1)
        self.holds()


def product(lease: Lease) -> base.Product:
    """Return what a step makes: shards where something fans out over it, the transcript where the job ends with it."""
    if pipelines.pipeline(lease.pipeline).after(lease.node):
        return base.Product({"shards": [{"number": number} for number in range(SHARDS.get(lease.node, 0))]})
    upstream = {name for name in pipelines.pipeline(lease.pipeline).node(lease.node).inputs if name != "source"}
    assert upstream <= set(lease.upstream), f"{lease.node} runs without what it takes"
    artifact = NewArtifact("transcript", "0" * 64, 4, b"text", {})
    return base.Product({}, artifacts=[artifact], result=NewResult("key", "", "en", 1.0, 1, "word"), files=[])


def owners(dead: set[str]) -> property:
    """Return what tells whether an owner is proven dead, from a list of them."""
    return property(lambda owner: str(owner) in dead)
