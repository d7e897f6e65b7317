"""Open the store for a command."""

from collections.abc import Iterator
from contextlib import contextmanager

from voicejobs.settings import Settings
from voicejobs.store import migrate
from voicejobs.store.database import Database


@contextmanager
def opened(settings: Settings) -> Iterator[Database]:
    """Open the database; the embedded one is migrated on the way, a server must be migrated already.

    Raises:
        DatabaseUnavailable, SchemaMismatch: as their names say.
    """
    database = Database(settings.effective_database_url, pool_size=2)
    try:
        if database.is_sqlite:
            migrate.upgrade(database)
        else:
            migrate.check(database)
        yield database
    finally:
        database.close()
