"""Commands whose engines are clients of servers elsewhere: another voicejobs, or an OpenAI-compatible server."""

import io
import json
import wave
from contextlib import ExitStack

import numpy as np
import pytest

from tests.acceptance.harness import Tree, example_speech, speech_files, write_recording
from tests.servers.http import JSON, HttpServer, Reply, Request
from tests.servers.voice_engine import VoiceEngine
from voicejobs.engines.wav import wav_of

KEY = "geheim-0123456789abcdef"


@pytest.mark.timeout(120)
def test_a_worker_leans_on_a_voice_engine_elsewhere(tree: Tree) -> None:
    """A folder transcribed with the engine remote has the words that the engine there gives to the same windows."""
    paths = speech_files(tree.folder / "in", 6)
    keys = tree.folder / "keys"
    keys.write_text(f"worker={KEY}\n")
    assert tree.transcribe(tree.folder / "in").code == 0
    local = {path.name: path.read_text() for path in tree.out.rglob("*.txt")}
    far = tree.folder / "far"
    with VoiceEngine(tree.folder / "server", "--engine", "fake", "--keys-file", str(keys), log_level="DEBUG") as server:
        tree.settings |= {"VOICEJOBS_REMOTE_URL": server.url, "VOICEJOBS_REMOTE_KEY": KEY}
        tree.settings |= {"VOICEJOBS_LOG_LEVEL": "DEBUG"}
        done = tree.run("transcribe", tree.folder / "in", "-o", far, "--engine", "remote", "--no-progress")
    assert done.code == 0, done.stderr
    assert {path.name: path.read_text() for path in far.rglob("*.txt")} == local
    assert len(local) == len(paths)
    spilled = [path for path in tree.folder.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert spilled == [keys], "the key is in no log, row or file"


@pytest.mark.timeout(120)
def test_a_voice_engine_that_refuses_or_goes_away_is_told_by_its_code(tree: Tree) -> None:
    """A wrong key is final and says so; a server that is gone is tried again, and then named."""
    recording = write_recording(tree.folder / "a.wav", example_speech()[:48_000])
    keys = tree.folder / "keys"
    keys.write_text(f"worker={KEY}\n")
    words = ("transcribe", recording, "-o", tree.out, "--engine", "remote", "--no-progress")
    with VoiceEngine(tree.folder / "server", "--engine", "fake", "--keys-file", str(keys)) as server:
        tree.settings |= {"VOICEJOBS_REMOTE_URL": server.url, "VOICEJOBS_REMOTE_KEY": KEY[::-1]}
        tree.settings |= {"VOICEJOBS_MAX_ATTEMPTS": "1"}
        done = tree.run(*words)
    assert done.code == 8, done.stderr
    assert "engine_refused" in done.stderr
    assert "VOICEJOBS_REMOTE_KEY" in done.stderr
    done = tree.run(*words)
    assert "engine_unavailable" in done.stderr


@pytest.mark.timeout(120)
def test_doctor_asks_the_servers_that_the_settings_name(tree: Tree) -> None:
    """Each is named with what it says of itself; one that refuses or is away fails, and no key is shown."""

    def respond(request: Request) -> Reply:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return Reply(401, b'{"error": {"message": "who are you?"}}')
        return Reply(200, json.dumps({"data": [{"id": "m-1"}, {"id": "m-2"}]}).encode())

    def finding() -> dict[str, str]:
        findings = json.loads(tree.run("doctor", "--json").stdout)["findings"]
        (found,) = (one for one in findings if one["check"] == "engine servers")
        return dict(found)

    assert finding()["detail"] == "none is set"
    with HttpServer(respond) as server, VoiceEngine(tree.folder / "server", "--engine", "fake") as far:
        tree.settings |= {"VOICEJOBS_OPENAI_URL": server.url, "VOICEJOBS_OPENAI_KEY": KEY}
        tree.settings |= {"VOICEJOBS_REMOTE_URL": far.url, "VOICEJOBS_COSYVOICE_MODEL": "CosyVoice2-0.5B"}
        tree.settings |= {"VOICEJOBS_COSYVOICE_URL": server.url}
        found = finding()
        assert found["status"] == "ok", found
        assert "openai: answers, models: m-1, m-2" in found["detail"]
        assert "cosyvoice: takes connections, sound at 24000 Hz" in found["detail"]
        assert "with fake" in found["detail"]
        tree.settings |= {"VOICEJOBS_OPENAI_KEY": KEY[::-1]}
        found = finding()
        assert found["status"] == "fail"
        assert "401: who are you? [engine_refused]" in found["detail"]
    found = finding()
    assert found["detail"].count("[engine_unavailable]") == 3, found
    assert KEY not in str(found) + str(tree.run("config", "show").stdout)


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


@pytest.mark.timeout(120)
def test_a_voice_engine_may_itself_lean_on_a_server(tree: Tree) -> None:
    """`serve engine` with the engine openai asks for the model of the settings, and workers lean on it in turn."""
    recording = write_recording(tree.folder / "a.wav", example_speech()[:48_000])
    words = ("transcribe", recording, "-o", tree.out, "--engine", "remote", "--no-progress", "--language", "en")
    with (
        HttpServer(heard) as server,
        VoiceEngine(tree.folder / "middle", "--engine", "openai", openai_url=server.url) as middle,
    ):
        tree.settings |= {"VOICEJOBS_REMOTE_URL": middle.url}
        done = tree.run(*words)
    assert done.code == 0, done.stderr
    assert (tree.out / "a.txt").read_text().strip() == "by whisper-1"


@pytest.mark.timeout(120)
def test_words_are_spoken_by_servers_and_their_voices_listed(tree: Tree) -> None:
    """`speak` and `voices list` take the engines that are clients, with the model and the voice of the settings."""

    def respond(request: Request) -> Reply:
        if request.method == "GET":
            return Reply(200, b'{"voices": ["alloy", "nova"]}')
        content = json.loads(request.body)
        assert (content["model"], content["voice"], content["input"]) == ("tts-1", "alloy", "Good morning.")
        return Reply(200, wav_of(example_speech()[:16_000], 16_000))

    with HttpServer(respond) as server:
        tree.settings |= {"VOICEJOBS_OPENAI_URL": server.url}
        done = tree.run("speak", "Good morning.", "-o", tree.folder / "out.wav", "--engine", "openai_voice")
        assert done.code == 0, done.stderr
        listed = tree.show("voices", "list", "--engine", "openai_voice")
    assert [row["name"] for row in listed] == ["alloy", "nova"]
    with wave.open(str(tree.folder / "out.wav")) as sound:
        assert sound.getframerate() == 16_000
        assert 8_000 < sound.getnframes() <= 16_000, "silence at the ends is taken off"


@pytest.mark.timeout(120)
def test_a_recording_lends_its_voice(tree: Tree) -> None:
    """`speak --prompt-audio` sends it with each sentence as 16 kHz mono, and a second run finds all done."""

    def respond(request: Request) -> Reply:
        assert request.path == "/inference_zero_shot"
        assert request.fields()["prompt_text"] == ["So I speak."]
        with wave.open(io.BytesIO(request.file("prompt_wav").content)) as prompt:
            assert (prompt.getframerate(), prompt.getnchannels(), prompt.getnframes()) == (16_000, 1, 48_000)
        return Reply(200, (np.sin(np.arange(24_000) / 20) * 9_000).astype("<i2").tobytes())

    voice = write_recording(tree.folder / "voice.wav", example_speech()[:48_000])
    words = ("speak", "Good morning.", "-o", tree.out / "a.wav", "--engine", "cosyvoice", "--no-progress")
    prompt = ("--prompt-audio", voice, "--prompt-text", "So I speak.")
    with HttpServer(respond) as server:
        tree.settings |= {"VOICEJOBS_COSYVOICE_URL": server.url, "VOICEJOBS_COSYVOICE_MODEL": "CosyVoice2-0.5B"}
        done = tree.run(*words, *prompt)
        assert done.code == 0, done.stderr
        assert len(server.requests) == 1
        again = tree.run(*words, *prompt)
        assert "1 done before" in again.stderr
        assert len(server.requests) == 1
    with wave.open(str(tree.out / "a.wav")) as sound:
        assert sound.getframerate() == 24_000
    assert tree.run(*words, "--prompt-audio", tree.folder / "none.wav").code == 7
