"""Fixtures of all tests: private servers, databases of one test, and an environment without our settings.

A test asks for `broker_url`, `store_url` and so on; the marker `services` comes by itself. A server that this machine
lacks skips the test on a laptop and fails it where CI=true. Each xdist worker starts servers of its own.
"""

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

import pytest

from tests.servers.postgres import Postgres
from tests.servers.process import ServerMissingError
from tests.servers.valkey import Valkey
from voicejobs.settings import PREFIX, Settings

BROKER_FIXTURES = {"valkey", "start_valkey"}
SERVER_FIXTURES = {*BROKER_FIXTURES, "postgres", "start_postgres"}
DATABASES_OF_A_SERVER = 16
TEMPLATE = "voicejobs_template"


def pytest_configure() -> None:
    """Let children hear Ctrl-C: a suite that was started in the background ignores it, and they would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses a server, and among them those that use the broker."""
    for item in items:
        used = set(getattr(item, "fixturenames", ()))
        if SERVER_FIXTURES & used:
            item.add_marker(pytest.mark.services)
        if BROKER_FIXTURES & used:
            item.add_marker(pytest.mark.broker)


def _missing(reason: object) -> NoReturn:
    """Skip on a laptop, fail in CI."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"{reason} (and CI=true)", pytrace=False)
    pytest.skip(str(reason))


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear our settings from the environment of every test."""
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """Return the models folder that the user of this machine has, since tests clear its setting."""
    names = ("HOME", "XDG_CACHE_HOME", "VOICEJOBS_MODELS_DIR")
    return Settings.from_env({name: os.environ[name] for name in names if name in os.environ}).models_dir


@pytest.fixture
def start_valkey() -> Iterator[Callable[..., Valkey]]:
    """Return a function that starts a Valkey for this test alone: `start_valkey(tcp=True, options={...})`."""
    servers: list[Valkey] = []

    def start(*, tcp: bool = False, options: dict[str, str] | None = None) -> Valkey:
        try:
            servers.append(Valkey(tcp=tcp, options=options))
        except ServerMissingError as error:
            _missing(error)
        return servers[-1].start()

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def start_postgres() -> Iterator[Callable[[], Postgres]]:
    """Return a function that starts a Postgres for this test alone, to be killed and restarted."""
    servers: list[Postgres] = []

    def start() -> Postgres:
        try:
            servers.append(Postgres())
        except ServerMissingError as error:
            _missing(error)
        return servers[-1].start()

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="session")
def valkey() -> Iterator[Valkey]:
    """Return the Valkey of this xdist worker, on a unix socket; tests must not stop it."""
    try:
        server = Valkey()
    except ServerMissingError as error:
        _missing(error)
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Return the Postgres of this xdist worker; tests must not stop it."""
    try:
        server = Postgres()
    except ServerMissingError as error:
        _missing(error)
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture
def broker_url(valkey: Valkey, worker_id: str) -> str:
    """Return a broker address whose database is empty; its number is never 0, so that code that drops it shows."""
    number = int(worker_id.removeprefix("gw")) if worker_id != "master" else 0
    database = 1 + number % (DATABASES_OF_A_SERVER - 1)
    with valkey.client(database) as client:
        client.flushdb()
    return valkey.broker_url(database)


def _migrate(url: str) -> None:
    """Bring a new database to the newest revision, and leave no connection to it."""
    from voicejobs.store import migrate
    from voicejobs.store.database import Database

    database = Database(url)
    try:
        migrate.upgrade(database)
    finally:
        database.close()


@pytest.fixture
def empty_sqlite_url(tmp_path: Path) -> str:
    """Return the address of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'empty.db'}"


@pytest.fixture(scope="session")
def _sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a migrated SQLite file to copy."""
    path = tmp_path_factory.mktemp("template") / "template.db"
    _migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(tmp_path: Path, _sqlite_template: Path) -> str:
    """Return the address of a fresh, migrated SQLite file."""
    path = tmp_path / "voicejobs.db"
    # Not a file copy: what the template's write-ahead log still holds belongs to it.
    with closing(sqlite3.connect(_sqlite_template)) as template, closing(sqlite3.connect(path)) as copy:
        template.backup(copy)
    return f"sqlite:///{path}"


@pytest.fixture
def empty_postgres_url(postgres: Postgres) -> Iterator[str]:
    """Return the address of a fresh database without tables, dropped afterwards."""
    name = f"empty_{uuid4().hex[:12]}"
    postgres.create_database(name)
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture(scope="session")
def _postgres_template(postgres: Postgres) -> str:
    """Return the name of a migrated database to copy."""
    postgres.create_database(TEMPLATE)
    _migrate(postgres.url(TEMPLATE))
    return TEMPLATE


@pytest.fixture
def postgres_url(postgres: Postgres, _postgres_template: str) -> Iterator[str]:
    """Return the address of a fresh, migrated database, dropped afterwards; worker processes see its commits."""
    name = f"test_{uuid4().hex[:12]}"
    postgres.create_database(name, template=_postgres_template)
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.services)])
def store_url(request: pytest.FixtureRequest) -> str:
    """Return the address of a fresh, migrated database, on each of the two kinds in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
