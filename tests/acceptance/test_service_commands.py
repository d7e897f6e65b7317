"""`submit PATH... --server`, and `batch` and `job` at a service: uploads that go on, one batch, the mirrored tree."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.acceptance.harness import Argument, Outcome, Tree, example_speech, files_below, wait_for, write_recording
from tests.servers.api import ApiServer
from tests.servers.proxy import Proxy
from voicejobs.cli.main import run

pytestmark = [pytest.mark.services, pytest.mark.timeout(120)]

PART_BYTES = 8 << 20


@pytest.fixture(scope="module")
def server(private_server: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Return a service that has the workers of this machine do the work."""
    with ApiServer(tmp_path_factory.mktemp("service"), "") as server:
        yield server


@dataclass(slots=True)
class Client(Tree):
    """Run commands in this process: starting an interpreter for each takes longer than most of them."""

    capture: "pytest.CaptureFixture[str] | None" = None

    def run(self, *arguments: Argument, timeout_s: float = 100.0, cwd: Path | None = None) -> Outcome:
        """Run a command to its end; `timeout_s` and `cwd` are those of the test."""
        assert self.capture is not None
        self.capture.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            code = run(list(map(str, arguments)))
        stdout, stderr = self.capture.readouterr()
        return Outcome(code, stdout, stderr)


@pytest.fixture
def client(
    tmp_path: Path, models_dir: Path, server: ApiServer, capsys: "pytest.CaptureFixture[str]"
) -> Iterator[Client]:
    """Return a user's folder whose settings name the service, and a file that holds a key of a tenant of its own."""
    (tmp_path / "client").mkdir()
    settings = {"VOICEJOBS_MODELS_DIR": str(models_dir), "VOICEJOBS_SERVER_URL": server.url}
    tree = Client(tmp_path / "client", settings, capture=capsys)
    key = tree.folder / "key"
    key.write_text(server.key(f"t{os.urandom(4).hex()}") + "\n")
    tree.settings["VOICEJOBS_SERVER_KEY_FILE"] = str(key)
    yield tree
    tree.close()


def recording(path: Path, part: int, seconds: float = 3.0) -> Path:
    """Write speech; each `part` has another content."""
    samples = np.resize(example_speech(), int(seconds * 16_000))
    samples[0] = 2000 + part
    return write_recording(path, samples.astype(np.int16))


def submit(tree: Tree, *words: Any) -> Outcome:
    """Submit with the engine fake."""
    return tree.run("submit", *words, "--engine", "fake")


def port_of(server: ApiServer) -> int:
    """Return the port of a service."""
    return int(server.url.rpartition(":")[2])


def test_a_folder_is_submitted_followed_and_downloaded(client: Tree) -> None:
    """Files of a tree with two of one stem and one of no sound: exit code 3, and the tree of the texts."""
    folder = client.folder / "in"
    recording(folder / "a" / "talk.wav", 1)
    recording(folder / "a" / "talk.flac", 2)
    recording(folder / "ü b.wav", 3)
    (folder / "bad.wav").write_bytes(b"no sound at all" * 100)
    done = submit(client, folder, "--wait", "-o", client.out, "-f", "txt,srt", "--json")
    assert done.code == 3, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    ended = {one["name"]: one["state"] for one in events if one.get("type") == "file"}
    assert ended == {"a/talk.wav": "succeeded", "a/talk.flac": "succeeded", "ü b.wav": "succeeded", "bad.wav": "failed"}
    assert [(one["succeeded"], one["failed"]) for one in events if one.get("type") == "summary"] == [(3, 1)]
    names = {"a/talk.wav", "a/talk.flac", "ü b"}
    assert set(files_below(client.out)) == {f"{name}.{ending}" for name in names for ending in ("txt", "srt")}
    (batch,) = client.show("batch", "list")
    assert (batch["status"], batch["request_counts"]["completed"], batch["request_counts"]["failed"]) == (
        "completed",
        3,
        1,
    )


def test_transcribe_works_at_a_service(client: Client) -> None:
    """The text is here in the end, under the names that it has without a service; what makes no sense is told."""
    recording(client.folder / "in" / "b" / "talk.wav", 71)
    words = (
        "transcribe",
        client.folder / "in",
        "--server",
        client.settings["VOICEJOBS_SERVER_URL"],
        "--engine",
        "fake",
    )
    assert client.run(*words, "-o", client.out, "-f", "srt").code == 0
    assert set(files_below(client.out)) == {"b/talk.srt"}
    for refused in (("--dry-run",), ("-o", "-"), ("--archive", client.folder / "archive")):
        assert client.run(*words, *refused).code == 2


def test_the_same_commands_as_embedded(client: Tree) -> None:
    """List, show, watch, cancel and retry of batches and jobs answer at a service, and refuse what they must."""
    recording(client.folder / "one.wav", 11)
    submitted = submit(client, client.folder / "one.wav", "--label", "first")
    assert submitted.code == 0, submitted.stderr
    batch_id = submitted.stdout.strip()
    assert client.run("batch", "watch", batch_id).code == 0
    shown = client.run("batch", "show", batch_id)
    assert "1 succeeded" in shown.stdout
    assert "first" in client.run("batch", "list").stdout
    (job,) = client.show("job", "list", "--batch", batch_id)
    assert "one.wav" in client.run("job", "show", job["id"]).stdout
    assert client.run("job", "watch", job["id"]).code == 0
    refused = client.run("job", "cancel", job["id"])
    assert (refused.code, "[wrong_state]" in refused.stderr) == (7, True)
    assert client.run("job", "retry", job["id"]).code == 7
    gone = client.run("batch", "show", "batch_0000")
    assert (gone.code, "[no_such_record]" in gone.stderr) == (7, True)
    first = client.run("batch", "download", batch_id, "-o", client.out, "-f", "txt")
    assert (first.code, set(files_below(client.out))) == (0, {"one.txt"})
    (client.out / "one.txt").write_text("mine")
    kept = client.run("batch", "download", batch_id, "-o", client.out)
    assert (kept.code, (client.out / "one.txt").read_text()) == (8, "mine")
    assert client.run("batch", "download", batch_id, "-o", client.out, "--force").code == 0
    assert (client.out / "one.txt").read_text() != "mine"


def test_spoken_sound_is_downloaded(client: Client, server: ApiServer) -> None:
    """What a batch has spoken at the service comes with its captions, in the formats that were asked for."""
    key = Path(client.settings["VOICEJOBS_SERVER_KEY_FILE"]).read_text().strip()
    items = [{"source": {"text": f"Good {time}.", "name": f"{time}.txt"}} for time in ("morning", "night")]
    defaults = {"task": "speak", "engine": "fake_voice", "output_formats": ["flac"]}
    with server.client(key) as http:
        made = http.post("/api/v1/batches", json={"items": items, "defaults": defaults}).raise_for_status().json()
    assert client.run("batch", "watch", made["id"]).code == 0
    assert client.run("batch", "download", made["id"], "-o", client.out, "-f", "vtt").code == 0
    found = files_below(client.out)
    assert {"morning.flac", "night.flac"} <= set(found) <= {"morning.flac", "night.flac", "morning.vtt", "night.vtt"}


def test_b3_to_wait_for_a_job_takes_three_requests(client: Client, server: ApiServer) -> None:
    """Events tell of the end: a job that is watched costs one request or two, one of a batch three at most."""
    path = recording(client.folder / "a.wav", 61, seconds=20.0)
    with Proxy(port_of(server)) as proxy:
        client.settings["VOICEJOBS_SERVER_URL"] = proxy.url
        batch_id = submit(client, path).stdout.strip()
        before = proxy.requests
        assert client.run("batch", "watch", batch_id).code == 0
        of_the_batch = proxy.requests - before
        (job,) = client.show("job", "list", "--batch", batch_id)
        before = proxy.requests
        assert client.run("job", "watch", job["id"]).code == 0
        # One, where the service has a stream for it at once; else it is asked for the job itself.
        assert 1 <= proxy.requests - before <= 2
        assert 1 <= of_the_batch <= 3


def test_submitted_again_it_is_the_same_batch(client: Tree, server: ApiServer) -> None:
    """The same files with the same options are one batch, and not a byte of them is sent twice; --force is another."""
    paths = [recording(client.folder / f"{part}.wav", 20 + part) for part in range(3)]
    with Proxy(port_of(server)) as proxy:
        client.settings["VOICEJOBS_SERVER_URL"] = proxy.url
        first = submit(client, *paths)
        assert first.code == 0, first.stderr
        before = proxy.sent_bytes
        again = submit(client, *paths)
        assert (again.code, again.stdout) == (0, first.stdout)
        assert proxy.sent_bytes - before < 10_000
        assert submit(client, *paths, "--force").stdout != first.stdout
        assert submit(client, *paths, "--beam-size", "2").stdout != first.stdout


def test_an_upload_goes_on_after_the_client_and_the_server_were_killed(
    client: Client, tmp_path: Path, broker_url: str
) -> None:
    """`kill -9` of the command in mid-upload, then of the server: parts that the server has are not sent again."""
    path = recording(client.folder / "long.wav", 31, seconds=640.0)
    size = path.stat().st_size
    assert 2 * PART_BYTES < size < 3 * PART_BYTES
    with ApiServer(tmp_path / "own", broker_url) as own, Proxy(port_of(own), rate=24e6) as proxy:
        client.settings |= {"VOICEJOBS_SERVER_URL": proxy.url}
        client.settings["VOICEJOBS_SERVER_KEY"] = own.key()
        del client.settings["VOICEJOBS_SERVER_KEY_FILE"]
        first = client.start("submit", path, "--engine", "fake")
        wait_for(lambda: proxy.sent_bytes > 1.2 * PART_BYTES, "the second part")
        first.kill()
        first.communicate()
        before = proxy.sent_bytes
        second = client.start("submit", path, "--engine", "fake")
        wait_for(lambda: proxy.sent_bytes - before > 0.5 * PART_BYTES, "more of it")
        own.stop(signal.SIGKILL)
        own.start()
        stdout, stderr = second.communicate(timeout=60)
        assert second.returncode == 0, stderr.decode()
        # One part was cut off by each of the kills; nothing else was sent twice.
        assert proxy.sent_bytes < size + 2 * PART_BYTES + 200_000
        (job,) = client.show("job", "list", "--batch", stdout.decode().strip())
        assert job["source"]["size_bytes"] == size


def test_what_cannot_work_is_told_by_the_exit_code(client: Tree, server: ApiServer) -> None:
    """No server: 5 within seconds; a wrong key: 6; a refused option: 7; nothing there: 4; wrong use: 2."""
    path = recording(client.folder / "a.wav", 41)
    away = client.run("batch", "list", "--server", "http://127.0.0.1:9")
    assert (away.code, "[server_unreachable]" in away.stderr) == (5, True)
    key = Path(client.settings["VOICEJOBS_SERVER_KEY_FILE"])
    secret = key.read_text().strip()
    refused = client.run("submit", path, "--engine", "nothing")
    assert (refused.code, "[unknown_engine]" in refused.stderr) == (7, True)
    key.write_text(server.key("reader", "jobs:read"))
    assert client.run("batch", "list").code == 0
    assert client.run("submit", path).code == 6
    key.write_text(secret[:-1])
    denied = client.run("batch", "list", "-v")
    assert denied.code == 6
    assert secret[:-1] not in denied.stderr
    (client.folder / "empty").mkdir()
    assert client.run("submit", client.folder / "empty").code == 4
    assert client.run("submit").code == 2
    assert client.run("submit", path, "--server", "none").code == 2
    assert client.run("submit", "--manifest", path, "--server", server.url).code == 2


def test_a_folder_is_watched_for_a_service(client: Client) -> None:
    """Each content is taken once, also after a kill between its submission and its end, and the outputs are here."""
    folder = client.folder / "in"
    out = folder / "text"
    words = ("watch", folder, "-o", out, "--server", client.settings["VOICEJOBS_SERVER_URL"], "--engine", "fake")
    recording(folder / "a.wav", 51)
    recording(folder / "b" / "a.wav", 52)
    process = client.start(*words, "--settle", "0.2", "--poll", "0.1", "--json", stderr=subprocess.DEVNULL)
    wait_for(lambda: client.show("job", "list"), "the first job")
    process.kill()
    process.communicate()
    recording(folder / "copy.wav", 51)
    recording(folder / "a.flac", 53)
    once: list[Argument] = [*words, "--once", "--settle", "0.2", "--json"]
    events = [json.loads(line) for line in client.run(*once).stdout.splitlines()]
    states = {one["name"]: one["state"] for one in events if one["type"] == "file"}
    assert sorted(states.values()) == ["done", "succeeded", "succeeded", "succeeded"]
    assert len(files_below(out)) == 3
    assert {one["status"] for one in client.show("job", "list")} == {"succeeded"}
    assert len(client.show("job", "list")) == 3
    again = [json.loads(line) for line in client.run(*once).stdout.splitlines()]
    assert {one["state"] for one in again if one["type"] == "file"} == {"done"}
    assert len(client.show("job", "list")) == 3


def test_watching_goes_on_after_the_server_was_killed(client: Client, tmp_path: Path) -> None:
    """`kill -9` of the service between two events: the watcher waits for it, and tells of each job once."""
    with ApiServer(tmp_path / "own", "", fake_cost_base_s=1.0, engine_processes=1) as own:
        client.settings |= {"VOICEJOBS_SERVER_URL": own.url, "VOICEJOBS_SERVER_KEY": own.key()}
        del client.settings["VOICEJOBS_SERVER_KEY_FILE"]
        batch_id = submit(client, *(recording(client.folder / f"{part}.wav", 80 + part) for part in range(3)))
        watching = client.start("batch", "watch", batch_id.stdout.strip(), "--json")
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        own.stop(signal.SIGKILL)
        own.start()
        stdout, stderr = watching.communicate(timeout=60)
    assert watching.returncode == 0, stderr.decode()
    events = [first, *map(json.loads, stdout.splitlines())]
    assert sorted(one["name"] for one in events if one["type"] == "file") == ["0.wav", "1.wav", "2.wav"]
    assert events[-1]["succeeded"] == 3
