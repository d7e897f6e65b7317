"""Take messages from the broker, and drop those that are none: no message may end a worker.

Celery refuses what is not JSON and what it has no task for. What goes wrong in other ways while it looks at a message
would end its consumer, with the message put back for the next worker, and the next.
"""

import logging
from collections.abc import Callable
from queue import Empty
from typing import Any

from celery.worker.consumer import Consumer

logger = logging.getLogger(__name__)

_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What looking at bytes of any kind may raise; trouble with the connection is none of these."""


class UnwaveringChannel:
    """Drop what lies in a queue and is not in the form of a message; mixed into the channel of a transport."""

    def _brpop_read(self, **options: Any) -> Any:
        """Read what the broker has sent; where it makes no sense, go on as if there had been nothing."""
        try:
            return super()._brpop_read(**options)  # type: ignore[misc]
        except _UNREADABLE:
            logger.exception("what lay in a queue is no message: it is dropped")
            raise Empty from None


class UnwaveringConsumer(Consumer):  # type: ignore[misc,unused-ignore]
    """Be Celery's consumer, and go on after any message."""

    connection_errors: tuple[type[BaseException], ...]
    """Set by Celery: what says that the broker is away."""

    def connection_for_read(self, heartbeat: Any = None) -> Any:
        """Return the connection that messages come from."""
        connection: Any = self.app.connection_for_read(heartbeat=heartbeat)
        kind = connection.get_transport_cls()
        name, tell = kind.driver_type, connection.info
        connection.transport_cls = unwavering(kind)
        # What it tells of itself goes out as JSON, for `celery inspect stats` and Flower: there the class has a name.
        connection.info = lambda: {**tell(), "transport": name}
        return self.ensure_connected(connection)

    def create_task_handler(self, *arguments: Any, **named: Any) -> Callable[[Any], Any]:
        """Return what takes one message."""
        take = super().create_task_handler(*arguments, **named)

        def take_or_drop(message: Any) -> Any:
            try:
                return take(message)
            except _UNREADABLE:
                logger.exception("a message cannot be understood: it is dropped")
                message.reject_log_error(logger, self.connection_errors)
                return None

        return take_or_drop


def unwavering(transport: type[Any]) -> type[Any]:
    """Return the class of a transport, its channel replaced by one that drops what is no message."""
    if issubclass(transport.Channel, UnwaveringChannel):
        return transport
    channel = type("Channel", (UnwaveringChannel, transport.Channel), {})
    return type("Transport", (transport,), {"Channel": channel})
