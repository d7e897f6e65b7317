"""`voicejobs db`: migrate the database, or check it."""

import click

from voicejobs.cli.globals import current_settings
from voicejobs.cli.main import EXIT_PROBLEMS_FOUND, complain
from voicejobs.cli.spelling import Group
from voicejobs.errors import SchemaMismatch
from voicejobs.store import migrate
from voicejobs.store.database import Database


@click.group(cls=Group)
def db() -> None:
    """Migrate the database, or check it."""


@db.command()
def upgrade() -> None:
    """Bring the database to the revision of this version; does nothing where it is there."""
    database = Database(current_settings().effective_database_url)
    before = migrate.current_revision(database)
    migrate.upgrade(database)
    click.echo(f"The database is at revision {migrate.HEAD}" + (f" (was {before})" if before != migrate.HEAD else ""))


@db.command()
def check() -> None:
    """Fail where the database is not at the revision of this version, or its tables differ from it."""
    database = Database(current_settings().effective_database_url)
    try:
        migrate.check(database)
    except SchemaMismatch as error:
        complain(error)
        raise click.exceptions.Exit(EXIT_PROBLEMS_FOUND) from error
    found = migrate.differences(database)
    if found:
        for difference in found:
            click.echo(f"differs: {difference}", err=True)
        raise click.exceptions.Exit(EXIT_PROBLEMS_FOUND)
    click.echo(f"The database is at revision {migrate.HEAD}, and its tables are as declared")
