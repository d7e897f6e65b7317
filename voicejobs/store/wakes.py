"""Hear at once that another process has written something, so that nobody has to wait for their next look.

On Postgres a connection of its own listens for what transactions say when they commit. SQLite tells nobody anything:
there a connection of its own asks dozens of times a second for the highest number of a table, which takes microseconds.
Nothing may depend on either: a wake-up may be missing, late, or for nothing, and whoever is woken looks for themselves,
as they do now and then without it.
"""

import logging
import os
import selectors
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, text

from voicejobs.store.database import Database

if TYPE_CHECKING:
    import psycopg

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.02
LOOK_SELDOM_S: Final = 0.05
QUIET_S: Final = 10.0
"""Time without news after which SQLite is asked more seldom."""
REST_TIMES: Final = 10.0
LOOK_LEAST_S: Final = 0.1
"""Rest where other threads of the process, or other processes, are so busy that an answer takes long."""
GATHER_S: Final = 0.01
"""Rest after a wake-up: what comes meanwhile is one more, however much it is."""
AGAIN_S: Final = 1.0
CLOSE_S: Final = 2.0
_KEEPALIVE: Final = {"keepalives": 1, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""A server that vanished without a word is noticed after a minute."""


@dataclass(frozen=True, slots=True)
class News:
    """Say what is heard of: the channel on Postgres, what SQLite is asked for, and how often."""

    channel: str
    newest: str
    look_every_s: float = LOOK_EVERY_S


JOBS: Final = News("voicejobs_jobs", "SELECT max(rowid) FROM jobs")
EVENTS: Final = News("voicejobs_events", "SELECT max(id) FROM events", look_every_s=0.01)
_TELL: Final = text("SELECT pg_notify(:channel, '')")


def tell(connection: Connection, news: News) -> None:
    """Let those who listen know once this transaction commits; the same said twice in one is said once."""
    if connection.dialect.name == "postgresql":
        connection.execute(_TELL, {"channel": news.channel})


class Wakes:
    """Call a function, in a thread of our own, soon after another process (or this one) has written something.

    It is called once at the beginning, and whenever something may have been missed.

    Args:
        database: the store; only its address is used.
        news: what is listened for.
        wake: the function; it must be quick, and come to no harm when it is called for nothing.
    """

    def __init__(self, database: Database, news: News, wake: Callable[[], None]) -> None:
        self._url = database.engine.url
        self._dialect = database.engine.dialect
        self._news = news
        self._wake = wake
        self._end = threading.Event()
        self._wanted = threading.Event()
        self._wanted.set()
        self._ended, self._to_end = os.pipe()
        self._act = self._ask if database.is_sqlite else self._listen
        self._thread = threading.Thread(target=self._run, name=f"wakes-{news.channel}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def pause(self) -> None:
        """Wake nobody until `resume`; SQLite is not even asked meanwhile."""
        self._wanted.clear()

    def resume(self) -> None:
        """Go on from here; what came meanwhile may be a wake-up, or none."""
        self._wanted.set()

    def close(self) -> None:
        """End the thread; one that is just connecting ends by itself."""
        if self._end.is_set():
            return
        self._end.set()
        self._wanted.set()
        with suppress(BrokenPipeError):  # the thread has ended already
            os.write(self._to_end, b"\n")  # to close it alone is not enough: a child may hold a copy
        os.close(self._to_end)
        if self._thread.ident is None:
            os.close(self._ended)
        else:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        """Hear of what is written, until the end."""
        try:
            self._act()
        except Exception:
            logger.exception("nobody wakes us any more: we look now and then", extra={"channel": self._news.channel})
        finally:
            os.close(self._ended)

    def _ask(self) -> None:
        """Ask SQLite for the newest row again and again."""
        if not self._url.database:
            return
        # No waiting for locks: what cannot be read now is read next time.
        with closing(sqlite3.connect(self._url.database, timeout=0, isolation_level=None)) as connection:
            before: Any = self  # like nothing that is read
            changed_at = time.monotonic()
            while not self._end.is_set():
                if not self._wanted.is_set():
                    self._wanted.wait()
                    before, changed_at = self, time.monotonic()
                    continue
                asked_at = time.monotonic()
                newest = self._newest(connection, before)
                now = time.monotonic()
                if newest != before:
                    before, changed_at = newest, now
                    self._wake()
                every_s = self._news.look_every_s if now - changed_at < QUIET_S else LOOK_SELDOM_S
                self._end.wait(max(every_s, min(REST_TIMES * (now - asked_at), LOOK_LEAST_S)))

    def _newest(self, connection: sqlite3.Connection, before: Any) -> Any:
        """Return the number of the newest row; the one before where it cannot be read now."""
        try:
            return connection.execute(self._news.newest).fetchall()[0][0]
        except sqlite3.Error:
            return before

    def _listen(self) -> None:
        """Listen to Postgres; connect again where the connection breaks."""
        import psycopg  # noqa: PLC0415 - installations with SQLite may lack it

        is_away = False
        while not self._end.is_set():
            try:
                with closing(self._connected()) as connection:
                    is_away = False
                    self._call()
                    self._attend(connection)
            except (psycopg.Error, OSError) as error:
                if not is_away:
                    told = {"channel": self._news.channel, "error": str(error).strip().split("\n", maxsplit=1)[0]}
                    logger.warning("nobody wakes us: we look now and then", extra=told)
                is_away = True
                self._end.wait(AGAIN_S)

    def _connected(self) -> "psycopg.Connection[Any]":
        """Return a connection that listens.

        Raises:
            psycopg.Error: there is none to be had.
        """
        import psycopg  # noqa: PLC0415 - as above
        from psycopg import sql  # noqa: PLC0415

        words, options = self._dialect.create_connect_args(self._url)
        own: dict[str, Any] = {**options, **_KEEPALIVE, "connect_timeout": 5, "application_name": "voicejobs wakes"}
        connection = psycopg.connect(*words, **own, autocommit=True)
        try:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._news.channel)))
        except BaseException:
            connection.close()
            raise
        return connection

    def _attend(self, connection: "psycopg.Connection[Any]") -> None:
        """Wake whoever is to be woken, until the end.

        Raises:
            psycopg.Error: the connection is broken.
        """
        import psycopg  # noqa: PLC0415 - as above

        with selectors.DefaultSelector() as ready:
            ready.register(connection.fileno(), selectors.EVENT_READ)
            ready.register(self._ended, selectors.EVENT_READ)
            while True:
                ready.select()
                if self._end.is_set():
                    return
                connection.pgconn.consume_input()
                heard = False
                while connection.pgconn.notifies() is not None:
                    heard = True
                if connection.pgconn.status != psycopg.pq.ConnStatus.OK:
                    raise psycopg.OperationalError("the connection is broken")
                if heard:
                    self._call()
                    self._end.wait(GATHER_S)

    def _call(self) -> None:
        """Wake, unless nobody wants to be woken."""
        if self._wanted.is_set():
            self._wake()
