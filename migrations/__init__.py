"""The Alembic migrations of the store; installed as voicejobs_migrations."""
