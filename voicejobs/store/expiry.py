"""End jobs that were not done in time."""

from sqlalchemy import Connection, select, text

from voicejobs.errors import Expired
from voicejobs.store.database import now_s
from voicejobs.store.jobs import finish_job, lock_jobs
from voicejobs.store.schema import EXPIRING, jobs
from voicejobs.store.states import STARTABLE_JOB, JobState

MOST_AT_ONCE = 500


def expire_jobs(connection: Connection) -> int:
    """End the jobs whose time is over, those that run too; return how many.

    What has not begun is skipped. The worker of a running step sees within a second that its job has ended, and stops
    after the window that it is at.
    """
    late = list(
        connection.execute(
            select(jobs.c.id)
            .where(text(EXPIRING), jobs.c.expires_at < now_s(), jobs.c.state.in_(STARTABLE_JOB))
            .limit(MOST_AT_ONCE)
        ).scalars()
    )
    # All step runs before all jobs, as in `cancel_jobs`: job by job, each would wait for rows that the other has.
    if late:
        lock_jobs(connection, jobs.c.id.in_(late))
    error = Expired("The job was not done within the time that it was given")
    return sum(finish_job(connection, job_id, JobState.EXPIRED, error=error) for job_id in late)
