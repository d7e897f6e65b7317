"""What crosses the broker: task names, queues, and arguments that are ids only."""

from collections.abc import Mapping
from typing import Any, Final

TASK_PREFIX: Final = "voicejobs.step."
QUEUE_PREFIX: Final = "voicejobs."

TRACE_HEADER: Final = "trace_id"
"""Header of messages: what all logs of the job name."""

CPU: Final = "cpu"
"""Queue class of steps that need no model of their own: decoding, merging, rendering, writing."""
ASR: Final = "asr"
"""Queue class of steps that wait for a recogniser."""

TTS: Final = "tts"
"""Queue class of steps that wait for a synthesiser."""

QUEUE_CLASSES: Final = (CPU, ASR, TTS)


def task_name(step: str) -> str:
    """Return the Celery task name of a step; it never changes, so that rolling upgrades lose nothing."""
    return TASK_PREFIX + step


def shown_name(step: str, options: Mapping[str, Any]) -> str:
    """Return what watchers such as Flower call a step: with its model, or its engine where that has none."""
    model = options.get("model") or options.get("engine")
    return f"{step}[{model}]" if model else step


def shown_args(job_id: str, shard: int, of: int) -> str:
    """Return what watchers see of the arguments: the job, and which part of the step this is."""
    return f"{job_id}, {shard + 1}/{max(of, shard + 1)}"


def queue_name(queue_class: str) -> str:
    """Return the name of the Celery queue of a queue class."""
    return QUEUE_PREFIX + queue_class
