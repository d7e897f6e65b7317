"""How a command follows what a service does."""

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.servers.http import HttpServer, Reply, Request
from voicejobs.cli import remote_follow
from voicejobs.cli.remote_follow import RemoteFollowing
from voicejobs.client.service import Service
from voicejobs.settings import Settings


def test_streams_that_end_at_once_are_not_asked_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: "pytest.CaptureFixture[str]"
) -> None:
    """Where something between ends each stream, the record is asked for now and then, with a pause each time."""
    pauses: list[float] = []
    monkeypatch.setattr(remote_follow, "time", SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic))

    def respond(request: Request) -> Reply:
        if request.path.endswith("/events"):
            return Reply(200, b"", {"Content-Type": "text/event-stream"})
        status = "succeeded" if len(pauses) >= 3 else "running"
        return Reply(200, json.dumps({"id": "job_1", "status": status, "source": {"name": "a.wav"}}).encode())

    with (
        HttpServer(respond) as server,
        Service(Settings(tmp_path, tmp_path, server_url=server.url)) as service,
    ):
        assert RemoteFollowing(service).jobs(["job_1"]) == 0
    assert pauses == [remote_follow.POLL_S / 4] * 3
    assert len(server.requests) == 6
    assert "a.wav" in capsys.readouterr().err
