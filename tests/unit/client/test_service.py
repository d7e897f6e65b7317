"""The client of a service: what it tries again, what it makes of answers, and parts that are sent once."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers.http import HttpServer, Reply, Request
from voicejobs.cli.main import exit_code
from voicejobs.cli.remote_submit import NamedUpload, _Sending
from voicejobs.client import uploads
from voicejobs.client.service import LONGEST_PAUSE_S, Service, _retry_after_s, parse_events
from voicejobs.client.uploads import Notes, Upload, bring
from voicejobs.errors import (
    AccessDenied,
    BadOption,
    InputChanged,
    NoSuchRecord,
    NotFound,
    OutputUnwritable,
    QueueFull,
    ServerUnreachable,
    VoicejobsError,
    WrongState,
)
from voicejobs.settings import Settings

KEY = "vj_live_secret"


def service(url: str, tmp_path: Path, wait_s: float = 5.0) -> Service:
    """Return a client with a key."""
    settings = Settings(tmp_path, tmp_path, server_url=url, server_key=KEY, server_wait_s=wait_s)
    return Service(settings)


def in_turn(*replies: Reply) -> Callable[[Request], Reply]:
    """Return what gives one answer after the other, the last one for ever."""
    left = list(replies)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


def problem(status: int, code: str, **headers: str) -> Reply:
    """Return an error as the service writes it."""
    body = {"detail": "What is wrong", "code": code, "hint": "What to do", "error": {"message": "x", "code": code}}
    return Reply(status, json.dumps(body).encode(), {"Content-Type": "application/problem+json", **headers})


def test_what_may_pass_is_tried_again(tmp_path: Path) -> None:
    """Answers that say so, and a connection that breaks, are followed by another try; the key goes with each."""
    replies = in_turn(
        problem(503, "queue_full", **{"Retry-After": "0"}), problem(429, "rate_limited", **{"Retry-After": "0"}),
        Reply(200, [b"{"], broken=True), Reply(200, b'{"a": 1}'),
    )  # fmt: skip
    with HttpServer(replies) as server, service(server.url, tmp_path) as client:
        assert client.get("/x") == {"a": 1}
    assert len(server.requests) == 4
    assert {one.headers["authorization"] for one in server.requests} == {f"Bearer {KEY}"}
    assert len({one.headers["traceparent"].split("-")[1] for one in server.requests}) == 1


@pytest.mark.parametrize(
    ("reply", "kind", "code"),
    [
        (problem(404, "no_such_record"), NoSuchRecord, 7),
        (problem(409, "wrong_state", **{"x-should-retry": "false"}), WrongState, 7),
        (problem(401, "key_needed"), AccessDenied, 6),
        (problem(403, "scope_missing"), AccessDenied, 6),
        (problem(400, "not_one_of_ours"), BadOption, 7),
        (problem(503, "queue_full", **{"x-should-retry": "false"}), QueueFull, 5),
        (Reply(401, b"<html>"), AccessDenied, 6),
        (Reply(404, b"[]"), BadOption, 7),
        (Reply(302, b"", {"Location": "http://127.0.0.1:9/"}), BadOption, 7),
    ],
)
def test_an_error_is_ours_again(reply: Reply, kind: type[VoicejobsError], code: int, tmp_path: Path) -> None:
    """By its code, or else by its status, at the first answer; without the key, and with the exit code of the class."""
    with (
        HttpServer(lambda request: reply) as server,
        service(server.url, tmp_path) as client,
        pytest.raises(kind) as caught,
    ):
        client.get("/x")
    assert len(server.requests) == 1
    assert exit_code(caught.value) == code
    assert KEY not in f"{caught.value.message} {caught.value.hint} {caught.value.details}"


def test_a_service_that_stays_away_is_given_up(tmp_path: Path) -> None:
    """After the time that the settings give, as trouble that may pass."""
    with service("http://127.0.0.1:9", tmp_path, wait_s=0.5) as client, pytest.raises(ServerUnreachable) as caught:
        client.get("/x")
    assert exit_code(caught.value) == 5
    with (
        HttpServer(lambda request: Reply(502, b"")) as server,
        service(server.url, tmp_path, 0.5) as client,
        pytest.raises(ServerUnreachable),
    ):
        client.get("/x")
    assert len(server.requests) > 1


@pytest.mark.parametrize("url", ["", "voice.example.org", "ftp://voice.example.org"])
def test_an_address_must_be_one(url: str, tmp_path: Path) -> None:
    """None, or one that is no address of HTTP, is refused before anything is sent."""
    with pytest.raises(BadOption):
        service(url, tmp_path)


def test_events_are_read_as_they_are_written() -> None:
    """Several lines of data are one text, comments and unknown fields nothing, and the last id stays."""
    lines = [
        ": hello", "retry: 2000", "", "event: job.succeeded", "id: evt_1", "data: {", "data: }", "",
        ": keep-alive", "", "event: progress", "data:x", "", "data: cut off",
    ]  # fmt: skip
    events = [(one.id, one.type, one.data) for one in parse_events(iter(lines))]
    assert events == [("evt_1", "job.succeeded", "{\n}"), ("evt_1", "progress", "x")]


class Uploads:
    """Be the part of a service that takes uploads; it forgets nothing but what a test takes away."""

    def __init__(self) -> None:
        self.parts: list[dict[str, str]] = []
        self.status = "pending"
        self.completed: list[str] = []
        self.cancelled = 0
        self.file: dict[str, str] | None = None
        self.fail_after = 10**9

    def __call__(self, request: Request) -> Reply:
        """Answer a request."""
        path = request.path
        if request.method == "POST" and path.endswith("/parts"):
            if len(self.parts) >= self.fail_after:
                return problem(404, "no_such_record")
            digest = sha256(request.file("data").content).hexdigest()
            assert request.fields()["sha256"] == [digest]
            self.parts.append({"id": f"part_{len(self.parts)}", "sha256": digest})
            return self._json(self.parts[-1])
        if path.endswith("/complete"):
            self.completed = json.loads(request.body)["part_ids"]
            return self._json({"file": {"id": "file_1"}})
        if path.endswith("/cancel"):
            self.cancelled += 1
        if path.startswith("/v1/files"):
            return self._json({"id": "file_1"})
        return self._json(
            {"id": "upload_1", "status": self.status, "bytes": 40, "parts": self.parts, "file": self.file}
        )

    @staticmethod
    def _json(body: Any) -> Reply:
        return Reply(200, json.dumps(body).encode())


@pytest.fixture
def upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upload:
    """Return a file of four parts of ten bytes, two of which are alike."""
    monkeypatch.setattr(uploads, "PART_BYTES", 10)
    path = tmp_path / "talk.wav"
    path.write_bytes(b"a" * 10 + b"b" * 10 + b"a" * 10 + b"c" * 10)
    return Upload(str(path), "calls/talk.wav", sha256(path.read_bytes()).hexdigest(), 40)


def test_parts_that_are_there_are_not_sent_again(tmp_path: Path, upload: Upload) -> None:
    """What was interrupted goes on with the parts that miss, parts of the same content are told apart, and a file that
    is there is not sent at all.
    """
    there = Uploads()
    there.fail_after = 3
    with HttpServer(there) as server, service(server.url, tmp_path) as client:
        notes = Notes(tmp_path / "notes", client.url)
        with pytest.raises(NoSuchRecord):
            bring(client, notes, upload)
        there.fail_after = 10**9
        counted: list[int] = []
        assert bring(client, notes, upload, counted.append) == "file_1"
        assert sum(counted) == 40
        digests = {part["id"]: part["sha256"] for part in there.parts}
        whole = Path(upload.path).read_bytes()
        assert [digests[one] for one in there.completed] == [
            sha256(whole[first : first + 10]).hexdigest() for first in range(0, 40, 10)
        ]
        assert len(set(there.completed)) == len(there.parts) == 4
        before = len(server.requests)
        assert bring(client, notes, upload) == "file_1"
        assert [one.path for one in server.requests[before:]] == ["/v1/files/file_1"]


def test_an_upload_whose_time_ends_under_us_begins_anew(tmp_path: Path, upload: Upload) -> None:
    """A part that is refused since the upload is over makes another upload, and all bytes count once."""
    there = Uploads()
    over = iter([False, True])

    def respond(request: Request) -> Reply:
        if request.path.endswith("/parts") and next(over, False):
            there.parts.clear()
            return problem(409, "wrong_state", **{"x-should-retry": "false"})
        return there(request)

    counted: list[int] = []
    with HttpServer(respond) as server, service(server.url, tmp_path) as client:
        assert bring(client, Notes(tmp_path / "notes", client.url), upload, counted.append) == "file_1"
    assert [one.path for one in server.requests].count("/v1/uploads") == 2
    assert (sum(counted), len(there.completed)) == (40, 4)


@pytest.mark.parametrize("status", ["expired", "cancelled", "completed"])
def test_an_upload_that_is_over_begins_anew(tmp_path: Path, upload: Upload, status: str) -> None:
    """A note of an upload that cannot be gone on with counts for nothing."""
    there = Uploads()
    there.status = status
    with HttpServer(there) as server, service(server.url, tmp_path) as client:
        notes = Notes(tmp_path / "notes", client.url)
        notes.write(upload.sha256, upload="upload_0")
        assert bring(client, notes, upload) == "file_1"
    assert "/v1/uploads" in [one.path for one in server.requests]


def test_a_file_that_was_completed_unheard_is_not_sent_again(tmp_path: Path, upload: Upload) -> None:
    """Ended between the completion and the note of it, the next command finds the file by its upload."""
    there = Uploads()
    there.status, there.file = "completed", {"id": "file_7"}
    counted: list[int] = []
    with HttpServer(there) as server, service(server.url, tmp_path) as client:
        notes = Notes(tmp_path / "notes", client.url)
        notes.write(upload.sha256, upload="upload_1")
        assert bring(client, notes, upload, counted.append) == "file_7"
        assert notes.read(upload.sha256)["file"] == "file_7"
    assert {one.method for one in server.requests} == {"GET"}
    assert sum(counted) == 40


@pytest.mark.parametrize("content", [b"d" * 40, b"d" * 4000, b"a" * 10, b"a" * 10 + b"b" * 10 + b"a" * 10 + b"c" * 11])
def test_a_file_that_changed_is_not_completed(tmp_path: Path, upload: Upload, content: bytes) -> None:
    """What was hashed is what the service gets, or nothing: no more is sent than it was, and the parts are given up."""
    there = Uploads()
    Path(upload.path).write_bytes(content)
    with HttpServer(there) as server, service(server.url, tmp_path) as client:
        notes = Notes(tmp_path / "notes", client.url)
        with pytest.raises(InputChanged):
            bring(client, notes, upload)
        assert notes.read(upload.sha256) == {}
    assert not there.completed
    assert (len(there.parts) <= 4, there.cancelled) == (True, 1)


def test_a_note_that_a_kill_has_cut_off_counts_for_nothing(tmp_path: Path) -> None:
    """Half a line of JSON is no note, and neither is anything else."""
    notes = Notes(tmp_path / "notes", "http://x")
    notes.write("ab", file="file_1")
    (path,) = (tmp_path / "notes").iterdir()
    assert notes.read("ab")["file"] == "file_1"
    for content in (b'{"file": "fi', b"[]", b"\xff"):
        path.write_bytes(content)
        assert notes.read("ab") == {}


def test_a_note_that_cannot_be_written_is_no_fault_of_the_file(tmp_path: Path) -> None:
    """A state folder that takes nothing is named, by an error that is ours."""
    (tmp_path / "notes").write_text("no folder")
    with pytest.raises(OutputUnwritable, match="notes"):
        Notes(tmp_path / "notes", "http://x").write("ab", file="file_1")


def test_a_file_that_has_gone_is_told_of_by_its_name(tmp_path: Path, upload: Upload) -> None:
    """Between the hash and the upload a file may go: the error is that of an input, for a small and a large one."""
    Path(upload.path).unlink()
    with HttpServer(Uploads()) as server, service(server.url, tmp_path) as client:
        for one in (upload, replace(upload, size=10)):
            with pytest.raises(NotFound, match=re.escape("calls/talk.wav")):
                bring(client, Notes(tmp_path / "notes", client.url), one)


def test_files_that_change_under_a_submission_are_left_out(tmp_path: Path, upload: Upload) -> None:
    """What goes or changes after it was hashed is told of, and costs the others nothing."""
    other, gone = tmp_path / "other.wav", tmp_path / "gone.wav"
    other.write_bytes(b"changed")
    kept = NamedUpload(upload.path, upload.name, upload.sha256, upload.size, "talk.wav")
    found = [kept, NamedUpload(str(other), "other.wav", "00", 3), NamedUpload(str(gone), "gone.wav", "11", 3)]
    with HttpServer(Uploads()) as server, service(server.url, tmp_path) as client:
        sending = _Sending(client, Notes(tmp_path / "notes", client.url), quiet=True)
        assert sending.all(found) == ([kept], {upload.sha256: "file_1"})


@pytest.mark.parametrize("told", ["nan", "inf", "-5", "soon", "1e999"])
def test_an_odd_time_to_wait_is_one_that_can_be_waited(told: str) -> None:
    """Whatever Retry-After says, the wait is a number of seconds within bounds."""
    answer = httpx.Response(503, headers={"retry-after": told})
    assert 0.0 <= _retry_after_s(answer, 0.25) <= LONGEST_PAUSE_S
