"""The migrations build the tables that the code declares, on both databases, forwards and back."""

import subprocess
import sys
import textwrap
from importlib.resources import as_file, files

import pytest
from sqlalchemy import inspect

from tests import rows
from tests.rows import opened
from voicejobs.errors import BadOption, DatabaseUnavailable, SchemaMismatch
from voicejobs.store import migrate
from voicejobs.store.database import Database
from voicejobs.store.schema import metadata


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.services)])
def empty_url(request: pytest.FixtureRequest) -> str:
    """Return the address of a database without tables, on each of the two kinds in turn."""
    url: str = request.getfixturevalue(f"empty_{request.param}_url")
    return url


def tables(database: Database) -> set[str]:
    """Return the names of all tables."""
    with database.read() as connection:
        return set(inspect(connection).get_table_names())


def test_up_down_and_up_again(empty_url: str) -> None:
    """Upgrading gives exactly the declared tables, downgrading leaves none, and upgrading again works."""
    with opened(empty_url) as database:
        assert migrate.current_revision(database) is None
        for _ in range(2):
            migrate.upgrade(database)
            assert migrate.current_revision(database) == migrate.HEAD
            assert migrate.differences(database) == []
            assert tables(database) == {*metadata.tables, "alembic_version"}
            migrate.check(database)
            rows.add_job(database)
            migrate.downgrade(database)
            assert tables(database) == {"alembic_version"}
        with pytest.raises(SchemaMismatch, match=f"none, this version needs {migrate.HEAD}"):
            migrate.check(database)


def test_there_is_one_head_and_the_code_names_it() -> None:
    """The revisions form one line, whose end is the revision that the code asks for."""
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    with as_file(files("voicejobs_migrations")) as folder:
        config = Config()
        config.set_main_option("script_location", str(folder))
        assert ScriptDirectory.from_config(config).get_heads() == [migrate.HEAD]


def test_differences_are_seen(empty_url: str) -> None:
    """A column that was dropped behind our back shows."""
    with opened(empty_url) as database:
        migrate.upgrade(database)
        with database.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE jobs DROP COLUMN audio_s")
        assert len(migrate.differences(database)) == 1


def test_threads_that_upgrade_at_once_do_not_collide(empty_url: str) -> None:
    """Four connections upgrade an empty database at the same moment, and all succeed."""

    def upgrade(_: int) -> str | None:
        with opened(empty_url) as database:
            migrate.upgrade(database)
            return migrate.current_revision(database)

    assert rows.at_once(4, upgrade) == [migrate.HEAD] * 4


def test_processes_that_upgrade_at_once_do_not_collide(empty_url: str) -> None:
    """Two processes upgrade an empty database at the same time, and both succeed."""
    program = """
        import sys
        from voicejobs.store import migrate
        from voicejobs.store.database import Database
        migrate.upgrade(Database(sys.argv[1]))
    """
    command = [sys.executable, "-c", textwrap.dedent(program), empty_url]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in running:
        _, errors = process.communicate(timeout=50)
        assert process.returncode == 0, errors
    with opened(empty_url) as database:
        assert migrate.differences(database) == []


def test_a_database_that_is_not_there_is_said_to_be_away(tmp_path_factory: pytest.TempPathFactory) -> None:
    """An address at which nothing answers, and a file that is no database, give an error of ours."""
    with opened("postgresql+psycopg://postgres@127.0.0.1:9/none") as database, pytest.raises(DatabaseUnavailable):
        migrate.current_revision(database)
    path = tmp_path_factory.mktemp("odd") / "file.db"
    path.mkdir()
    with opened(f"sqlite:///{path}") as database, pytest.raises(DatabaseUnavailable):
        migrate.current_revision(database)


@pytest.mark.parametrize("url", ["no url", "mysql://localhost/x"])
def test_other_addresses_are_refused(url: str) -> None:
    """What is no address, or that of another database, is refused by name of the setting or of the database."""
    with pytest.raises(BadOption, match=r"VOICEJOBS_DATABASE_URL|mysql"):
        Database(url)
