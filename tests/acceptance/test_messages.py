"""An hour of sound: what crosses the broker is small, and every window is heard once, in order."""

import json
import threading
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import redis
from numpy.typing import NDArray

from tests.acceptance.conftest import MakeTree
from tests.acceptance.harness import RATE_HZ, Tree, example_speech, wait_for, write_recording
from voicejobs.embedded.supervisor import BROKER_SOCKET
from voicejobs.store.database import Database
from voicejobs.store.schema import step_runs

HOUR_S = 3600
MESSAGE_LIMIT_BYTES = 16 * 1024
PUSHES = {"LPUSH", "RPUSH"}


class Tap:
    """Collect what is said to the private broker of a stack, from its start to its end."""

    def __init__(self, tree: Tree) -> None:
        self.commands: list[str] = []
        self._path = tree.values().runtime_dir / BROKER_SOCKET
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        """Note every command until the server ends."""
        wait_for(self._path.exists, "the private broker")
        with redis.Redis(unix_socket_path=str(self._path), socket_timeout=None) as client:
            wait_for(lambda: _answers(client), "the private broker to answer")
            try:
                with client.monitor() as monitor:
                    self.commands.extend(entry["command"] for entry in monitor.listen())
            except (redis.RedisError, OSError):
                return

    def finish(self) -> list[str]:
        """Return the commands, the server being gone."""
        self._thread.join(20)
        return self.commands


def _answers(client: "redis.Redis") -> bool:
    """Tell whether the server is up."""
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


def _hour() -> NDArray[np.int16]:
    """Return an hour of speech in which no two minutes are alike, with pauses."""
    speech = example_speech()
    pauses = np.random.default_rng(5).integers(RATE_HZ // 5, 3 * RATE_HZ, HOUR_S)
    parts: list[NDArray[np.int16]] = []
    samples = 0
    for pause in pauses:
        parts += [speech, np.zeros(pause, np.int16)]
        samples += len(speech) + int(pause)
        if samples >= HOUR_S * RATE_HZ:
            break
    return np.concatenate(parts)[: HOUR_S * RATE_HZ]


def _windows(tree: Tree) -> list[tuple[int, int]]:
    """Return the windows that `prepare` has planned, in samples, in the order of the shards."""
    database = Database(tree.values().effective_database_url, pool_size=1)
    try:
        with database.read() as connection:
            found = connection.execute(
                step_runs.select().where(step_runs.c.node == "recognise").order_by(step_runs.c.shard)
            ).all()
    finally:
        database.close()
    return [(start, end) for row in found for start, end in json.loads(row.inputs)["windows"]]


@pytest.mark.services
@pytest.mark.timeout(170)
def test_an_hour_crosses_the_broker_in_small_messages_and_every_window_is_heard_once(
    make_tree: MakeTree, tmp_path: Path
) -> None:
    """No message passes 16 KB; the text has the checksum of each window of the recording, in order; one join."""
    sound = _hour()
    recording = write_recording(tmp_path / "hour.flac", sound)
    tree = make_tree()
    tap = Tap(tree)
    done = tree.transcribe(recording, "--word-timestamps", "-f", "json", timeout_s=150)
    assert done.code == 0, done.stderr
    wait_for(lambda: not tree.processes(), "the stack to end")
    messages = [command for command in tap.finish() if command.partition(" ")[0].upper() in PUSHES]

    windows = _windows(tree)
    assert len(windows) > HOUR_S / 60, "cut at its pauses"
    assert all(before[1] <= after[0] for before, after in pairwise(windows))
    assert all(end - start <= 30 * RATE_HZ for start, end in windows)
    expected = [f" n{end - start} c{crc32(sound[start:end].tobytes()):08x}" for start, end in windows]
    document = json.loads((tree.out / "hour.json").read_text())
    assert document["text"] == "".join(expected)
    words = [word for segment in document["segments"] for word in segment["words"]]
    assert "".join(word["word"] for word in words) == document["text"]
    assert all(before["start"] <= after["start"] for before, after in pairwise(words))

    (job,) = tree.show("job", "list")
    steps = tree.show("job", "show", job["id"])["steps"]
    shards = [step for step in steps if step["step"] == "recognise"]
    assert len(shards) > 4, "a long recording forks"
    assert [len(step["attempts"]) for step in steps] == [1] * (len(shards) + 2), "each ran once, the join too"
    assert len(messages) >= len(steps) - 1, "the tap was not late"
    largest = max(map(len, messages))
    print(f"{len(messages)} messages for {len(windows)} windows, largest {largest} bytes; {done.stderr}")  # noqa: T201
    assert largest < MESSAGE_LIMIT_BYTES
