"""Let jobs expire."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

WAITING_TO_EXPIRE = "expires_at IS NOT NULL AND finished_at IS NULL"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("expires_at", sa.Double(), nullable=True))
    op.create_index(
        "ix_jobs_expiring",
        "jobs",
        ["expires_at"],
        unique=False,
        sqlite_where=sa.text(WAITING_TO_EXPIRE),
        postgresql_where=sa.text(WAITING_TO_EXPIRE),
    )


def downgrade() -> None:
    op.drop_index("ix_jobs_expiring", table_name="jobs")
    op.drop_column("jobs", "expires_at")
