"""A server from its start to its end: readiness, health, reflection, logs, signals."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.integration.rpc.calls import NO_VAD, noise, recognize
from tests.integration.rpc.conftest import Server, Starter, eventually
from voicejobs.errors import BadAudioFormat, EngineUnavailable
from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.proto.voice_engine_pb2_grpc import VoiceEngineStub

pytestmark = pytest.mark.timeout(180)


def lines(server: Server) -> list[dict[str, Any]]:
    """Return the log, whose every line is JSON."""
    return [json.loads(line) for line in server.log.read_text().splitlines()]


def test_health_and_reflection(server: Server) -> None:
    """A probe hears that the server and the service serve, and a tool that knows nothing lists its methods."""
    with grpc.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "voice_engine.VoiceEngine"):
            found = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
            assert found.status == health_pb2.HealthCheckResponse.SERVING
        database = ProtoReflectionDescriptorDatabase(channel)
        assert "voice_engine.VoiceEngine" in database.get_services()
        described = database.FindFileContainingSymbol("voice_engine.VoiceEngine")
        assert described.service[0].method[0].name == "Recognize"


def test_info_tells_what_there_is(server: Server) -> None:
    """Engines, formats, limits and load are there before the first request."""
    info = server.client().info()
    assert (info.recogniser.engine, info.synthesiser.engine) == ("fake", "fake_voice")
    assert info.recogniser.max_batch == 8
    assert info.load.slots == 16
    assert "wav" in info.audio_formats
    assert "opus" in info.speech_formats


def test_b21_one_trace_id_leads_through_the_log(server: Server) -> None:
    """The id that a client sends stands in the line of its call, is sent back, and a wild one is replaced."""
    client = server.client()
    client.recognise(noise(), "pcm_s16le_16k", options=NO_VAD, trace_id="trace-of-this-test")
    with pytest.raises(BadAudioFormat):
        client.recognise(noise(), "nonsense", trace_id="trace-of-a-failure")
    with grpc.insecure_channel(server.address) as channel:
        stub = VoiceEngineStub(channel)
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        for sent, wanted in (
            ((("traceparent", parent),), "0af7651916cd43dd8448eb211c80319c"),
            ((("x-trace-id", "wild id; with signs"),), None),
        ):
            _, call = stub.Recognize.with_call(recognize(), metadata=sent)
            given = dict(call.trailing_metadata())["x-trace-id"]
            assert given == wanted if wanted else given.isalnum()
    assert eventually(lambda: "trace-of-a-failure" in server.log.read_text())
    told = {line["trace_id"]: line for line in lines(server) if "trace_id" in line}
    assert told["trace-of-this-test"]["code"] == "ok"
    assert told["trace-of-this-test"]["method"] == "Recognize"
    assert told["trace-of-a-failure"]["code"] == "bad_audio_format"


def test_sigterm_lets_running_calls_end(serve: Starter, tmp_path: Path) -> None:
    """After SIGTERM a call that runs is answered, new ones are refused, nothing is left of server and engines."""
    ready = tmp_path / "ready"
    server = serve("--ready-file", str(ready), settings={"VOICEJOBS_FAKE_COST_BASE_S": "1.0"})
    assert ready.read_text() == f"{server.address}\n"
    family = server.tree()
    assert len(family) > 1
    answers: list[str] = []
    client = server.client()
    client.info()
    call = threading.Thread(
        target=lambda: answers.append(client.recognise(noise(), "pcm_s16le_16k", options=NO_VAD).text)
    )
    call.start()
    assert server.settled(lambda load: load.working == 1)
    server.process.send_signal(signal.SIGTERM)
    assert eventually(lambda: not ready.exists())
    try:
        server.client().info(timeout_s=1)
        refused = False
    except EngineUnavailable:
        refused = True
    assert refused
    call.join()
    assert answers[0].startswith("n16000 ")
    assert server.process.wait(10) == 0
    assert eventually(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family))


def test_sigterm_does_not_wait_for_streams_for_ever(serve: Starter) -> None:
    """A stream that nobody ends is cut off once the grace is over."""
    server = serve("--grace", "0.5")
    release = threading.Event()

    def held() -> Iterator[pb.StreamingRecognizeRequest]:
        yield pb.StreamingRecognizeRequest(config=pb.StreamingConfig(audio_format="pcm_s16le_16k"))
        release.wait(20)

    with grpc.insecure_channel(server.address) as channel:
        call = VoiceEngineStub(channel).StreamingRecognize(held())
        assert server.settled(lambda load: load.streams == 1)
        since = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - since < 8
        release.set()
        assert call.code() is not grpc.StatusCode.OK


def test_a_server_killed_leaves_no_engine(serve: Starter) -> None:
    """Engine processes and decoder end with a server that was killed."""
    server = serve()
    children = server.tree()[1:]
    server.process.kill()
    server.process.wait()
    assert eventually(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in children))


def test_a_server_that_cannot_serve_says_why(serve: Starter) -> None:
    """An unknown engine, one of another kind, a model that is not there: the start fails with a code and a hint."""
    for engines, code in (
        (("--engine", "nonsense"), "unknown_engine"),
        (("--engine", "fake_voice", "--model", ""), "bad_option"),
        (("--engine", "none"), "bad_option"),
        (("--engine", "whisper", "--model", "nonsense"), "unknown_model"),
    ):
        process, log = serve.launch(engines=engines)
        assert process.wait(30) in {5, 7}
        assert f"[{code}]" in log.read_text()
        assert process.stdout is not None
        process.stdout.close()
