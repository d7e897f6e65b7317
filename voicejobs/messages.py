"""What crosses the broker: task names, queues, and arguments that are ids only."""

from typing import Final

TASK_PREFIX: Final = "voicejobs.step."
QUEUE_PREFIX: Final = "voicejobs."

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


def queue_name(queue_class: str) -> str:
    """Return the name of the Celery queue of a queue class."""
    return QUEUE_PREFIX + queue_class
