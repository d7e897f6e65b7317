"""JSON logs, one object a line; `bind` adds ids (job, step, trace) to every line of a block.

What looks like a secret is masked in whatever is written: see `redacted`.
"""

import json
import logging
import re
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
        return redacted(json.dumps(entry, ensure_ascii=False, default=str))


_MASK = "***"
_HIDDEN_FIELDS = (
    r"authorization|proxy-authorization|cookie|set-cookie|x-api-key|api[_-]?key|password|passwd|secret|client_secret|"
    r"access_token|refresh_token|rpc_keys|webhook_secret"
)
_SIGNED = r"x-amz-signature|x-amz-credential|x-amz-security-token|x-goog-signature|signature|sig|token|awsaccesskeyid"
# What may hold a secret has one of these; looking for them first spares nearly every line the patterns.
_SUSPECT = (
    "://",
    "whsec_",
    "vj_",
    "bearer",
    "basic",
    "authoriz",
    "cookie",
    "key",
    "passw",
    "secret",
    "token",
    "sig",
    "cred",
)
_SECRETS = (
    # The value of a field, in JSON or in the text of a dictionary: "authorization": "...", 'password': '...'
    (re.compile(rf"""(\\?["'](?:{_HIDDEN_FIELDS})\\?["']\s*:\s*\\?["'])[^"'\\]+""", re.IGNORECASE), rf"\1{_MASK}"),
    # A header or an assignment: Authorization: Bearer ..., password=...
    (
        re.compile(rf"\b((?:{_HIDDEN_FIELDS})\s*[:=]\s*(?:(?:bearer|basic)\s+)?)[^\s\"'\\,;&]+", re.IGNORECASE),
        rf"\1{_MASK}",
    ),
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), rf"\1 {_MASK}"),
    (re.compile(r"\bwhsec_[A-Za-z0-9+/=_-]+"), f"whsec_{_MASK}"),
    (re.compile(r"\b(vj_[a-z0-9]{1,16}_[0-9A-Za-z]{8})_[0-9A-Za-z_]{8,}"), rf"\1_{_MASK}"),  # its id may be told
    (re.compile(r"\b(vj_[A-Za-z0-9]+)_[A-Za-z0-9_]{16,}"), rf"\1_{_MASK}"),
    (re.compile(r"([a-z][a-z0-9+.-]*://)[^\s/?#\"'\\]*@", re.IGNORECASE), rf"\1{_MASK}@"),
    (re.compile(rf"([?&](?:{_SIGNED}|{_HIDDEN_FIELDS})=)[^&\s\"'\\#]+", re.IGNORECASE), rf"\1{_MASK}"),
)


def redacted(text: str) -> str:
    """Return `text` without what looks like a secret.

    Masked are Authorization headers and tokens, secrets of webhooks (whsec_), API keys (vj_: their id stays), names and
    passwords in addresses, the signatures of signed addresses, and fields that are called after a secret.
    """
    lowered = text.lower()
    if not any(part in lowered for part in _SUSPECT):
        return text
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


@contextmanager
def bind(**ids: Any) -> Iterator[None]:
    """Add `ids` to every log line of this thread or task until the block ends."""
    token = _bound.set({**_bound.get({}), **ids})
    try:
        yield
    finally:
        _bound.reset(token)


def bound(name: str) -> Any:
    """Return what `bind` has bound to a name here, or None."""
    return _bound.get({}).get(name)


def configure(level: str = "INFO", **constant: Any) -> None:
    """Send all logs of this process to standard error as JSON lines, each with the constant fields."""
    if constant:
        _bound.set({**_bound.get({}), **constant})
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Celery tells of every message at level info: twice as many lines as ours, and one more cost for each task.
    for name in ("celery.app.trace", "celery.worker.strategy"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
