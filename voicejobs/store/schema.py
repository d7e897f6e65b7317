"""The tables, as SQLAlchemy Core describes them; migrations/ builds them.

Times are unix seconds (floating point) by the clock of the database, on SQLite and on Postgres alike.
JSON is kept as text: it is read and written whole, and the two databases then behave the same.
"""

import re

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

ID = String(64)
# The predicates of the partial indexes. Queries repeat them word for word: SQLite uses such an index only where the
# same constants stand in the WHERE clause, and never for bound parameters.
UNSENT = "sent_at IS NULL AND state IN ('queued', 'running')"
SENT = "sent_at IS NOT NULL AND state IN ('queued', 'running', 'cancelling')"
CANCELLING = "state = 'cancelling'"
RUNNING = "state = 'running'"
OPEN = "finished_at IS NULL"
EXPIRING = "expires_at IS NOT NULL AND finished_at IS NULL"
UNDELIVERED = "state = 'pending'"
LEASED = "state = 'pending' AND lease_until IS NOT NULL"
TOGETHER = "kind = 'batch'"
"""The batches that people see: those which hold more than a job that was submitted alone."""
SERIAL = BigInteger().with_variant(Integer, "sqlite")
"""Counted up by the database; SQLite does that for INTEGER only."""


def qualified(table: str, predicate: str) -> str:
    """Return the predicate of a partial index with the name of its table before each column."""
    return re.sub(r"\b(sent_at|state|finished_at|lease_until)\b", rf"{table}.\1", predicate)


batches = Table(
    "batches",
    metadata,
    Column("id", ID, primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("lane", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("label", Text, nullable=False),
    Column("options", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("sealed_at", Double),
    Column("finished_at", Double),
    # "batch", or "single" for the batch that a job which was submitted alone has for itself.
    Column("kind", String(16), nullable=False, server_default="batch"),
    # Whether changes of its state are written to `events`, and what the request for it said beyond all that (JSON).
    Column("watched", Integer, nullable=False, server_default="0"),
    Column("request", Text),
    Index(
        "ix_batches_open",
        "lane",
        "id",
        sqlite_where=text(OPEN),
        postgresql_where=text(OPEN),
    ),
    Index(
        "ix_batches_tenant",
        "tenant",
        "id",
        sqlite_where=text(TOGETHER),
        postgresql_where=text(TOGETHER),
    ),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", ID, primary_key=True),
    Column("batch_id", ID, ForeignKey("batches.id", ondelete="CASCADE"), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("tenant", String(64), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("pipeline", String(64), nullable=False),
    Column("pipeline_version", Integer, nullable=False),
    Column("options", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("source_name", Text, nullable=False),
    Column("input_sha256", String(64)),
    Column("result_key", String(64)),
    Column("done_key", String(64)),
    Column("target", Text, nullable=False),
    Column("cost_order", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("sent_at", Double),
    Column("sent_count", Integer, nullable=False, server_default="0"),
    Column("run_after", Double),
    Column("deaths", Integer, nullable=False, server_default="0"),
    Column("audio_s", Double),
    Column("outputs", Text),
    Column("error_code", String(64)),
    Column("error", Text),
    Column("trace_id", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("finished_at", Double),
    Column("expires_at", Double),
    Column("watched", Integer, nullable=False, server_default="0"),
    Column("request", Text),
    Index("ix_jobs_done_key", "done_key"),
    Index("ix_jobs_target", "target"),
    Index("ix_jobs_tenant", "tenant", "id"),
    Index("ix_jobs_finished", "batch_id", "finished_at"),
    Index(
        "ix_jobs_unsent",
        "batch_id",
        "priority",
        "cost_order",
        "seq",
        sqlite_where=text(UNSENT),
        postgresql_where=text(UNSENT),
    ),
    Index(
        "ix_jobs_sent",
        "batch_id",
        sqlite_where=text(SENT),
        postgresql_where=text(SENT),
    ),
    Index(
        "ix_jobs_cancelling",
        "id",
        sqlite_where=text(CANCELLING),
        postgresql_where=text(CANCELLING),
    ),
    Index(
        "ix_jobs_expiring",
        "expires_at",
        sqlite_where=text(EXPIRING),
        postgresql_where=text(EXPIRING),
    ),
)

step_runs = Table(
    "step_runs",
    metadata,
    Column("id", ID, primary_key=True),
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("node", String(64), nullable=False),
    Column("step", String(64), nullable=False),
    Column("step_version", Integer, nullable=False),
    Column("shard", Integer, nullable=False),
    Column("depth", Integer, nullable=False),
    Column("queue", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("inputs", Text, nullable=False),
    Column("output", Text),
    Column("checkpoint", Text),
    Column("progress_s", Double, nullable=False, server_default="0"),
    Column("fence", Integer, nullable=False, server_default="0"),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("owner", String(128)),
    Column("lease_until", Double),
    Column("worker", String(128)),
    Column("device", String(64)),
    Column("error_code", String(64)),
    Column("error", Text),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("finished_at", Double),
    Index("uq_step_runs_place", "job_id", "node", "shard", unique=True),
    Index(
        "ix_step_runs_running",
        "owner",
        sqlite_where=text(RUNNING),
        postgresql_where=text(RUNNING),
    ),
)

attempts = Table(
    "attempts",
    metadata,
    Column("step_run_id", ID, ForeignKey("step_runs.id", ondelete="CASCADE"), primary_key=True),
    Column("fence", Integer, primary_key=True, autoincrement=False),
    Column("outcome", String(16), nullable=False),
    Column("owner", String(128)),
    Column("worker", String(128)),
    Column("device", String(64)),
    Column("started_at", Double),
    Column("finished_at", Double, nullable=False),
    Column("error_code", String(64)),
    Column("message", Text),
    Column("traceback", Text),
    sqlite_with_rowid=False,
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("id", ID, primary_key=True),
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("step_run_id", ID, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("data", LargeBinary),
    Column("meta", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Index("ix_artifacts_job", "job_id"),
)

results = Table(
    "results",
    metadata,
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("result_key", String(64), nullable=False),
    Column("artifact_id", ID, nullable=False),
    Column("language", String(16)),
    Column("duration_s", Double, nullable=False),
    Column("words", Integer, nullable=False),
    Column("text", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Index("ix_results_key", "result_key"),
)

# What happened to watched jobs and batches. Triggers (see `triggers`) write it in the transaction of the change.
# In the order of (tx, id), rows that end below the oldest transaction under way are all there: see
# `store.events`. SQLite has one writer at a time; its `tx` is always 0.
events = Table(
    "events",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("tx", BigInteger, nullable=False, server_default="0"),
    Column("tenant", String(64), nullable=False),
    Column("type", String(32), nullable=False),
    Column("batch_id", ID, nullable=False),
    Column("job_id", ID),
    Column("created_at", Double, nullable=False),
    Index("ix_events_order", "tx", "id"),
    Index("ix_events_tenant", "tenant", "tx", "id"),
    Index("ix_events_job", "job_id"),
    Index("ix_events_batch", "batch_id"),
    Index("ix_events_age", "created_at"),
)

# How far the readers of `events` that must miss nothing have come.
cursors = Table(
    "cursors",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("tx", BigInteger, nullable=False),
    Column("event_id", BigInteger, nullable=False),
)

# A key is `vj_<id>_<secret>_<check>`: of the secret only its hash is kept.
api_keys = Table(
    "api_keys",
    metadata,
    Column("id", ID, primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("name", Text, nullable=False),
    Column("secret_sha256", String(64), nullable=False),
    Column("scopes", Text, nullable=False),
    Column("limits", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("last_used_at", Double),
    Index("ix_api_keys_tenant", "tenant"),
)

# Files that were uploaded, and those that a batch has made; the bytes are a blob.
files = Table(
    "files",
    metadata,
    Column("id", ID, primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("name", Text, nullable=False),
    Column("purpose", String(32), nullable=False),
    Column("media_type", String(128), nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Index("ix_files_tenant", "tenant", "id"),
    Index("ix_files_sha256", "sha256"),
)

# Uploads in parts that can be resumed; `state` is pending, completed, cancelled or expired.
uploads = Table(
    "uploads",
    metadata,
    Column("id", ID, primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("name", Text, nullable=False),
    Column("purpose", String(32), nullable=False),
    Column("media_type", String(128), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("file_id", ID),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Index("ix_uploads_tenant", "tenant", "id"),
)

upload_parts = Table(
    "upload_parts",
    metadata,
    Column("id", ID, primary_key=True),
    Column("upload_id", ID, ForeignKey("uploads.id", ondelete="CASCADE"), nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Index("ix_upload_parts_upload", "upload_id"),
    Index("ix_upload_parts_sha256", "sha256"),
)

# Secrets of webhooks are derived from that of the installation, the id and the generation: no row holds one.
webhooks = Table(
    "webhooks",
    metadata,
    Column("id", ID, primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("url", Text, nullable=False),
    Column("types", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text),
    Column("generation", Integer, nullable=False),
    Column("rotated_at", Double),
    # Until when its receiver has asked to be left alone.
    Column("paused_until", Double),
    Column("created_at", Double, nullable=False),
    Index("ix_webhooks_tenant", "tenant", "id"),
)

# What is owed to webhooks; `state` is pending, delivered, failed or dropped. The body is what is sent, each time alike.
deliveries = Table(
    "deliveries",
    metadata,
    Column("id", ID, primary_key=True),
    Column("webhook_id", ID, ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    Column("event_id", String(64), nullable=False),
    Column("type", String(32), nullable=False),
    Column("body", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("next_at", Double, nullable=False),
    Column("lease_until", Double),
    Column("status_code", Integer),
    Column("error", Text),
    Column("created_at", Double, nullable=False),
    Column("finished_at", Double),
    Index("uq_deliveries_event", "webhook_id", "event_id", unique=True),
    Index(
        "ix_deliveries_due",
        "webhook_id",
        "next_at",
        "id",
        sqlite_where=text(UNDELIVERED),
        postgresql_where=text(UNDELIVERED),
    ),
    Index(
        "ix_deliveries_leased",
        "lease_until",
        sqlite_where=text(LEASED),
        postgresql_where=text(LEASED),
    ),
)

# What workers count, each in a row of its own that it overwrites every few seconds; the service shows it as metrics.
worker_reports = Table(
    "worker_reports",
    metadata,
    Column("owner", String(128), primary_key=True),
    Column("worker", String(128), nullable=False),
    Column("device", String(64), nullable=False),
    Column("told", Text, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
)

# Answers to requests that named an Idempotency-Key, written in the transaction of what they made.
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("tenant", String(64), primary_key=True),
    Column("route", String(128), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("fingerprint", String(64), nullable=False),
    Column("status_code", Integer, nullable=False),
    Column("headers", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Index("ix_idempotency_keys_age", "created_at"),
)
