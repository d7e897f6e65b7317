"""Tell webhooks what has ended: events become deliveries, deliveries are sent until they arrive or are given up.

One thread looks, a few send. Any number of processes may do so on one database: the row of the cursor lets one spread
events at a time, and a lease lets one send a delivery at a time. Whose turn it is, `store.turns` says.
"""

import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Connection

from voicejobs import logs
from voicejobs.errors import VoicejobsError
from voicejobs.receivers import Receivers, body_of
from voicejobs.store import turns
from voicejobs.store import webhooks as rows
from voicejobs.store.turns import Caps, Turns
from voicejobs.store.webhooks import Due

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5
SENDERS = 16
PER_WEBHOOK = 2
"""Messages that one receiver gets at once, of all processes together: a slow one takes no more senders than these."""
KEPT_S = 30 * 86_400.0
"""Age at which a delivery that has ended leaves the log."""
TIDY_EVERY_S = 3600.0
FAULT_PAUSE_S = 5.0


class Notifier:
    """Spread events and send deliveries until it is closed.

    Args:
        receivers: the webhooks.
        look_every_s: time between two looks at the database.
    """

    def __init__(self, receivers: Receivers, *, look_every_s: float = LOOK_EVERY_S) -> None:
        self._receivers = receivers
        self._database = receivers.database
        self._look_every_s = look_every_s
        self._closing = threading.Event()
        self._freed = threading.Event()
        self._lock = threading.Lock()
        self._sending = 0
        self._turns = Turns()
        self._caps = Caps(receivers.settings.webhook_tenant_messages, PER_WEBHOOK)
        self._tidied_at = time.monotonic()
        self._pool = ThreadPoolExecutor(SENDERS, "voicejobs-webhook")
        self._thread = threading.Thread(target=self._run, name="voicejobs-notify", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the threads; a message on its way has the time that receivers have, and what is owed is owed still."""
        self._closing.set()
        self._freed.set()
        if self._thread.is_alive():
            self._thread.join(self._receivers.lease_s)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self) -> None:
        """Look at the database again and again."""
        while not self._closing.is_set():
            try:
                more = self.look()
                pause_s = 0.0 if more else self._look_every_s
            except VoicejobsError as error:
                logger.warning("cannot look after webhooks", extra={"error": error.message, "code": error.code})
                pause_s = FAULT_PAUSE_S
            except Exception:
                logger.exception("unforeseen error while looking after webhooks")
                pause_s = FAULT_PAUSE_S
            if pause_s:
                self._freed.wait(pause_s)
            self._freed.clear()

    def look(self) -> bool:
        """Spread what has ended and send what is due; tell whether there is more to do at once."""
        spread = 0
        with self._database.read() as connection:
            is_behind = rows.is_behind(connection)
        if is_behind:
            spread = self._database.run(lambda connection: rows.spread(connection, body_of))
        self._tidy()
        return self._send_due() > 0 or spread > 0

    def _send_due(self) -> int:
        """Hand deliveries that are due to free senders; return how many.

        Raises:
            SecretUnusable: there are some, and nothing to sign them with; they wait without an attempt that counts.
        """
        with self._lock:
            free = SENDERS - self._sending
        if free <= 0:
            return 0
        with self._database.read() as connection:
            if not turns.find_due(connection, most=free, caps=self._caps, turns=self._turns):
                return 0
        self._receivers.require_secret()
        found = self._database.run(lambda connection: self._take(connection, free), durable=False)
        for due in found:
            self._turns.note(due.tenant, due.webhook_id)
            with self._lock:
                self._sending += 1
            self._pool.submit(self._deliver, due)
        return len(found)

    def _take(self, connection: Connection, most: int) -> list[Due]:
        """Take leases on the deliveries whose turn it is."""
        return turns.take_next(
            connection, most=most, caps=self._caps, turns=self._turns, lease_s=self._receivers.lease_s
        )

    def _deliver(self, due: Due) -> None:
        """Send one delivery and write down what became of it; without that its lease runs out, and it is sent again."""
        try:
            with logs.bind(webhook_id=due.webhook_id, event_id=due.event_id, **_trace_of(due)):
                outcome = self._receivers.attempt(due)
                kept = self._database.run(lambda connection: rows.record(connection, due, outcome))
                logger.info(
                    "webhook told" if outcome.state == rows.DELIVERED else "webhook not told",
                    extra={
                        "type": due.type,
                        "attempt": due.attempt,
                        "status": outcome.status_code,
                        "error": outcome.error,
                        "kept": kept,
                    },
                )
        except VoicejobsError as error:
            logger.warning("cannot note a delivery", extra={"error": error.message, "event_id": due.event_id})
        except Exception:
            logger.exception("unforeseen error while telling a webhook")
        finally:
            with self._lock:
                self._sending -= 1
            self._freed.set()

    def _tidy(self) -> None:
        """Remove deliveries that ended long ago, now and then."""
        if time.monotonic() - self._tidied_at < TIDY_EVERY_S:
            return
        self._tidied_at = time.monotonic()
        self._database.run(lambda connection: rows.forget(connection, older_than_s=KEPT_S))


def _trace_of(due: Due) -> dict[str, str]:
    """Return the trace id of the job that a message tells of, for logs."""
    data = json.loads(due.body)["data"]
    return {"trace_id": data["trace_id"]} if "trace_id" in data else {}
