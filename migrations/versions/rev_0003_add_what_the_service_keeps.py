"""Files, uploads, keys, webhooks, and the events of watched jobs and batches."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# An event is written in the transaction of the change that it tells of, wherever that change is made.
_FUNCTION = """
    CREATE FUNCTION voicejobs_note_{name}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO events (tx, tenant, type, batch_id, job_id, created_at)
        VALUES (pg_current_xact_id()::text::bigint, NEW.tenant, '{name}.' || NEW.state, {ids},
                extract(epoch from clock_timestamp())::double precision);
        PERFORM pg_notify('voicejobs_events', '');
        RETURN NULL;
    END $$
    """
_TRIGGER_POSTGRES = """
    CREATE TRIGGER voicejobs_{name}_{kind} AFTER {event} ON {table}
    FOR EACH ROW WHEN ({watched}{condition}) EXECUTE FUNCTION voicejobs_note_{name}()
    """
_TRIGGER_SQLITE = """
    CREATE TRIGGER voicejobs_{name}_{kind} AFTER {event} ON {table}
    FOR EACH ROW WHEN {watched}{condition} BEGIN
        INSERT INTO events (tx, tenant, type, batch_id, job_id, created_at)
        VALUES (0, NEW.tenant, '{name}.' || NEW.state, {ids}, (julianday('now') - 2440587.5) * 86400.0);
    END
    """
# The batch that a job has for itself, because it was submitted alone, has no events: nobody knows of it.
_TABLES = (
    {"name": "job", "table": "jobs", "ids": "NEW.batch_id, NEW.id", "watched": "NEW.watched = 1"},
    {"name": "batch", "table": "batches", "ids": "NEW.id, NULL", "watched": "NEW.watched = 1 AND NEW.kind = 'batch'"},
)
_CHANGES = (
    {"kind": "added", "event": "INSERT", "condition": ""},
    {"kind": "changed", "event": "UPDATE OF state", "condition": " AND NEW.state <> OLD.state"},
)


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("limits", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.Column("last_used_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
    )
    op.create_index("ix_api_keys_tenant", "api_keys", ["tenant"], unique=False)
    op.create_table(
        "cursors",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("tx", sa.BigInteger(), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_cursors")),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tx", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("batch_id", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index("ix_events_age", "events", ["created_at"], unique=False)
    op.create_index("ix_events_batch", "events", ["batch_id"], unique=False)
    op.create_index("ix_events_job", "events", ["job_id"], unique=False)
    op.create_index("ix_events_order", "events", ["tx", "id"], unique=False)
    op.create_index("ix_events_tenant", "events", ["tenant", "tx", "id"], unique=False)
    op.create_table(
        "files",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("purpose", sa.String(length=32), nullable=False),
        sa.Column("media_type", sa.String(length=128), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_files")),
    )
    op.create_index("ix_files_sha256", "files", ["sha256"], unique=False)
    op.create_index("ix_files_tenant", "files", ["tenant", "id"], unique=False)
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("route", sa.String(length=128), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=False),
        sa.Column("headers", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "route", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index("ix_idempotency_keys_age", "idempotency_keys", ["created_at"], unique=False)
    op.create_table(
        "worker_reports",
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("worker", sa.String(length=128), nullable=False),
        sa.Column("device", sa.String(length=64), nullable=False),
        sa.Column("told", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("owner", name=op.f("pk_worker_reports")),
    )
    op.create_table(
        "uploads",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("purpose", sa.String(length=32), nullable=False),
        sa.Column("media_type", sa.String(length=128), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("file_id", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_uploads")),
    )
    op.create_index("ix_uploads_tenant", "uploads", ["tenant", "id"], unique=False)
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("types", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("rotated_at", sa.Double(), nullable=True),
        sa.Column("paused_until", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    op.create_index("ix_webhooks_tenant", "webhooks", ["tenant", "id"], unique=False)
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("webhook_id", sa.String(length=64), nullable=False),
        sa.Column("event_id", sa.String(length=64), nullable=False),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_at", sa.Double(), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name=op.f("fk_deliveries_webhook_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
    )
    op.create_index(
        "ix_deliveries_due",
        "deliveries",
        ["webhook_id", "next_at", "id"],
        unique=False,
        sqlite_where=sa.text("state = 'pending'"),
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_index(
        "ix_deliveries_leased",
        "deliveries",
        ["lease_until"],
        unique=False,
        sqlite_where=sa.text("state = 'pending' AND lease_until IS NOT NULL"),
        postgresql_where=sa.text("state = 'pending' AND lease_until IS NOT NULL"),
    )
    op.create_index("uq_deliveries_event", "deliveries", ["webhook_id", "event_id"], unique=True)
    op.create_table(
        "upload_parts",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("upload_id", sa.String(length=64), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["upload_id"], ["uploads.id"], name=op.f("fk_upload_parts_upload_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_upload_parts")),
    )
    op.create_index("ix_upload_parts_sha256", "upload_parts", ["sha256"], unique=False)
    op.create_index("ix_upload_parts_upload", "upload_parts", ["upload_id"], unique=False)
    op.add_column("batches", sa.Column("kind", sa.String(length=16), server_default="batch", nullable=False))
    op.add_column("batches", sa.Column("watched", sa.Integer(), server_default="0", nullable=False))
    op.add_column("batches", sa.Column("request", sa.Text(), nullable=True))
    op.create_index(
        "ix_batches_tenant",
        "batches",
        ["tenant", "id"],
        unique=False,
        sqlite_where=sa.text("kind = 'batch'"),
        postgresql_where=sa.text("kind = 'batch'"),
    )
    op.create_index("ix_jobs_tenant", "jobs", ["tenant", "id"], unique=False)
    op.add_column("jobs", sa.Column("watched", sa.Integer(), server_default="0", nullable=False))
    op.add_column("jobs", sa.Column("request", sa.Text(), nullable=True))

    is_postgres = op.get_bind().dialect.name == "postgresql"
    for table in _TABLES:
        if is_postgres:
            op.execute(_FUNCTION.format(**table))
        for change in _CHANGES:
            op.execute((_TRIGGER_POSTGRES if is_postgres else _TRIGGER_SQLITE).format(**table, **change))


def downgrade() -> None:
    is_postgres = op.get_bind().dialect.name == "postgresql"
    for table in _TABLES:
        for change in _CHANGES:
            op.execute(
                "DROP TRIGGER voicejobs_{name}_{kind}".format(**table, **change)
                + (f" ON {table['table']}" if is_postgres else "")
            )
        if is_postgres:
            op.execute("DROP FUNCTION voicejobs_note_{name}()".format(**table))
    op.drop_index("ix_jobs_tenant", table_name="jobs")
    op.drop_index(
        "ix_batches_tenant",
        table_name="batches",
        sqlite_where=sa.text("kind = 'batch'"),
        postgresql_where=sa.text("kind = 'batch'"),
    )
    op.drop_column("jobs", "request")
    op.drop_column("jobs", "watched")
    op.drop_column("batches", "request")
    op.drop_column("batches", "watched")
    op.drop_column("batches", "kind")
    op.drop_index("ix_upload_parts_upload", table_name="upload_parts")
    op.drop_index("ix_upload_parts_sha256", table_name="upload_parts")
    op.drop_table("upload_parts")
    op.drop_index("uq_deliveries_event", table_name="deliveries")
    op.drop_index(
        "ix_deliveries_leased",
        table_name="deliveries",
        sqlite_where=sa.text("state = 'pending' AND lease_until IS NOT NULL"),
        postgresql_where=sa.text("state = 'pending' AND lease_until IS NOT NULL"),
    )
    op.drop_index(
        "ix_deliveries_due",
        table_name="deliveries",
        sqlite_where=sa.text("state = 'pending'"),
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.drop_table("deliveries")
    op.drop_index("ix_webhooks_tenant", table_name="webhooks")
    op.drop_table("worker_reports")
    op.drop_table("webhooks")
    op.drop_index("ix_uploads_tenant", table_name="uploads")
    op.drop_table("uploads")
    op.drop_index("ix_idempotency_keys_age", table_name="idempotency_keys")
    op.drop_table("idempotency_keys")
    op.drop_index("ix_files_tenant", table_name="files")
    op.drop_index("ix_files_sha256", table_name="files")
    op.drop_table("files")
    op.drop_index("ix_events_tenant", table_name="events")
    op.drop_index("ix_events_order", table_name="events")
    op.drop_index("ix_events_job", table_name="events")
    op.drop_index("ix_events_batch", table_name="events")
    op.drop_index("ix_events_age", table_name="events")
    op.drop_table("events")
    op.drop_table("cursors")
    op.drop_index("ix_api_keys_tenant", table_name="api_keys")
    op.drop_table("api_keys")
