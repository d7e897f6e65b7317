"""JSON logs, one object a line; `bind` adds ids (job, step, trace) to every line of a block."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

_bound: ContextVar[dict[str, Any]] = ContextVar("voicejobs_log_fields")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Write a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return `{"time", "level", "logger", "event", ...}` with the bound fields and those of `extra`."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            "pid": record.process,
            **_bound.get({}),
        }
        entry.update({name: value for name, value in vars(record).items() if name not in _STANDARD})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


@contextmanager
def bind(**ids: Any) -> Iterator[None]:
    """Add `ids` to every log line of this thread or task until the block ends."""
    token = _bound.set({**_bound.get({}), **ids})
    try:
        yield
    finally:
        _bound.reset(token)


def configure(level: str = "INFO") -> None:
    """Send all logs of this process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Celery tells of every message at level info: twice as many lines as ours, and one more cost for each task.
    for name in ("celery.app.trace", "celery.worker.strategy"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
