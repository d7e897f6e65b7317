"""What workers tell those who wait for them: kept by the broker for as long as it is true, and for some seconds more.

A notice is a key of the broker that runs out by itself, so that a worker which dies leaves none behind, and a broker
which forgets everything hears it again.
"""

import shutil
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voicejobs.errors import BrokerUnavailable
from voicejobs.settings import Settings

if TYPE_CHECKING:
    from kombu import Connection

PREFIX = "voicejobs.notice."
DISK_LOW, MEMORY_LOW = "disk_low", "memory_low"
"""Why a worker begins no job."""
REPEAT_S = 5.0
"""How often a worker repeats what is still true."""
LIFE_S = 15
CONNECT_TIMEOUT_S = 3


def disk_low(settings: Settings) -> str:
    """Return why no job is begun on this machine while a disk of its is low; empty where there is room."""
    places = [settings.state_dir]
    if not settings.blobs_dir.is_relative_to(settings.state_dir):
        places.append(settings.blobs_dir)  # decoded audio lies there
    for place in places:
        folder = next((one for one in (place, *place.parents) if one.is_dir()), place)
        try:
            free = shutil.disk_usage(folder).free
        except OSError:  # whoever needs the folder says what is wrong with it
            continue
        if free < settings.disk_floor_bytes:
            return (
                f"{free / 1e9:.1f} GB are free in {place}, "
                f"below the floor of {settings.disk_floor_bytes / 1e9:.1f} GB (VOICEJOBS_DISK_FLOOR_BYTES)"
            )
    return ""


@dataclass(frozen=True, slots=True)
class Notice:
    """Say that something is so: a code, and a text for people."""

    code: str
    text: str


def tell(connection: "Connection", worker: str, notice: Notice | None) -> None:
    """Put up the notice of a worker, or take it down where there is none; a broker that is away hears it later."""
    with _quiet(connection):
        client = _client(connection)
        if notice:
            client.set(PREFIX + worker, f"{notice.code} {notice.text}", ex=LIFE_S)
        else:
            client.delete(PREFIX + worker)


def ping(broker_url: str) -> None:
    """Do nothing where the broker answers.

    Raises:
        BrokerUnavailable: it does not.
    """
    from kombu import Connection  # noqa: PLC0415 - only where there is a broker to ask

    answered = False
    with Connection(broker_url, connect_timeout=CONNECT_TIMEOUT_S) as connection, _quiet(connection):
        answered = bool(_client(connection).ping())
    if not answered:
        raise BrokerUnavailable("The broker does not answer")


def read(broker_url: str) -> dict[str, Notice]:
    """Return the notices by worker; none where the broker is away, which others say."""
    from kombu import Connection  # noqa: PLC0415 - only where there is a broker to ask

    found: dict[str, Notice] = {}
    with Connection(broker_url, connect_timeout=CONNECT_TIMEOUT_S) as connection, _quiet(connection):
        client = _client(connection)
        for key in client.scan_iter(match=f"{PREFIX}*", count=1000):
            text = client.get(key)
            if text is not None:  # it ran out in between
                code, _, told = _text(text).partition(" ")
                found[_text(key).removeprefix(PREFIX)] = Notice(code, told)
    return found


def _quiet(connection: "Connection") -> AbstractContextManager[None]:
    """Return a block that ends without a word where the broker is away."""
    from kombu.exceptions import OperationalError  # noqa: PLC0415 - as above

    return suppress(OSError, OperationalError, *connection.connection_errors, *connection.channel_errors)


def _client(connection: "Connection") -> Any:
    """Return a client of the Redis behind a connection; left to itself kombu would wait for ever for one."""
    connection.ensure_connection(max_retries=1, timeout=CONNECT_TIMEOUT_S)
    channel: Any = connection.default_channel
    return channel.client


def _text(value: bytes | str) -> str:
    """Return a value of the broker as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
