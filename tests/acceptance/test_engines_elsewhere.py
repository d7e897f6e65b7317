"""Commands whose engines are clients of servers elsewhere: another voicejobs, or an OpenAI-compatible server."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.acceptance.harness import COMMAND, Tree, example_speech, speech_files, wait_for, write_recording
from tests.servers.http import JSON, HttpServer, Reply, Request

Serve = Callable[..., tuple[str, "subprocess.Popen[bytes]"]]


@pytest.fixture
def serve_engine(tmp_path: Path) -> Iterator[Serve]:
    """Return a function that starts `voicejobs serve engine` and returns its address."""
    started: list[subprocess.Popen[bytes]] = []

    def serve(*words: str, **settings: str) -> tuple[str, "subprocess.Popen[bytes]"]:
        number = len(started)
        ready, log = tmp_path / f"ready-{number}", tmp_path / f"engine-{number}.log"
        ours = {f"VOICEJOBS_{name.upper()}": value for name, value in settings.items()}
        environment = {**os.environ, "VOICEJOBS_STATE_DIR": str(tmp_path / f"engine-{number}"), **ours}
        arguments = [
            COMMAND,
            "serve",
            "engine",
            "--address",
            "127.0.0.1:0",
            "--ready-file",
            ready,
            "--grace",
            "1",
            *words,
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(arguments, stdout=output, stderr=output, env=environment, start_new_session=True)
        started.append(process)
        wait_for(lambda: ready.exists() or process.poll() is not None, "the engine to start")
        assert process.poll() is None, log.read_text()
        return f"grpc://{ready.read_text().strip()}", process

    yield serve
    for process in started:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


@pytest.mark.timeout(120)
def test_a_worker_leans_on_a_voice_engine_elsewhere(tree: Tree, serve_engine: Serve) -> None:
    """A folder transcribed with the engine remote has the words that the engine there gives to the same windows."""
    paths = speech_files(tree.folder / "in", 6)
    keys = tree.folder / "keys"
    keys.write_text("worker=geheim-0123456789abcdef\n")
    url, _ = serve_engine("--engine", "fake", "--keys-file", str(keys), log_level="DEBUG")
    assert tree.transcribe(tree.folder / "in").code == 0
    local = {path.name: path.read_text() for path in tree.out.rglob("*.txt")}
    tree.settings |= {
        "VOICEJOBS_REMOTE_URL": url,
        "VOICEJOBS_REMOTE_KEY": "geheim-0123456789abcdef",
        "VOICEJOBS_LOG_LEVEL": "DEBUG",
    }
    far = tree.folder / "far"
    done = tree.run("transcribe", tree.folder / "in", "-o", far, "--engine", "remote", "--no-progress")
    assert done.code == 0, done.stderr
    assert {path.name: path.read_text() for path in far.rglob("*.txt")} == local
    assert len(local) == len(paths)
    spilled = [
        path for path in tree.folder.rglob("*") if path.is_file() and b"geheim-0123456789abcdef" in path.read_bytes()
    ]
    assert spilled == [keys], "the key is in no log, row or file"


@pytest.mark.timeout(120)
def test_a_voice_engine_that_refuses_or_goes_away_is_told_by_its_code(tree: Tree, serve_engine: Serve) -> None:
    """A wrong key is final and says so; a server that is gone is tried again, and then named."""
    recording = write_recording(tree.folder / "a.wav", example_speech()[:48_000])
    keys = tree.folder / "keys"
    keys.write_text("worker=geheim-0123456789abcdef\n")
    url, process = serve_engine("--engine", "fake", "--keys-file", str(keys))
    tree.settings |= {
        "VOICEJOBS_REMOTE_URL": url,
        "VOICEJOBS_REMOTE_KEY": "falsch-0123456789abcdef",
        "VOICEJOBS_MAX_ATTEMPTS": "1",
    }
    words = ("transcribe", recording, "-o", tree.out, "--engine", "remote", "--no-progress")
    done = tree.run(*words)
    assert done.code == 8, done.stderr
    assert "engine_refused" in done.stderr
    assert "VOICEJOBS_REMOTE_KEY" in done.stderr
    process.send_signal(signal.SIGTERM)
    process.wait(10)
    done = tree.run(*words)
    assert "engine_unavailable" in done.stderr


def heard(request: Request) -> Reply:
    """Answer with the name of the model, as a server without times does."""
    return Reply(200, json.dumps({"text": f"by {request.fields()['model'][0]}"}).encode(), {"Content-Type": JSON})


@pytest.mark.timeout(120)
def test_a_folder_is_transcribed_with_the_engine_openai(tree: Tree) -> None:
    """The command takes the model of the settings, or that of --model, to a server that needs no key."""
    speech_files(tree.folder / "in", 4)
    with ExitStack() as stack:
        server = stack.enter_context(HttpServer(heard))
        tree.settings |= {"VOICEJOBS_OPENAI_URL": server.url}
        words = ("transcribe", tree.folder / "in", "--engine", "openai", "--no-progress", "--language", "en")
        assert tree.run(*words, "-o", tree.folder / "first").code == 0
        assert tree.run(*words, "-o", tree.folder / "second", "--model", "paraformer").code == 0
    for name, model in (("first", "whisper-1"), ("second", "paraformer")):
        texts = {path.read_text().strip() for path in (tree.folder / name).rglob("*.txt")}
        assert texts == {f"by {model}"}
        assert len(list((tree.folder / name).rglob("*.txt"))) == 4
