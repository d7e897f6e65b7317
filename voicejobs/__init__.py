"""Run speech recognition and synthesis in bulk on Celery workers."""

__version__ = "0.1.0"
