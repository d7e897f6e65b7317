"""The states of jobs, step runs and batches, and which of them are final."""

from enum import StrEnum


class JobState(StrEnum):
    """`running` means that a worker has begun, never that the job waits."""

    QUEUED = "queued"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class StepState(StrEnum):
    """`blocked` waits for its inputs; `skipped` will never run, since its job has ended without it."""

    BLOCKED = "blocked"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class BatchState(StrEnum):
    """OpenAI's words; `completed` may hold failed jobs, and one that is `validating` still gets its jobs."""

    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class OnError(StrEnum):
    """What becomes of a batch when one of its jobs fails: `stop` cancels the rest."""

    CONTINUE = "continue"
    STOP = "stop"


LIVE_JOB = (JobState.QUEUED, JobState.RUNNING, JobState.CANCELLING)
STARTABLE_JOB = (JobState.QUEUED, JobState.RUNNING)
FINAL_JOB = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED)
OPEN_STEP = (StepState.BLOCKED, StepState.QUEUED, StepState.RUNNING)
