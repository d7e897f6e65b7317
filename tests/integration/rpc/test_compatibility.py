"""A client that was generated from the article's proto text, and from nothing else of ours, is served."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.rpc.calls import SPEECH, noise, recording
from tests.integration.rpc.conftest import FAKE, Starter

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

pytestmark = pytest.mark.timeout(180)

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


@pytest.mark.models
def test_a12_the_articles_own_client_recognises_a_recording(article: Path, serve: Starter, tiny: Sequence[str]) -> None:
    """Words come in the order of the text, their times rise and lie within the recording, and the text is right."""
    server = serve(engines=tiny)
    jfk = recording("jfk.flac")
    for data, audio_format in ((jfk.data, jfk.audio_format), ((SPEECH / "jfk.flac").read_bytes(), "flac")):
        found = ask(article, server.address, data, audio_format)
        plain = re.sub(r"[^a-z ]", "", found["text"].lower())
        assert "ask not what your country can do for you ask what you can do for your country" in plain
        assert " ".join(word for word, _, _ in found["words"]).split() == found["text"].split()
        times = [time for _, start, end in found["words"] for time in (start, end)]
        assert times == sorted(times)
        assert times[0] >= 0
        assert times[-1] <= jfk.duration_s
        assert 0.3 < found["confidence"] <= 1


@pytest.mark.parametrize("audio_format", ["pcm_s16le_16k", "pcm_s16le_16000", "pcm_s16le_16k_1ch"])
def test_the_articles_client_speaks_to_any_engine(article: Path, serve: Starter, audio_format: str) -> None:
    """The answer of the fake engine counts the samples that were sent, word for word."""
    server = serve("--batch-size", "1", engines=FAKE)
    found = ask(article, server.address, noise(0.5), audio_format)
    # The detector hears no speech in noise: nothing is made up.
    assert found == {"text": "", "confidence": 0.0, "words": []}
