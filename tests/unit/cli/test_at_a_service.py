"""Commands with `--server` where something is wrong: what they say, with which exit code, and what they leave alone."""

import json
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from tests.servers.http import HttpServer, Reply, Request
from voicejobs.cli import remote_submit
from voicejobs.cli.main import run
from voicejobs.cli.remote_follow import RemoteFollowing

ODD = os.fsdecode(b"odd\xff name\n.wav")


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Return what runs a command in a folder and a state of its own: exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"STATE_DIR": str(tmp_path / "state"), "SERVER_WAIT_S": "0.1", "SERVER_URL": ""}.items():
        monkeypatch.setenv(f"VOICEJOBS_{name}", value)

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(list(words))
        return (code, *capsys.readouterr())

    return call


class Batches:
    """Be the part of a service that takes files and batches, and has each job done at once."""

    def __init__(self, label: str = "label", error: str = "") -> None:
        self.items: list[str] = []
        self.label = label
        self.error = error

    def __call__(self, request: Request) -> Reply:
        """Answer a request."""
        path = request.path.partition("?")[0]
        if path == "/v1/files":
            return self._json({"id": f"file_{sha256(request.file('file').content).hexdigest()}"})
        if request.method == "POST" and path == "/api/v1/batches":
            self.items = [one["source"]["name"] for one in json.loads(request.body)["items"]]
            return self._json({"id": "batch_1"})
        if path.endswith("/events"):
            body = f"event: end\ndata: {json.dumps(self._batch())}\n\n"
            return Reply(200, body.encode(), {"Content-Type": "text/event-stream"})
        if path.endswith("/items"):
            return self._json({"data": [self._job(number) for number in range(len(self.items))], "has_more": False})
        if "transcript" in path:
            return Reply(200, b"text", {"Content-Type": "text/plain"})
        return self._json({"data": [self._batch()], "has_more": False})

    def _batch(self) -> dict[str, object]:
        """Return the record of the batch, all of whose jobs have ended."""
        counts = {"failed" if self.error else "completed": len(self.items), "total": len(self.items)}
        return {
            "id": "batch_1", "status": "completed", "label": self.label, "request_counts": counts,
            "created_at": "2026-12-01T00:00:00Z",
        }  # fmt: skip

    def _job(self, number: int) -> dict[str, object]:
        """Return the record of a job."""
        error = {"code": "damaged", "detail": self.error} if self.error else None
        name = {"name": self.items[number]}
        return {"id": f"job_{number}", "status": "failed" if error else "succeeded", "source": name, "error": error}

    @staticmethod
    def _json(body: object) -> Reply:
        return Reply(200, json.dumps(body).encode())


def test_a_page_instead_of_a_service_is_no_fault_of_ours(command: Callable[..., tuple[int, str, str]]) -> None:
    """Each command says that the address is wrong, with exit code 7, and cancels nothing in name."""
    Path("talk.wav").write_bytes(b"sound")
    with HttpServer(lambda request: Reply(200, b'{"hello": 1}')) as server:
        for words in (
            ("submit", "talk.wav", "--engine", "fake"), ("job", "list"), ("job", "show", "job_1"),
            ("job", "cancel", "job_1"), ("batch", "watch", "batch_1"), ("batch", "download", "batch_1", "-o", "out"),
        ):  # fmt: skip
            code, stdout, stderr = command(*words, "--server", server.url)
            assert (code, "[bad_option]" in stderr, "1 cancelled" in stdout) == (7, True, False), (words, stderr)
    assert not Path("out").exists()


def test_a_key_that_is_refused_ends_with_six(command: Callable[..., tuple[int, str, str]]) -> None:
    """So do commands that go through several jobs, at the first of them."""
    with HttpServer(lambda request: Reply(401, b"")) as server:
        assert command("job", "cancel", "job_1", "job_2", "--server", server.url)[0] == 6
        assert len(server.requests) == 1
    batches = Batches()
    batches.items = ["a.wav", "b.wav"]

    def respond(request: Request) -> Reply:
        return Reply(403, b"") if "transcript" in request.path else batches(request)

    with HttpServer(respond) as server:
        code, _, stderr = command("batch", "download", "batch_1", "--server", server.url, "-o", "out")
    assert (code, stderr.count("error:")) == (6, 1)


@pytest.mark.parametrize("identity", ["..", "../keys", "a\nb", ""])
def test_what_is_no_id_is_no_path(command: Callable[..., tuple[int, str, str]], identity: str) -> None:
    """Nothing is asked of the service by a word that would lead to another of its paths."""
    with HttpServer(Batches()) as server:
        for words in (
            ("job", "show"), ("job", "watch"), ("job", "cancel"), ("batch", "show"), ("batch", "watch"),
            ("batch", "cancel"), ("batch", "retry-failed"), ("batch", "download"),
        ):  # fmt: skip
            code, _, stderr = command(*words, "--server", server.url, "--", identity)
            assert (code, "[no_such_record]" in stderr) == (7, True), (words, stderr)
        assert server.requests == []


def test_files_have_their_names_byte_for_byte(command: Callable[..., tuple[int, str, str]]) -> None:
    """A name that a service knows by its spelling alone is the name of the output all the same."""
    Path("in").mkdir()
    (Path("in") / ODD).write_bytes(b"sound")
    with HttpServer(Batches()) as server:
        code, _, stderr = command("submit", "in", "--engine", "fake", "--server", server.url, "--wait", "-o", "out")
    assert code == 0, stderr
    assert [one.name for one in Path("out").iterdir()] == [ODD.removesuffix("wav") + "txt"]
    assert "\n.wav" not in stderr


def test_what_changes_under_the_upload_costs_the_others_nothing(
    command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is another one, or away, when its turn comes is told of; the batch has the rest (code 3)."""
    for name in ("a.wav", "b.wav", "c.wav"):
        Path(name).write_bytes(name.encode())
    hashed = remote_submit._hashed

    def late(found: object) -> object:
        files = hashed(found)  # type: ignore[arg-type]
        Path("a.wav").write_bytes(b"another")
        Path("c.wav").unlink()
        return files

    monkeypatch.setattr(remote_submit, "_hashed", late)
    batches = Batches()
    with HttpServer(batches) as server:
        words = ("submit", "a.wav", "b.wav", "c.wav", "--engine", "fake", "--server", server.url)
        code, stdout, stderr = command(*words)
    assert (code, stdout.strip(), batches.items) == (3, "batch_1", ["b.wav"])
    assert "[input_changed]" in stderr
    assert "[not_found]" in stderr
    assert "1 file submitted, 2 left out" in stderr


def test_an_output_folder_is_one_before_anything_is_sent(command: Callable[..., tuple[int, str, str]]) -> None:
    """A file in its place is refused, and so is `-`, as input too; an `-o` in vain is not passed over in silence."""
    Path("talk.wav").write_bytes(b"sound")
    Path("file").touch()
    with HttpServer(Batches()) as server:
        submit = ("submit", "talk.wav", "--engine", "fake", "--server", server.url)
        assert command(*submit, "--wait", "-o", "file")[0] == 7
        assert command(*submit, "--wait", "-o", "-")[0] == 2
        for name in ("submit", "transcribe"):
            code, _, stderr = command(name, "-", "--engine", "fake", "--server", server.url)
            assert (code, "Standard input" in stderr) == (2, True)
        assert server.requests == []
        code, _, stderr = command(*submit, "-o", "out")
        assert (code, "-o counts with --wait" in stderr) == (0, True)
        code, _, stderr = command("batch", "download", "batch_1", "--server", server.url, "-o", "file")
        assert (code, stderr.count("error:")) == (7, 1)
    for words in (("batch", "export", "batch_1"), ("watch", "."), ("submit", "--manifest", "list")):
        assert command(*words, "-o", "-")[0] == 2
    assert not Path("-").exists()


def test_ctrl_c_while_it_waits_writes_nothing(
    command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is left to the service, and the exit code is that of Ctrl-C also where an output folder is named."""

    def interrupted(self: RemoteFollowing, path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RemoteFollowing, "_follow", interrupted)
    Path("talk.wav").write_bytes(b"sound")
    with HttpServer(Batches()) as server:
        words = ("submit", "talk.wav", "--engine", "fake", "--server", server.url, "--wait", "-o", "out")
        code, _, stderr = command(*words)
    assert (code, "Left as it is" in stderr, list(Path("out").iterdir())) == (130, True, [])


def test_ctrl_c_while_it_uploads_says_how_it_goes_on(
    command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No batch is there yet, and people are told that what was sent is not lost."""

    def interrupted(*words: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(remote_submit, "bring", interrupted)
    Path("talk.wav").write_bytes(b"sound")
    with HttpServer(Batches()) as server:
        code, _, stderr = command("submit", "talk.wav", "--engine", "fake", "--server", server.url)
    assert (code, "not sent again" in stderr) == (130, True)


@pytest.mark.parametrize(
    "words",
    [
        ("api", "--address", "127.0.0.1:65536"),
        ("api", "--ready-file", "away/ready"),
        ("api", "--ready-file", "."),
        ("worker", "--ready-file", "away/ready"),
        ("engine", "--engine", "fake", "--ready-file", "away/ready"),
        ("flower", "--ready-file", "away/ready"),
        ("api", "--tls-cert", "away.pem", "--tls-key", "away.pem"),
        ("engine", "--engine", "fake", "--tls-cert", ".", "--tls-key", "."),
    ],
)
def test_what_a_server_cannot_write_or_read_is_found_before_it_serves(
    command: Callable[..., tuple[int, str, str]], words: tuple[str, ...]
) -> None:
    """A port that is none, and files of which nothing can come, are wrong use, and no traceback of a server."""
    code, _, stderr = command("serve", *words)
    assert (code, "[bad_usage]" in stderr) == (2, True), stderr


def test_what_a_service_says_moves_no_cursor(command: Callable[..., tuple[int, str, str]]) -> None:
    """Controls in labels and errors are spelled out, so that a table keeps its lines and a terminal its title."""
    Path("talk.wav").write_bytes(b"sound")
    with HttpServer(Batches("first\nsecond \x1b[2J", "broken\x1b[2J")) as server:
        _, stdout, _ = command("batch", "list", "--server", server.url)
        assert (len(stdout.splitlines()), "\x1b" in stdout) == (2, False)
        _, _, stderr = command("submit", "talk.wav", "--engine", "fake", "--server", server.url, "--wait")
        assert "broken\\x1b[2J" in stderr


@pytest.mark.parametrize("word", ["nan", "inf"])
def test_what_is_no_number_is_in_no_range(command: Callable[..., tuple[int, str, str]], word: str) -> None:
    """`nan` compares with nothing, and would pass every limit; it is refused as wrong use."""
    for words in (("watch", ".", "-o", "out", "--poll"), ("serve", "api", "--grace"), ("transcribe", ".", "--timeout")):
        assert command(*words, word)[0] == 2
