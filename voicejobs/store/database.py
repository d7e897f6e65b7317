"""Connections: one function makes an engine for SQLite or Postgres that behaves the same to its callers."""

import logging
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, InterfaceError, OperationalError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import ConnectionPoolEntry, Pool, QueuePool, StaticPool
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import Double

from voicejobs.errors import BadOption, DatabaseUnavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")

BUSY_TIMEOUT_MS = 30_000
WAL_RETRY_S = 0.01
CONFLICT_TRIES = 5
CONFLICT_PAUSE_S = 0.1
_CONFLICTS = frozenset({"40001", "40P01"})
"""What Postgres calls a serialization failure and a deadlock: the same transaction may succeed a moment later."""
PAUSE_S = 1.0
"""Rest after which a connection to Postgres is asked whether it still stands."""
_EMBEDDED_HINT = "Check the rights and the free space of the state folder, or set VOICEJOBS_STATE_DIR to another."


class InTheWay(DatabaseUnavailable):
    """The server has ended a transaction because others waited for it, and it for them."""


class now_s(FunctionElement[float]):  # noqa: N801 - reads as the SQL function that it is
    """Give the clock of the database as unix seconds: the only clock that decides anything."""

    type = Double()
    inherit_cache = True
    name = "now_s"


@compiles(now_s, "sqlite")
def _now_sqlite(element: now_s, compiler: Any, **kwargs: Any) -> str:
    """Write the clock for SQLite; 2440587.5 is the Julian day of the unix epoch."""
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(now_s, "postgresql")
def _now_postgresql(element: now_s, compiler: Any, **kwargs: Any) -> str:
    """Write the clock for Postgres; clock_timestamp moves on inside a transaction."""
    return "(extract(epoch from clock_timestamp())::double precision)"


class Database:
    """Own the connections of a process; `begin()` is the one way to the tables.

    Args:
        url: `sqlite:///...` or `postgresql+psycopg://...`.
        pool_size: connections kept for Postgres; SQLite has one to write, and one for each thread that reads.
    """

    def __init__(self, url: str, *, pool_size: int = 8) -> None:
        try:
            parsed = make_url(url)
        except ArgumentError:
            raise BadOption("VOICEJOBS_DATABASE_URL is no database URL", hint="See docs/settings.md.") from None
        backend = parsed.get_backend_name()
        if backend not in {"sqlite", "postgresql"}:
            raise BadOption(f"The database {backend!r} is not supported", hint="Use Postgres or SQLite.")
        self.is_sqlite = backend == "sqlite"
        self.url = url
        # One writer at a time is SQLite's rule; queueing for it in the process is fair, its busy loop is not.
        self._write_lock = threading.Lock() if self.is_sqlite else None
        if self.is_sqlite:
            if parsed.database:
                _make_folder(Path(parsed.database).parent)
            # All writing goes through one connection: another one's commit would empty its page cache each time.
            self.engine: Engine = _sqlite_engine(url, poolclass=StaticPool)
            self._relaxed: Engine = self.engine.execution_options(voicejobs_durable=False)
            self._reader = _sqlite_engine(url, poolclass=QueuePool)
            self._at_once = self.engine
        else:
            if parsed.drivername == "postgresql":
                parsed = parsed.set(drivername="postgresql+psycopg")
            self.engine = _postgres_engine(parsed, pool_size)
            self._relaxed = self._reader = self.engine
            # Connections of their own, set once: to change a connection to and fro costs as much as a statement.
            self._at_once = _postgres_engine(parsed, pool_size, isolation_level="AUTOCOMMIT", pool_reset_on_return=None)

    @contextmanager
    def begin(self, *, durable: bool = True) -> Iterator[Connection]:
        """Open a transaction that may write; it commits at the end of the block.

        Args:
            durable: whether the commit must survive a power cut. Where it need not (a claim, a heartbeat: the work
                would be done again), SQLite saves a wait for the disk; the next durable commit takes it along.

        Raises:
            DatabaseUnavailable: the database cannot be reached, or stays locked.
        """
        engine = self.engine if durable else self._relaxed
        if self._write_lock is None:
            with mapped_errors(), engine.begin() as connection:
                yield connection
        else:
            with self._write_lock, mapped_errors(), engine.begin() as connection:
                yield connection

    def run(self, act: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Call `act` with a short transaction, and again where the server ended it so that others could go on.

        Postgres does that to one of those who wait for each other in a circle. Nothing of it has happened then, so
        `act` must do all that it does through its connection.

        Raises:
            DatabaseUnavailable: as `begin`, or every one of several tries was in the way of others.
        """
        for tries_left in range(CONFLICT_TRIES - 1, 0, -1):
            try:
                with self.begin(durable=durable) as connection:
                    return act(connection)
            except InTheWay as error:
                logger.info(
                    "a transaction was in the way of others", extra={"error": error.message, "left": tries_left}
                )
            time.sleep(random.uniform(0.01, CONFLICT_PAUSE_S))  # noqa: S311 - spreads load, guards nothing
        with self.begin(durable=durable) as connection:
            return act(connection)

    @contextmanager
    def at_once(self) -> Iterator[Connection]:
        """Open a connection to Postgres for one statement that is a transaction of its own: two round trips less."""
        with mapped_errors(), self._at_once.connect() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a connection for reading only; on SQLite it waits for no writer."""
        with mapped_errors(), self._reader.connect().execution_options(voicejobs_read=True) as connection:
            yield connection

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()
        self._reader.dispose()
        self._at_once.dispose()


def _postgres_engine(url: URL, pool_size: int, **options: Any) -> Engine:
    """Return an engine for Postgres; connections are made when they are needed."""
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=pool_size * 2,
        pool_pre_ping=False,
        pool_recycle=1800,
        connect_args={"connect_timeout": 5, "application_name": "voicejobs"},
        **options,
    )
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "checkout", _ask_after_a_pause)
    return engine


def _note_use(connection: Any, record: ConnectionPoolEntry) -> None:
    """Note when a connection was used last."""
    record.info["used"] = time.monotonic()


def _ask_after_a_pause(connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:
    """Ask a connection that has rested whether it still is one: the server may have been away meanwhile.

    To ask each time, as `pool_pre_ping` does, would cost a job more than some of its statements.

    Raises:
        DisconnectionError: it is none; the pool then makes another.
    """
    if time.monotonic() - record.info.get("used", float("inf")) < PAUSE_S:  # infinite: it is new
        return
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        if not connection.autocommit:
            connection.rollback()
    except Exception as error:
        raise DisconnectionError("the server was away") from error


@contextmanager
def mapped_errors() -> Iterator[None]:
    """Turn the driver's "cannot reach it" into `DatabaseUnavailable`; other errors pass unchanged."""
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        if getattr(error.orig, "sqlstate", None) in _CONFLICTS:
            raise InTheWay(f"The database has ended a transaction: {_first_line(error)}") from error
        embedded = isinstance(error.orig, sqlite3.Error)
        raise DatabaseUnavailable(
            f"The database does not answer: {_first_line(error)}", hint=_EMBEDDED_HINT if embedded else None
        ) from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise DatabaseUnavailable(f"The connection to the database broke: {_first_line(error)}") from error
        raise


def _first_line(error: DBAPIError) -> str:
    """Return the first line of the driver's message, without the statement."""
    return str(error.orig).strip().split("\n", maxsplit=1)[0]


def _use_wal(cursor: sqlite3.Cursor) -> None:
    """Turn on the write-ahead log; on a new database the busy timeout does not hold for that, so wait here."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(WAL_RETRY_S)
        else:
            return


def _make_folder(folder: Path) -> None:
    """Make the folder of an embedded database, for our user alone.

    Raises:
        BadOption: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BadOption(
            f"The folder {folder} of the database cannot be made: {error.strerror}",
            hint="Set VOICEJOBS_STATE_DIR to a folder that you can write.",
        ) from error


def _sqlite_engine(url: str, *, poolclass: type[Pool]) -> Engine:
    """Return an engine whose connections use WAL, and whose write transactions are immediate."""
    # Every block ends its transaction itself, so that a connection that goes back to the pool needs no rollback.
    engine = create_engine(
        url,
        connect_args={"timeout": BUSY_TIMEOUT_MS / 1000, "check_same_thread": False},
        poolclass=poolclass,
        pool_reset_on_return=None,
    )

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            f"busy_timeout={BUSY_TIMEOUT_MS}",
            "synchronous=FULL",
            "foreign_keys=ON",
            "cache_size=-8192",
            "wal_autocheckpoint=1000",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        _use_wal(cursor)
        cursor.close()

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        cursor = connection.connection.cursor()
        if not options.get("voicejobs_read", False):
            durable = options.get("voicejobs_durable", True)
            cursor.execute("PRAGMA synchronous=FULL" if durable else "PRAGMA synchronous=NORMAL")
            cursor.execute("BEGIN IMMEDIATE")
        else:
            cursor.execute("BEGIN")
        cursor.close()

    return engine
