"""The small model behind the state machine: which steps of jobs and step runs are legal, and what always holds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from voicejobs.store.database import Database
from voicejobs.store.leases import Lease
from voicejobs.store.schema import attempts, batches, jobs, results, step_runs
from voicejobs.store.states import FINAL_JOB, LIVE_JOB, STARTABLE_JOB

_EXPIRY = {("queued", "expired"), ("running", "expired")}
_ENDING = {("cancelling", "cancelled")}
_FAILURE = {("running", "failed"), ("cancelling", "failed")}

LEGAL_JOB: Mapping[str, set[tuple[str, str]]] = {
    "cancel": {("queued", "cancelled"), ("running", "cancelling")},
    "retry": {("failed", "queued"), ("cancelled", "queued"), ("expired", "queued")},
    "fill": {("queued", "failed"), ("running", "failed")},  # poison
    "tick": _EXPIRY | _ENDING,
    "stop": _EXPIRY | _ENDING,
    "expire": _EXPIRY,
    "claim": {("queued", "running")},
    "commit": {("running", "succeeded"), ("cancelling", "succeeded")},
    "fail": _FAILURE,
    "AudioGone": _FAILURE,
}
"""What each action may make of a job; no other changes one."""

_CLAIMED = {("queued", "running")}
_ENDED = {("blocked", "skipped"), ("queued", "skipped"), ("blocked", "cancelled"), ("queued", "cancelled")}
_FREED = {("running", "queued"), ("running", "skipped")}
_ANY_STATE = ("blocked", "queued", "running", "succeeded", "failed", "cancelled", "skipped")
_RESET = {(one, other) for one in _ANY_STATE for other in ("blocked", "queued", "skipped")}

LEGAL_STEP: Mapping[str, set[tuple[str, str]]] = {
    "cancel": {("blocked", "cancelled"), ("queued", "cancelled")},
    "retry": _RESET,
    "fill": _ENDED,
    "tick": _ENDED | _FREED | {("running", "cancelled")},  # freed from a dead worker, its job was being cancelled
    "stop": _ENDED | _FREED | {("running", "cancelled")},
    "free": _FREED,
    "expire": _ENDED,
    "claim": _CLAIMED,
    # What follows in line is claimed at once, and a step run of an earlier life may come back.
    "commit": {
        ("running", "succeeded"), ("blocked", "queued"), ("blocked", "running"), ("skipped", "queued"),
        ("skipped", "running"),
    },
    "fail": _ENDED | _FREED | {("running", "failed")},
    "ShuttingDown": _FREED,
    "AudioGone": _RESET,
}  # fmt: skip
"""Likewise for step runs."""


@dataclass
class Picture:
    """Hold all rows at one moment.

    Args:
        lives: the fencing numbers from which the present life of each job's step runs counts.
    """

    jobs: Mapping[str, Any]
    steps: Mapping[str, Any]
    batches: Mapping[str, Any]
    attempts: list[tuple[str, int, str]]
    results: list[str]
    lives: dict[str, int] = field(default_factory=dict, compare=False)

    def sealed(self, batch_id: str) -> bool:
        """Tell whether a batch takes no further job."""
        return self.batches[batch_id].sealed_at is not None

    def any_in(self, among: Sequence[str]) -> bool:
        """Tell whether some job is in one of these states."""
        return any(job.state in among for job in self.jobs.values())

    def out(self, lane: str) -> int:
        """Return how many jobs of a lane the broker may hold."""
        return sum(
            job.sent_at is not None and job.state in LIVE_JOB and self.batches[job.batch_id].lane == lane
            for job in self.jobs.values()
        )

    def is_held(self, lease: Lease) -> bool:
        """Tell whether a lease is still what its holder believes."""
        row = self.steps.get(lease.step_run_id)
        return row is not None and row.state == "running" and row.fence == lease.fence

    def is_stopped(self, lease: Lease) -> bool:
        """Tell whether the holder of a lease would see that its job is no longer to run."""
        return self.is_held(lease) and self.jobs[lease.job_id].state not in STARTABLE_JOB

    def begin_again(self, job_id: str) -> None:
        """Count the successes of a job's step runs anew: somebody has taken it up again."""
        self.lives |= {row.id: row.fence for row in self.steps.values() if row.job_id == job_id}

    def states_of(self, job_id: str) -> dict[str, str]:
        """Return the states of a job's step runs."""
        return {row.id.removeprefix(job_id): row.state for row in self.steps.values() if row.job_id == job_id}


def look(database: Database) -> Picture:
    """Read all rows."""
    with database.read() as connection:
        found: list[dict[str, Any]] = [
            {row.id: row for row in connection.execute(select(table))} for table in (jobs, step_runs, batches)
        ]
        stories = connection.execute(select(attempts.c.step_run_id, attempts.c.fence, attempts.c.outcome))
        told = sorted((row.step_run_id, row.fence, row.outcome) for row in stories)
        texts = list(connection.execute(select(results.c.job_id)).scalars())
    return Picture(jobs=found[0], steps=found[1], batches=found[2], attempts=told, results=texts)


def check_step(before: Picture, after: Picture, action: str) -> None:
    """Insist that an action made nothing but legal steps, and that what must always hold still does."""
    after.lives = before.lives
    _check_moves(before, after, action)
    _check_steps(after)
    _check_jobs(after)


def _check_moves(before: Picture, after: Picture, action: str) -> None:
    """Compare two moments."""
    for job_id, job in before.jobs.items():
        now = after.jobs.get(job_id)
        if now is None:
            assert action == "prune", f"{action} removed {job_id}"
            assert job.state in FINAL_JOB, f"a job that was {job.state} is gone"
        elif now.state != job.state:
            assert (job.state, now.state) in LEGAL_JOB.get(action, set()), f"{action}: {job.state} -> {now.state}"
    for step_run_id, row in before.steps.items():
        now = after.steps.get(step_run_id)
        if now is None:
            assert row.job_id not in after.jobs, f"{action} removed {step_run_id}"
            continue
        move = (row.state, now.state)
        assert now.fence >= row.fence, f"{action}: the fencing number of {step_run_id} fell"
        assert move[0] == move[1] or move in LEGAL_STEP.get(action, set()), f"{action}: {step_run_id} {move}"


def _check_steps(now: Picture) -> None:
    """Check each step run by itself, and its story."""
    for row in now.steps.values():
        if row.state == "running":
            assert row.owner, f"{row.id} runs nowhere"
            assert row.lease_until, f"{row.id} runs without a lease"
            assert now.jobs[row.job_id].state != "queued", f"{row.id} runs, and its job is queued"
        else:
            assert (row.owner, row.lease_until) == (None, None), f"{row.id} is {row.state}, and has an owner"
    successes = Counter(name for name, fence, outcome in now.attempts if outcome == "succeeded"
                        and fence > now.lives.get(name, 0))  # fmt: skip
    assert not [name for name, count in successes.items() if count > 1], "a step run succeeded twice"


def _check_jobs(now: Picture) -> None:
    """Check jobs with their step runs and results, and batches with their jobs."""
    counts = Counter(now.results)
    for job in now.jobs.values():
        states = now.states_of(job.id)
        if job.state in FINAL_JOB:
            assert not {"blocked", "queued"} & set(states.values()), f"a job is {job.state}, and waits: {states}"
            assert job.finished_at is not None
        else:
            assert job.finished_at is None
        if job.state == "succeeded":
            assert counts[job.id] == 1, f"a job succeeded with {counts[job.id]} results"
            assert set(states.values()) <= {"succeeded", "skipped"}, f"a job succeeded, and has {states}"
    live = {job.batch_id for job in now.jobs.values() if job.state in LIVE_JOB}
    for batch in now.batches.values():
        assert batch.finished_at is None or batch.id not in live, "a batch is completed, and a job of it is live"
