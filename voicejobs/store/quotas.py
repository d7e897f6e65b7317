"""How much of the queue a tenant has, and how much it has had done."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, and_, func, select

from voicejobs.errors import QuotaReached
from voicejobs.store.database import Database
from voicejobs.store.schema import batches, files, jobs

RETRY_S = 30


@dataclass(frozen=True, slots=True)
class Quota:
    """Say how much a tenant may have in the queue or at work; 0 for no limit.

    Args:
        jobs: jobs of the service, those of commands not counted.
        audio_s: seconds of their audio, as far as it is known: it is once the job has begun, or where the door that
            took it has measured.
    """

    jobs: int = 0
    audio_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """Say how much a tenant has in the queue or at work: jobs, and seconds of their audio as far as known."""

    jobs: int
    audio_s: float


def load_of(connection: Connection, tenant: str) -> Load:
    """Return what a tenant has in the queue or at work of what came through the service."""
    # By open batches, which an index of few rows lists, and in each by the index of unfinished jobs.
    row = connection.execute(
        select(func.count(), func.coalesce(func.sum(jobs.c.audio_s), 0.0))
        .select_from(batches)
        .join(jobs, and_(jobs.c.batch_id == batches.c.id, jobs.c.finished_at.is_(None)))
        .where(batches.c.finished_at.is_(None), batches.c.tenant == tenant, batches.c.watched == 1)
    ).one()
    return Load(int(row[0]), float(row[1]))


def require_room(connection: Connection, tenant: str, quota: Quota, *, new_audio_s: float = 0.0) -> None:
    """Do nothing where a tenant, with the jobs that this transaction has inserted, is within its quota.

    Two transactions at once may each see room that is enough for one of them: the quota is passed by no more than what
    they bring.

    Args:
        connection: of the transaction that has inserted the jobs.
        tenant: whose they are.
        quota: what it may have.
        new_audio_s: seconds of audio that the rows do not tell yet.

    Raises:
        QuotaReached: it is not; the transaction must not be committed.
    """
    if not quota.jobs and not quota.audio_s:
        return
    has = load_of(connection, tenant)
    if quota.jobs and has.jobs > quota.jobs:
        raise QuotaReached(f"{has.jobs} jobs would wait or run, {quota.jobs} may", retry_after_s=RETRY_S)
    if quota.audio_s and has.audio_s + new_audio_s > quota.audio_s:
        raise QuotaReached(
            f"{has.audio_s + new_audio_s:.0f} s of audio would wait or be at work, {quota.audio_s:.0f} s may",
            retry_after_s=RETRY_S,
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """Say what a tenant had done in some time.

    Args:
        jobs: number of jobs that were submitted, by state.
        audio_s: seconds of audio of those that succeeded.
        files: number of files that it keeps now.
        file_bytes: size of these.
    """

    jobs: Mapping[str, int]
    audio_s: float
    files: int
    file_bytes: int


def usage_of(database: Database, tenant: str, *, since: float, until: float) -> Usage:
    """Return what a tenant submitted from `since` to `until` (unix seconds), and what it keeps."""
    with database.read() as connection:
        by_state = connection.execute(
            select(jobs.c.state, func.count(), func.coalesce(func.sum(jobs.c.audio_s), 0.0))
            .where(jobs.c.tenant == tenant, jobs.c.created_at >= since, jobs.c.created_at < until)
            .group_by(jobs.c.state)
        ).all()
        kept = connection.execute(
            select(func.count(), func.coalesce(func.sum(files.c.size_bytes), 0)).where(files.c.tenant == tenant)
        ).one()
    return Usage(
        jobs={state: count for state, count, _ in sorted(by_state)},
        audio_s=sum(float(audio_s) for state, _, audio_s in by_state if state == "succeeded"),
        files=int(kept[0]),
        file_bytes=int(kept[1]),
    )
