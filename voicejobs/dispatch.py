"""Choose in SQL which jobs go to the broker, and look after those that were sent.

Everything here may run in many processes at once and any number of times over. The broker never holds more than the
window of jobs; what it loses is sent again, what it has twice is claimed once.
"""

import json
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import groupby
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError
from sqlalchemy import Connection

from voicejobs import canvas
from voicejobs.errors import Poison
from voicejobs.messages import QUEUE_CLASSES, queue_name
from voicejobs.pipelines.pipeline import pipeline
from voicejobs.store import outbox
from voicejobs.store.database import Database
from voicejobs.store.expiry import expire_jobs
from voicejobs.store.jobs import cancel_rest, complete_batches, end_cancelled, finish_job, open_step_runs
from voicejobs.store.leases import Lease
from voicejobs.store.states import JobState, StepState
from voicejobs.tallies import Tally

logger = logging.getLogger(__name__)

LANES = ("interactive", "bulk")
MAX_WINDOW_JOBS = 2000
RETRY_BASE_S = 1.0
RETRY_CAP_S = 300.0


def retry_delay_s(failures: int) -> float:
    """Return how long to wait after the n-th failure: exponential, capped, with full jitter above half."""
    ceiling = min(RETRY_CAP_S, RETRY_BASE_S * 2.0 ** max(0, failures - 1))
    return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing


def fill(database: Database, app: Celery, window_jobs: int) -> int:
    """Send unsent jobs until `window_jobs` of them are out in each lane; return how many were sent.

    Interactive jobs have a window of their own, so that no bulk keeps them waiting. Tenants share a lane evenly,
    and so do the batches of a tenant: who has the fewest jobs out is served first.
    """
    rows = database.run(lambda connection: _take(connection, database, window_jobs), durable=False)
    _send(database, app, rows)
    sent = {row.job_id: row.trace_id for row in rows}
    if sent:  # one line for all: whoever looks for a trace id finds it in the list
        logger.info("sent", extra={"jobs": len(sent), "trace_ids": sorted(set(sent.values()))})
    return len(sent)


def _take(connection: Connection, database: Database, window_jobs: int) -> list[Any]:
    """Note which jobs are sent now, and return their open step runs, those of each job together."""
    if not outbox.lock_dispatch(connection, database):
        return []
    chosen = _choose(connection, outbox.open_batches(connection), min(window_jobs, MAX_WINDOW_JOBS))
    if not chosen:
        return []
    outbox.mark_sent(connection, chosen)
    place = {job_id: number for number, job_id in enumerate(chosen)}
    return sorted(open_step_runs(connection, chosen), key=lambda row: place[row.job_id])


def _choose(connection: Connection, batches: Sequence[outbox.OpenBatch], window_jobs: int) -> list[str]:
    """Return the jobs to send now; one that must run alone is sent when nothing else is out, and nothing beside it."""
    if any(batch.has_isolated for batch in batches):
        return []
    out = sum(batch.in_flight for batch in batches)
    chosen: list[str] = []
    for lane in LANES:
        in_lane = [batch for batch in batches if batch.lane == lane]
        for row in _next_of_lane(connection, in_lane, window_jobs):
            if row.deaths > outbox.DEATHS_BEFORE_ISOLATION:
                finish_job(connection, row.id, JobState.FAILED, error=_poison(row.deaths))
            elif row.deaths < outbox.DEATHS_BEFORE_ISOLATION:
                chosen.append(row.id)
            elif not out and not chosen:
                return [row.id]
    return chosen


def _next_of_lane(connection: Connection, batches: Sequence[outbox.OpenBatch], window_jobs: int) -> list[Any]:
    """Return the jobs that fill the window of a lane: the next of the tenant, and of its batch, with the fewest out.

    Batches are asked for their jobs as their turn comes: thousands may be open, since a job that was submitted alone
    has one for itself. Of two with equally many out either may be next: if it were always the same one, that would hold
    the odd place of the window for ever, and run ahead. Those with none out go in the order in which they came. One
    that has as many out as it may have is passed over.
    """
    room = window_jobs - sum(batch.in_flight for batch in batches)
    of_tenant: Counter[str] = Counter()
    ready: dict[str, list[tuple[int, int, float, str]]] = {}
    most = {batch.id: batch.concurrency for batch in batches if batch.concurrency is not None}
    for batch in batches:
        of_tenant[batch.tenant] += batch.in_flight
        if batch.priority is not None:
            ready.setdefault(batch.tenant, []).append(
                (batch.in_flight, batch.priority, _lot(batch.in_flight), batch.id)
            )
    for heap in ready.values():
        heapify(heap)
    waiting: dict[str, list[Any]] = {}
    rows: list[Any] = []
    while len(rows) < room and ready:
        tenant = min(ready, key=lambda name: (of_tenant[name], ready[name][0]))
        out, priority, _, batch_id = ready[tenant][0]
        if batch_id not in waiting:
            waiting[batch_id] = outbox.unsent(connection, batch_id, room)
        if waiting[batch_id] and out < most.get(batch_id, MAX_WINDOW_JOBS):
            rows.append(waiting[batch_id].pop(0))
            of_tenant[tenant] += 1
            heapreplace(ready[tenant], (out + 1, priority, _lot(out + 1), batch_id))
            continue
        heappop(ready[tenant])
        if not ready[tenant]:
            del ready[tenant]
    return rows


def _lot(out: int) -> float:
    """Return what decides between batches with equally many jobs out: chance, or with none the order they came in."""
    return random.random() if out else 0.0  # noqa: S311 - guards nothing


def _poison(deaths: int) -> Poison:
    """Return the error of a job that ends here: even alone, its worker died under it."""
    return Poison(f"The worker died {deaths} times while it ran this job, the last time with nothing beside it")


def send_missing(database: Database, app: Celery, lease: Lease, missing: Iterable[canvas.Missing]) -> None:
    """Send the canvas of what a commit has made ready; a broker that does not answer costs only time."""
    told = canvas.Told(lease.trace_id, lease.options)
    signature = canvas.build(app, pipeline(lease.pipeline), missing, told)
    if signature is not None and not _publish(signature):
        database.run(lambda connection: outbox.mark_unsent(connection, [lease.job_id]))


def _send(database: Database, app: Celery, rows: Iterable[Any]) -> None:
    """Build and publish the canvas of each job among `rows`; put back those the broker did not take."""
    refused: list[str] = []
    for job_id, group in groupby(rows, key=lambda row: row.job_id):
        members = list(group)
        missing = [
            # What runs elsewhere is missing too: its commit, and no chain of ours, sends what waits for it.
            canvas.Missing(
                row.id, row.job_id, row.node, row.step, row.queue, row.state == StepState.QUEUED, row.shard, row.of
            )
            for row in members
        ]
        told = canvas.Told(members[0].trace_id, json.loads(members[0].options))
        signature = None if refused else canvas.build(app, pipeline(members[0].pipeline), missing, told)
        if refused or (signature is not None and not _publish(signature)):
            refused.append(job_id)
    if refused:
        database.run(lambda connection: outbox.mark_unsent(connection, refused))


def _publish(signature: Any) -> bool:
    """Hand a signature to the broker; False where it does not answer."""
    try:
        signature.apply_async(retry=False)
    except (BrokerError, RedisError, OSError) as error:
        logger.warning("broker does not answer", extra={"error": str(error)})
        return False
    return True


@dataclass
class Upkeep:
    """Mend what crashes leave behind; `tick` is cheap where there is nothing to do.

    Args:
        database: the store.
        app: the Celery application.
        lease_s: the length of a lease, also the grace after the database itself was away.
        wake: called when jobs came back to the outbox.
        tally: counts the leases that were taken from workers, and the messages that were lost.
    """

    database: Database
    app: Celery
    lease_s: float
    wake: Callable[[], None] = lambda: None
    tally: Tally = field(default_factory=Tally)
    _short: set[str] = field(default_factory=set)
    _healthy_since: float = field(default_factory=time.monotonic)

    def stack_started(self, *, after_crash: bool) -> None:
        """Free at once what dead workers of this machine held, and forget messages that an empty broker lost.

        Args:
            after_crash: whether a worker died by itself; a stack that was killed whole is no fault of its jobs.
        """
        broker_is_empty = self._queued_messages() == 0
        freed = self.database.run(lambda connection: outbox.free_dead_owners(connection, count_deaths=after_crash))
        if broker_is_empty:
            self.database.run(outbox.forget_sent)
        if freed:
            self._note_lost(freed)
            logger.info("freed the leases of dead workers", extra={"jobs": len(freed)})
            self.wake()

    def tick(self) -> None:
        """Free leases that ran out, end what was cancelled, is to stop or is late, complete batches."""
        run = self.database.run  # each by itself: what locks rows of all kinds at once stands in everybody's way
        freed = run(lambda connection: outbox.free_dead_owners(connection, count_deaths=True))
        # After an outage of the database every lease looks expired: give their owners one lease's time.
        if time.monotonic() - self._healthy_since > self.lease_s:
            freed += run(lambda connection: outbox.free_expired(connection, grace_s=0.0))
        run(cancel_rest)
        run(end_cancelled)
        run(expire_jobs)
        run(complete_batches)
        if freed:
            self._note_lost(freed)
            logger.warning("took leases from silent workers", extra={"jobs": len(freed)})
            self.wake()

    def _note_lost(self, job_ids: Sequence[str]) -> None:
        """Count leases that their workers have lost."""
        self.tally.add("leases_lost", len(job_ids))

    def database_was_away(self) -> None:
        """Start the grace again, because heartbeats could not reach the database either."""
        self._healthy_since = time.monotonic()

    def find_lost_messages(self) -> int:
        """Put jobs whose messages the broker has lost back into the outbox; return how many.

        A step run counts as lost when on two looks in a row the queues were shorter than the rows that should have
        a message, and it was among these rows both times.
        """
        with self.database.read() as connection:
            waiting = dict(outbox.waiting(connection))
        if not waiting or self._queued_messages() >= len(waiting):
            self._short = set()
            return 0
        lost = self._short & set(waiting)
        self._short = set(waiting) - lost
        job_ids = sorted({waiting[step_run_id] for step_run_id in lost})
        if job_ids:
            self.tally.add("messages_lost", len(job_ids))
            logger.warning("sending lost messages again", extra={"jobs": len(job_ids)})
            self.database.run(lambda connection: outbox.mark_unsent(connection, job_ids))
            self.wake()
        return len(job_ids)

    def _queued_messages(self) -> int:
        """Count the messages in our queues; "very many" where the broker does not answer."""
        count = self.messages_in(QUEUE_CLASSES)
        return MAX_WINDOW_JOBS * 1000 if count is None else count

    def messages_in(self, queue_classes: Iterable[str]) -> int | None:
        """Count the messages in the queues of some classes; None where the broker does not answer."""
        try:
            with self.app.connection_for_read() as connection:
                client: Any = getattr(connection.default_channel, "client")  # noqa: B009 - kombu's types do not know it
                return sum(int(client.llen(queue_name(queue_class))) for queue_class in queue_classes)
        except (BrokerError, RedisError, OSError):
            return None
