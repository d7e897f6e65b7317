"""Alembic's entry: voicejobs.store.migrate builds the configuration in code and hands over the connection."""

from alembic import context

from voicejobs.store.schema import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
