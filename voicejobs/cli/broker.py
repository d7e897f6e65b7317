"""Ask whether the broker that the settings name answers."""

from voicejobs.errors import BrokerUnavailable

TIMEOUT_S = 3


def require_answer(url: str) -> None:
    """Do nothing where the broker at `url` takes a connection.

    Raises:
        BrokerUnavailable: it does not, or the address has a form that Celery does not know.
    """
    from kombu import Connection  # noqa: PLC0415 - only where there is a broker to ask
    from kombu.exceptions import OperationalError  # noqa: PLC0415

    try:
        with Connection(url, connect_timeout=TIMEOUT_S) as connection:
            connection.ensure_connection(max_retries=1, timeout=TIMEOUT_S)
    except (OperationalError, OSError, KeyError, ValueError) as error:
        raise BrokerUnavailable(f"The broker does not answer: {error}") from error
