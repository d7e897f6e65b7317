"""The servers that tests start themselves."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from tests.servers.postgres import Postgres
from tests.servers.valkey import Valkey

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("tcp", [False, True])
def test_valkey_restarts_at_the_same_address(start_valkey: Callable[..., Valkey], *, tcp: bool) -> None:
    """A killed Valkey comes back empty, under the same address and another process id."""
    server = start_valkey(tcp=tcp)
    address, pid = server.broker_url(3), server.pid
    with server.client(3) as client:
        client.set("key", "value")
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        server.start()
        assert client.get("key") is None
    assert (server.broker_url(3), server.pid == pid) == (address, False)


def test_broker_url_names_an_empty_database(broker_url: str, valkey: Valkey) -> None:
    """Celery's own transport can use the address, and finds nothing there."""
    from kombu import Connection

    with Connection(broker_url) as connection:
        queue = connection.SimpleQueue("first")
        queue.put({"id": 1})
        assert queue.get(timeout=5).payload == {"id": 1}
        queue.close()
    with valkey.client(0) as client:
        assert client.dbsize() == 0


def test_postgres_never_runs_as_root(postgres: Postgres) -> None:
    """The server belongs to an ordinary user, and the folder above its own keeps its rights."""
    assert psutil.Process(postgres.pid).uids().effective != 0
    assert postgres.folder.stat().st_mode & 0o077 == 0


def test_postgres_keeps_commits_over_kills(start_postgres: Callable[[], Postgres]) -> None:
    """After SIGKILL of all its processes, and after an immediate stop, committed rows are there."""
    server = start_postgres()
    address = server.url("kept")
    server.create_database("kept")
    with server.connect("kept") as connection:
        connection.execute("CREATE TABLE numbers (number integer)")
        connection.execute("INSERT INTO numbers VALUES (1)")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    server.start()
    with server.connect("kept") as connection:
        connection.execute("INSERT INTO numbers VALUES (2)")
    server.restart()
    with server.connect("kept") as connection:
        assert connection.execute("SELECT number FROM numbers ORDER BY 1").fetchall() == [(1,), (2,)]
    assert server.url("kept") == address


def test_each_test_gets_a_database_of_its_own(empty_postgres_url: str, postgres: Postgres) -> None:
    """The address works over TCP, and the database holds no table."""
    name = empty_postgres_url.rsplit("/", maxsplit=1)[-1]
    with psycopg.connect(empty_postgres_url.replace("+psycopg", "")) as connection:
        row = connection.execute("SELECT current_database(), count(*) FROM pg_tables WHERE schemaname = 'public'")
        assert row.fetchone() == (name, 0)
    postgres.create_database(f"{name}_copy", template=name)
    postgres.drop_database(f"{name}_copy")


@pytest.mark.services
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_servers_die_with_a_killed_parent(tmp_path: Path, valkey: Valkey, postgres: Postgres) -> None:
    """SIGKILL of the process that started them leaves no server behind."""
    script = """
        import sys, time
        from pathlib import Path
        from tests.servers.postgres import Postgres
        from tests.servers.valkey import Valkey
        valkey, postgres = Valkey().start(), Postgres().start()
        Path(sys.argv[1]).write_text(f"{valkey.pid} {postgres.pid} {valkey.folder} {postgres.folder}")
        time.sleep(60)
    """
    told = tmp_path / "told"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), told], env=environment) as parent:
        deadline = time.monotonic() + 45
        while not told.exists() or not told.read_text():
            assert parent.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        parent.send_signal(signal.SIGKILL)
    *pids, valkey_folder, postgres_folder = told.read_text().split()
    deadline = time.monotonic() + 10
    while any(psutil.pid_exists(int(pid)) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    from tests.servers.process import remove_folder

    remove_folder(Path(valkey_folder))
    remove_folder(Path(postgres_folder))


def test_settings_are_cleared() -> None:
    """No setting of the machine reaches a test."""
    assert not [name for name in os.environ if name.startswith("VOICEJOBS_")]


def test_store_url_names_a_migrated_database(store_url: str) -> None:
    """Both kinds of database arrive at the newest revision, and take rows."""
    from sqlalchemy import inspect

    from voicejobs.store import migrate
    from voicejobs.store.database import Database

    database = Database(store_url)
    try:
        migrate.check(database)
        with database.read() as connection:
            assert "jobs" in inspect(connection).get_table_names()
    finally:
        database.close()
