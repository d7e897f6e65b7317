"""Notices of workers: when the disk counts as low, and what is read where."""

from pathlib import Path
from typing import Any

from tests.servers.valkey import Valkey
from voicejobs import notices
from voicejobs.notices import DISK_LOW, MEMORY_LOW, Notice
from voicejobs.settings import Settings

FULL, FULLER = Notice(DISK_LOW, "full, as it were"), Notice(MEMORY_LOW, "fuller")


def test_the_disk_is_low_below_its_floor(tmp_path: Path) -> None:
    """The text names folder and floor; a state folder that is not there yet is looked for further up."""
    state = tmp_path / "not" / "yet"
    assert notices.disk_low(Settings(state, tmp_path)) == ""
    told = notices.disk_low(Settings(state, tmp_path, disk_floor_bytes=10**18))
    assert str(state) in told
    assert "1000000000.0 GB" in told


def test_a_broker_that_is_away_tells_nothing(tmp_path: Path) -> None:
    """Whoever waits is not disturbed: others say that the broker is away."""
    assert notices.read(f"redis+socket://{tmp_path}/nowhere.sock?virtual_host=0") == {}


def test_a_notice_runs_out_and_can_be_taken_down(valkey: Valkey, broker_url: str) -> None:
    """Each worker has one; it is gone when it is taken down, and some seconds after its worker has died."""
    from kombu import Connection

    with Connection(broker_url) as connection:
        notices.tell(connection, "here/cpu", FULL)
        notices.tell(connection, "there/cuda0", FULLER)
        assert notices.read(broker_url) == {"here/cpu": FULL, "there/cuda0": FULLER}
        channel: Any = connection.default_channel
        assert 0 < channel.client.ttl(f"{notices.PREFIX}here/cpu") <= notices.LIFE_S
        notices.tell(connection, "here/cpu", None)
    assert notices.read(broker_url) == {"there/cuda0": FULLER}
