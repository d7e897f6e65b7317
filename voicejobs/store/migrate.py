"""Bring a database to the revision of this version, and say whether it is there."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import Any

from sqlalchemy import Connection, inspect, text

from voicejobs.errors import SchemaMismatch
from voicejobs.store.database import Database

HEAD = "0003"
"""The newest revision; tests/migration compares it with the migrations folder."""

_LOCK_KEY = 0x766F6963
_LOCK_TIMEOUT_MS = 4000


def current_revision(database: Database) -> str | None:
    """Return the revision of the database, None where it was never migrated."""
    with database.read() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def check(database: Database) -> None:
    """Do nothing where the database is at the head.

    Raises:
        SchemaMismatch: it is not.
    """
    revision = current_revision(database)
    if revision != HEAD:
        raise SchemaMismatch(f"The database is at revision {revision or 'none'}, this version needs {HEAD}")


def upgrade(database: Database, revision: str = "head") -> None:
    """Migrate to `revision`; safe when two processes try at once."""
    if revision == "head" and current_revision(database) == HEAD:
        return
    from alembic import command  # noqa: PLC0415 - only a database that is behind pays for Alembic

    with _locked(database) as connection, _config(connection) as config:
        command.upgrade(config, revision)


def downgrade(database: Database, revision: str = "base") -> None:
    """Go back to `revision`."""
    from alembic import command  # noqa: PLC0415

    with _locked(database) as connection, _config(connection) as config:
        command.downgrade(config, revision)


def differences(database: Database) -> list[Any]:
    """Return what the database lacks or has beyond the declared tables; empty where they agree."""
    from alembic.autogenerate import compare_metadata  # noqa: PLC0415
    from alembic.migration import MigrationContext  # noqa: PLC0415

    from voicejobs.store.schema import metadata  # noqa: PLC0415

    with database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, metadata))


@contextmanager
def _locked(database: Database) -> Iterator[Connection]:
    """Hold the right to migrate: a write transaction on SQLite, an advisory lock on Postgres."""
    with database.begin() as connection:
        if not database.is_sqlite:
            connection.execute(text(f"SET LOCAL lock_timeout = {_LOCK_TIMEOUT_MS}"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        yield connection


@contextmanager
def _config(connection: Connection) -> Iterator[Any]:
    """Build Alembic's configuration from the installed package; there is no ini file."""
    from alembic.config import Config  # noqa: PLC0415

    with as_file(files("voicejobs_migrations")) as folder:
        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.attributes["connection"] = connection
        yield config
