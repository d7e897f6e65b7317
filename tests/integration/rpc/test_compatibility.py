"""A client that was generated from the article's proto text, and from nothing else of ours, is served."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.rpc.calls import SPEECH, noise, recording
from tests.integration.rpc.conftest import Server, Starter

pytestmark = pytest.mark.timeout(180)

PUBLISHED = """
syntax = "proto3";
package voice_engine;
service VoiceEngine {
  rpc Recognize(RecognizeRequest) returns (RecognizeResponse);
}
message RecognizeRequest {
  bytes audio_data = 1;
  string audio_format = 2;
  string language = 3;
}
message RecognizeResponse {
  string text = 1;
  repeated WordInfo words = 2;
  float confidence = 3;
}
message WordInfo {
  string word = 1;
  float start_time = 2;
  float end_time = 3;
}
"""
CLIENT = """
import json, sys
import grpc
import article_pb2, article_pb2_grpc

address, sound, audio_format, language = sys.argv[1:]
with grpc.insecure_channel(address) as channel:
    stub = article_pb2_grpc.VoiceEngineStub(channel)
    answer = stub.Recognize(
        article_pb2.RecognizeRequest(
            audio_data=open(sound, "rb").read(), audio_format=audio_format, language=language
        ),
        timeout=60,
    )
print(json.dumps({
    "text": answer.text,
    "confidence": answer.confidence,
    "words": [[word.word, word.start_time, word.end_time] for word in answer.words],
}))
"""


@pytest.fixture(scope="module")
def article(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with stubs generated from the published text; another process must import them.

    The names of its messages are those of ours, which one process cannot hold twice.
    """
    folder = tmp_path_factory.mktemp("article")
    (folder / "article.proto").write_text(PUBLISHED)
    (folder / "client.py").write_text(CLIENT)
    words = ["-I.", "--python_out=.", "--grpc_python_out=.", "article.proto"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *words], cwd=folder, check=True, capture_output=True)
    return folder


def ask(article: Path, address: str, sound: bytes, audio_format: str) -> Any:
    """Return what the article's client gets."""
    (article / "sound").write_bytes(sound)
    done = subprocess.run(
        [sys.executable, "client.py", address, "sound", audio_format, "en-US"],
        cwd=article, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def real(tiny: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a server with tiny.en."""
    starter = Starter(tmp_path_factory.mktemp("real"))
    yield starter(engines=tiny)
    starter.end()


@pytest.mark.models
def test_a12_the_articles_own_client_recognises_a_recording(article: Path, real: Server) -> None:
    """Words come in the order of the text, their times rise and lie within the recording, and the text is right."""
    jfk = recording("jfk.flac")
    for data, audio_format in ((jfk.data, jfk.audio_format), ((SPEECH / "jfk.flac").read_bytes(), "flac")):
        found = ask(article, real.address, data, audio_format)
        plain = re.sub(r"[^a-z ]", "", found["text"].lower())
        assert "ask not what your country can do for you ask what you can do for your country" in plain
        assert " ".join(word for word, _, _ in found["words"]).split() == found["text"].split()
        times = [time for _, start, end in found["words"] for time in (start, end)]
        assert times == sorted(times)
        assert times[0] >= 0
        assert times[-1] <= jfk.duration_s
        assert 0.3 < found["confidence"] <= 1


@pytest.mark.models
@pytest.mark.parametrize(
    "name", ["arctic_aew_a0001.wav", "az_weather_mulaw.wav", "ae_p001.aiff", "lr_198-209-0000.ogg"]
)
def test_a14_words_of_real_recordings_keep_their_order(real: Server, name: str) -> None:
    """Times rise and stay within the recording, and the words are those of the text and of the segments, in order."""
    sound = recording(name)
    found = real.client().recognise(sound.data, sound.audio_format, language="en", timeout_s=120)
    assert found.duration == pytest.approx(sound.duration_s, abs=0.001)
    assert found.words
    times = [time for word in found.words for time in (word.start_time, word.end_time)]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] <= found.duration
    assert " ".join(word.word for word in found.words).split() == found.text.split()
    assert [word for segment in found.segments for word in segment.words] == list(found.words)
    assert all(segment.start_time <= segment.end_time <= found.duration for segment in found.segments)
    assert found.has_confidence
    assert 0 < found.confidence <= 1


def test_the_articles_client_names_rates_as_it_likes(article: Path, server: Server) -> None:
    """The rate in Hz, in kHz, and with a number of channels mean the same; nothing is heard in noise."""
    for audio_format in ("pcm_s16le_16k", "pcm_s16le_16000", "pcm_s16le_16k_1ch"):
        found = ask(article, server.address, noise(0.5), audio_format)
        assert found == {"text": "", "confidence": 0.0, "words": []}
