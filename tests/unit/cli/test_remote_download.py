"""Sound that a service has made: written whole or not at all, in flat memory, and not fetched where it is there."""

import tracemalloc
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.servers.http import HttpServer, Reply, Request
from voicejobs.cli.remote_download import Download, _fetch, _Outcome
from voicejobs.client.service import Service
from voicejobs.errors import OutputExists, ServerUnreachable
from voicejobs.settings import Settings

SOUND = bytes(range(256)) * 80_000


def job(digest: str = sha256(SOUND).hexdigest()) -> dict[str, Any]:
    """Return the record of a job that has spoken."""
    sound = {"id": "art_1", "kind": "sound", "format": "wav", "sha256": digest, "size_bytes": len(SOUND)}
    return {"id": "job_1", "status": "succeeded", "artifacts": [sound]}


def fetch(url: str, folder: Path, record: dict[str, Any], *, force: bool = False) -> _Outcome:
    """Fetch what a job has made."""
    outcome = _Outcome()
    with Service(Settings(folder, folder, server_url=url, server_wait_s=2.0)) as service:
        _fetch(service, record, folder / "out" / "talk", Download(["txt"], folder / "out", {}, force), outcome)
    return outcome


def test_sound_is_written_whole_in_flat_memory(tmp_path: Path) -> None:
    """A connection that breaks is made again, all of it is never in memory, and what is there is not fetched again."""
    left = [Reply(200, [SOUND[:1000]], broken=True), Reply(200, SOUND)]

    def respond(request: Request) -> Reply:
        return left.pop(0)

    with HttpServer(respond) as server:
        tracemalloc.start()
        try:
            outcome = fetch(server.url, tmp_path, job())
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert len(server.requests) == 2
        assert (outcome.files, outcome.same) == ([str(tmp_path / "out" / "talk.wav")], 0)
        assert (tmp_path / "out" / "talk.wav").read_bytes() == SOUND
        assert peak_bytes < len(SOUND)
        assert fetch(server.url, tmp_path, job()).same == 1
        assert len(server.requests) == 2
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["talk.wav"]


def test_sound_that_came_otherwise_leaves_nothing(tmp_path: Path) -> None:
    """Bytes that are not those of the record are thrown away, and what stood there stays."""
    path = tmp_path / "out" / "talk.wav"
    path.parent.mkdir()
    path.write_bytes(b"before")
    with HttpServer(lambda request: Reply(200, b"other")) as server:
        with pytest.raises(OutputExists):
            fetch(server.url, tmp_path, job())
        assert not server.requests
        with pytest.raises(ServerUnreachable):
            fetch(server.url, tmp_path, job(), force=True)
    assert path.read_bytes() == b"before"
    assert [one.name for one in path.parent.iterdir()] == ["talk.wav"]
