"""Who is served when more waits than a worker can do: the real dispatcher, a real worker, an engine without a model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from sqlalchemy import func, select

from tests.bench import Bench, MakeBench
from tests.waiting import wait_until
from voicejobs.dispatch import Upkeep
from voicejobs.manifest import Line
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store.schema import batches, jobs
from voicejobs.store.states import LIVE_JOB, JobState
from voicejobs.submit import InputFile, Submission
from voicejobs.submit_manifest import ManifestSubmission, Wish

BULK = 2000
FURTHER = BULK // 50
"""Five windows: on a busy machine the ten may wait for a beat of the dispatcher. The large manifest is held to 1 %."""
WINDOW = 8
OPTIONS = TRANSCRIBE.options({"prepare": {"channels": "mix"}, "recognise": {"engine": "fake", "model": ""}})
COST: dict[str, Any] = {"fake_cost_base_s": 0.05, "window_jobs": WINDOW}


def submit(bench: Bench, paths: Sequence[Path], out: str, lane: str = "bulk") -> str:
    """Submit recordings as one batch, and return its id."""
    submission = Submission(bench.database, TRANSCRIBE, OPTIONS, force=True, lane=lane)
    submission.add([InputFile(str(path), path.name, str(bench.folder / out / path.stem)) for path in paths])
    submission.seal()
    return submission.batch_id


def done(bench: Bench, batch_id: str, until: float | None = None) -> int:
    """Return how many jobs of a batch have succeeded, up to a moment where one is named."""
    query = select(func.count()).where(jobs.c.batch_id == batch_id, jobs.c.state == JobState.SUCCEEDED)
    if until is not None:
        query = query.where(jobs.c.finished_at <= until)
    with bench.database.read() as connection:
        return int(connection.execute(query).scalar_one())


def done_of(bench: Bench, *groups: Sequence[str]) -> tuple[int, ...]:
    """Return how many jobs of each group of batches have succeeded, all at one moment: one query, one look."""
    query = select(jobs.c.batch_id, func.count()).where(jobs.c.state == JobState.SUCCEEDED).group_by(jobs.c.batch_id)
    with bench.database.read() as connection:
        counts = {str(batch_id): int(count) for batch_id, count in connection.execute(query)}
    return tuple(sum(counts.get(batch_id, 0) for batch_id in group) for group in groups)


def out(bench: Bench, lane: str) -> int:
    """Return how many jobs of a lane are out."""
    query = (
        select(func.count())
        .select_from(jobs.join(batches))
        .where(batches.c.lane == lane, jobs.c.sent_at.is_not(None), jobs.c.state.in_(LIVE_JOB))
    )
    with bench.database.read() as connection:
        return int(connection.execute(query).scalar_one())


def messages(bench: Bench, app: Celery) -> Callable[[], int]:
    """Return what counts the messages in the broker."""
    return Upkeep(bench.database, app, 60.0)._queued_messages


def moment(bench: Bench, batch_id: str, which: str) -> float:
    """Return when the last job of a batch was created, or finished."""
    with bench.database.read() as connection:
        query = select(func.max(jobs.c[which])).where(jobs.c.batch_id == batch_id)
        return float(connection.execute(query).scalar_one())


@pytest.mark.timeout(180)
def test_few_interactive_jobs_pass_many_bulk_jobs(either_bench: Bench, producer: Celery) -> None:
    """Ten interactive jobs behind 2,000 bulk jobs end before a further 2 % of these; the broker holds a window each."""
    bench = either_bench
    recording = bench.recording("one.wav", 1.0)
    bulk = submit(bench, bench.copies(recording, BULK, "bulk"), "out-bulk")
    bench.start_worker(**COST)
    wait_until(lambda: done(bench, bulk) >= FURTHER, 60, what=lambda: bench.log[-3000:])
    quick = submit(bench, bench.copies(recording, 10, "quick"), "out-quick", lane="interactive")
    looks = []
    count = messages(bench, producer)

    def look() -> bool:
        looks.append((out(bench, "bulk"), out(bench, "interactive"), count()))
        return done(bench, quick) == 10

    wait_until(look, 60, what=lambda: bench.log[-3000:])
    before, after = (moment(bench, quick, which) for which in ("created_at", "finished_at"))
    assert done(bench, bulk, after) - done(bench, bulk, before) < FURTHER
    in_bulk, in_interactive, in_broker = (max(column) for column in zip(*looks, strict=True))
    assert in_bulk <= WINDOW
    assert in_interactive <= WINDOW
    assert in_broker <= 2 * WINDOW
    assert done(bench, bulk) < BULK, "there was always more to do"


@pytest.mark.timeout(180)
def test_bulk_batches_share_a_worker(either_bench: Bench) -> None:
    """Of two bulk batches, one submitted behind the other, neither gets ahead by a tenth once both wait."""
    bench = either_bench
    recording = bench.recording("one.wav", 1.0)
    count = 150
    first, second = (submit(bench, bench.copies(recording, count, name), f"out-{name}") for name in ("first", "second"))
    bench.start_worker(**COST)
    looks = []

    def look() -> bool:
        looks.append(done_of(bench, [first], [second]))
        return max(looks[-1]) == count

    wait_until(look, 120, what=lambda: bench.log[-3000:])
    assert max(abs(one - other) for one, other in looks) <= count // 10


def submit_manifest(bench: Bench, recording: Path, count: int, tenant: str = "default", label: str = "bulk") -> str:
    """Submit a recording under so many names, as the lines of a manifest, and return the id of the batch."""
    wish = Wish(
        TRANSCRIBE,
        OPTIONS,
        lambda line: str(bench.folder / f"out-{label}" / line.name),
        label=label,
        tenant=tenant,
        force=True,  # they are all one recording, and each is to cost what a recording costs
    )
    one = ManifestSubmission(bench.database, wish)
    for first in range(1, count + 1, 2000):
        numbers = range(first, min(first + 2000, count + 1))
        one.add(one.prepare([Line(number, str(recording), f"{number:06}") for number in numbers]))
    one.seal()
    return one.batch_id


@pytest.mark.timeout(240)
def test_few_interactive_jobs_pass_a_large_manifest(
    make_bench: MakeBench, postgres_url: str, broker_url: str, producer: Celery
) -> None:
    """Ten interactive jobs behind 20,000 lines on Postgres end before a further 1 % of these; the window holds."""
    bench = make_bench(postgres_url, broker_url)
    count = 20_000
    recording = bench.recording("one.wav", 1.0)
    bulk = submit_manifest(bench, recording, count)
    bench.start_worker(**COST)
    wait_until(lambda: done(bench, bulk) >= FURTHER, 90, what=lambda: bench.log[-3000:])
    quick = submit(bench, bench.copies(recording, 10, "quick"), "out-quick", lane="interactive")
    looks = []
    messages_now = messages(bench, producer)

    def look() -> bool:
        looks.append((out(bench, "bulk"), messages_now()))
        return done(bench, quick) == 10

    wait_until(look, 90, what=lambda: bench.log[-3000:])
    before, after = (moment(bench, quick, which) for which in ("created_at", "finished_at"))
    assert done(bench, bulk, after) - done(bench, bulk, before) < count // 100
    assert max(one for one, _ in looks) <= WINDOW
    assert max(one for _, one in looks) <= 2 * WINDOW


@pytest.mark.timeout(240)
def test_tenants_share_a_worker_however_many_batches_they_have(
    make_bench: MakeBench, postgres_url: str, broker_url: str
) -> None:
    """One tenant has a manifest, the other three: neither gets ahead by a tenth."""
    bench = make_bench(postgres_url, broker_url)
    recording = bench.recording("one.wav", 1.0)
    count = 150
    one = [submit_manifest(bench, recording, count, "one", "one")]
    other = [submit_manifest(bench, recording, count, "other", f"other {number}") for number in range(3)]
    bench.start_worker(**COST)
    looks = []

    def look() -> bool:
        looks.append(done_of(bench, one, other))
        return max(looks[-1]) >= count

    wait_until(look, 120, what=lambda: bench.log[-3000:])
    assert max(abs(mine - theirs) for mine, theirs in looks) <= count // 10
