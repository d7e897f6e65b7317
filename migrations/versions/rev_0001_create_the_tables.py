"""Create the tables of jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "batches",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("lane", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("sealed_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
    )
    op.create_index(
        "ix_batches_open",
        "batches",
        ["lane", "id"],
        unique=False,
        sqlite_where=sa.text("finished_at IS NULL"),
        postgresql_where=sa.text("finished_at IS NULL"),
    )

    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("batch_id", sa.String(length=64), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("pipeline", sa.String(length=64), nullable=False),
        sa.Column("pipeline_version", sa.Integer(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("source_name", sa.Text(), nullable=False),
        sa.Column("input_sha256", sa.String(length=64), nullable=True),
        sa.Column("result_key", sa.String(length=64), nullable=True),
        sa.Column("done_key", sa.String(length=64), nullable=True),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("cost_order", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("sent_at", sa.Double(), nullable=True),
        sa.Column("sent_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("run_after", sa.Double(), nullable=True),
        sa.Column("deaths", sa.Integer(), server_default="0", nullable=False),
        sa.Column("audio_s", sa.Double(), nullable=True),
        sa.Column("outputs", sa.Text(), nullable=True),
        sa.Column("error_code", sa.String(length=64), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("trace_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], name=op.f("fk_jobs_batch_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index(
        "ix_jobs_cancelling",
        "jobs",
        ["id"],
        unique=False,
        sqlite_where=sa.text("state = 'cancelling'"),
        postgresql_where=sa.text("state = 'cancelling'"),
    )
    op.create_index("ix_jobs_done_key", "jobs", ["done_key"], unique=False)
    op.create_index("ix_jobs_target", "jobs", ["target"], unique=False)
    op.create_index("ix_jobs_finished", "jobs", ["batch_id", "finished_at"], unique=False)
    op.create_index(
        "ix_jobs_sent",
        "jobs",
        ["batch_id"],
        unique=False,
        sqlite_where=sa.text("sent_at IS NOT NULL AND state IN ('queued', 'running', 'cancelling')"),
        postgresql_where=sa.text("sent_at IS NOT NULL AND state IN ('queued', 'running', 'cancelling')"),
    )
    op.create_index(
        "ix_jobs_unsent",
        "jobs",
        ["batch_id", "priority", "cost_order", "seq"],
        unique=False,
        sqlite_where=sa.text("sent_at IS NULL AND state IN ('queued', 'running')"),
        postgresql_where=sa.text("sent_at IS NULL AND state IN ('queued', 'running')"),
    )

    op.create_table(
        "artifacts",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("step_run_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=True),
        sa.Column("meta", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_artifacts_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
    )
    op.create_index("ix_artifacts_job", "artifacts", ["job_id"], unique=False)

    op.create_table(
        "results",
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("result_key", sa.String(length=64), nullable=False),
        sa.Column("artifact_id", sa.String(length=64), nullable=False),
        sa.Column("language", sa.String(length=16), nullable=True),
        sa.Column("duration_s", sa.Double(), nullable=False),
        sa.Column("words", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_results_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_results")),
    )
    op.create_index("ix_results_key", "results", ["result_key"], unique=False)

    op.create_table(
        "step_runs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("node", sa.String(length=64), nullable=False),
        sa.Column("step", sa.String(length=64), nullable=False),
        sa.Column("step_version", sa.Integer(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("queue", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("inputs", sa.Text(), nullable=False),
        sa.Column("output", sa.Text(), nullable=True),
        sa.Column("checkpoint", sa.Text(), nullable=True),
        sa.Column("progress_s", sa.Double(), server_default="0", nullable=False),
        sa.Column("fence", sa.Integer(), server_default="0", nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("worker", sa.String(length=128), nullable=True),
        sa.Column("device", sa.String(length=64), nullable=True),
        sa.Column("error_code", sa.String(length=64), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_step_runs_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_step_runs")),
    )
    op.create_index(
        "ix_step_runs_running",
        "step_runs",
        ["owner"],
        unique=False,
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_index("uq_step_runs_place", "step_runs", ["job_id", "node", "shard"], unique=True)

    op.create_table(
        "attempts",
        sa.Column("step_run_id", sa.String(length=64), nullable=False),
        sa.Column("fence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=True),
        sa.Column("worker", sa.String(length=128), nullable=True),
        sa.Column("device", sa.String(length=64), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=False),
        sa.Column("error_code", sa.String(length=64), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("traceback", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["step_run_id"], ["step_runs.id"], name=op.f("fk_attempts_step_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("step_run_id", "fence", name=op.f("pk_attempts")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("attempts")

    op.drop_index("uq_step_runs_place", table_name="step_runs")
    op.drop_index("ix_step_runs_running", table_name="step_runs")

    op.drop_table("step_runs")
    op.drop_index("ix_results_key", table_name="results")

    op.drop_table("results")
    op.drop_index("ix_artifacts_job", table_name="artifacts")

    op.drop_table("artifacts")
    op.drop_index("ix_jobs_unsent", table_name="jobs")
    op.drop_index("ix_jobs_sent", table_name="jobs")
    op.drop_index("ix_jobs_target", table_name="jobs")
    op.drop_index("ix_jobs_finished", table_name="jobs")
    op.drop_index("ix_jobs_done_key", table_name="jobs")
    op.drop_index("ix_jobs_cancelling", table_name="jobs")

    op.drop_table("jobs")
    op.drop_index("ix_batches_open", table_name="batches")

    op.drop_table("batches")
