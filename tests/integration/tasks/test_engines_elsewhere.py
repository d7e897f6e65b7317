"""Real workers whose engines are clients of servers elsewhere."""

import base64
import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest

from tests.bench import Bench, family
from tests.rows import job
from tests.servers.cosyvoice import CosyVoiceGrpcServer
from tests.servers.http import JSON, HttpServer, Reply, Request
from tests.servers.process import free_port
from tests.servers.voice_engine import VoiceEngine
from tests.speaking import expected, speak, target, text_file
from tests.speaking import heard as heard_in
from tests.waiting import wait_until
from voicejobs import queries
from voicejobs.engines.base import EngineSpec, SynthesiseOptions
from voicejobs.engines.fake_voice import FakeVoiceEngine
from voicejobs.engines.wav import wav_of

KEY = "sk-very-secret-0123456789"
Serve = Callable[[Callable[[Request], Reply]], HttpServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts an HTTP server, which ends with the test."""
    with ExitStack() as stack:
        yield lambda respond: stack.enter_context(HttpServer(respond))


def heard(request: Request) -> Reply:
    """Answer with the length of what was sent, as OpenAI does with a text."""
    samples = (len(request.file("file").content) - 44) // 2
    text = f" there were {samples} samples"
    segment = {"id": 0, "start": 0.0, "end": samples / 16_000, "text": text, "avg_logprob": -0.1, "no_speech_prob": 0.0}
    answer = {"language": "english", "text": text, "segments": [segment]}
    return Reply(200, json.dumps(answer).encode(), {"Content-Type": JSON})


def refused(status: int, message: str, **headers: str) -> Reply:
    """Answer with an error."""
    return Reply(status, json.dumps({"error": {"message": message}}).encode(), {"Content-Type": JSON, **headers})


def test_a_folder_is_transcribed_by_an_openai_compatible_server(bench: Bench, serve: Serve) -> None:
    """Each recording of a folder becomes a request with the key of the settings, and its text the server's."""
    server = serve(heard)
    bench.start_worker(openai_url=f"{server.url}/v1", openai_key=KEY, openai_model="m-7", engine_processes=2)
    paths = [bench.recording(f"{number}.wav", 2.0 + number / 10) for number in range(6)]
    ids = bench.submit(*paths, engine="openai")
    assert set(bench.wait_ended(*ids).values()) == {"succeeded"}
    for number, job_id in enumerate(ids):
        (samples,) = map(int, re.findall(r"there were (\d+) samples", bench.text(job_id)))
        assert abs(samples - 32_000 - number * 1600) <= 1600 * 2
        assert queries.show_job(bench.database, job_id)["result"]["language"] == "en"
    assert all(request.headers["authorization"] == f"Bearer {KEY}" for request in server.requests)
    assert all(request.fields()["model"] == ["m-7"] for request in server.requests)


def test_the_key_lies_nowhere_but_in_the_memory_of_who_needs_it(bench: Bench, serve: Serve) -> None:
    """No row, log, message, file, argument or environment of an engine process holds the key, whatever goes wrong."""
    answers = iter([refused(500, f"I got {KEY}"), refused(401, f"Incorrect API key provided: {KEY}")])
    server = serve(lambda request: next(answers, None) or heard(request))
    worker = bench.start_worker(openai_url=server.url, openai_key=KEY, log_level="DEBUG")
    ids = bench.submit(bench.recording("a.wav"), bench.recording("b.wav"), engine="openai")
    states = bench.wait_ended(*ids)
    assert sorted(states.values()) == ["failed", "succeeded"]
    (failed,) = (one for one, state in states.items() if state == "failed")
    assert job(bench.database, failed).error_code == "engine_refused"
    assert "***" in queries.show_job(bench.database, failed)["error"]["message"]
    engines = [one for one in family(worker.pid) if "voicejobs.hosting.child" in one.cmdline()]
    assert engines
    for engine in engines:
        assert KEY not in " ".join([*engine.cmdline(), *engine.environ().values()])
    files = [path for path in _files(bench.folder) if KEY.encode() in path.read_bytes()]
    assert not files
    assert KEY not in json.dumps([queries.show_job(bench.database, one) for one in ids], default=str)


def _files(folder: Path) -> list[Path]:
    """Return every file below a folder: logs, database, blobs, outputs."""
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_busy_server_delays_a_job_for_as_long_as_it_asks(bench: Bench, serve: Serve) -> None:
    """A 429 whose pause is longer than one call may take ends the attempt; the next one comes after the pause."""
    times: list[float] = []

    def respond(request: Request) -> Reply:
        times.append(time.monotonic())
        return refused(429, "slow down", **{"Retry-After": "6"}) if len(times) == 1 else heard(request)

    server = serve(respond)
    bench.start_worker(openai_url=server.url, openai_timeout_s=4)
    (job_id,) = bench.submit(bench.recording("a.wav"), engine="openai")
    assert bench.wait_ended(job_id) == {job_id: "succeeded"}
    assert bench.stories(job_id)["recognise"] == ["retried", "succeeded"]
    assert "engine_busy" in bench.log
    assert times[1] - times[0] >= 6.0


def test_a_setting_that_is_missing_fails_the_job_with_its_name(bench: Bench) -> None:
    """A worker without an address says which variable it lacks, once and for all."""
    bench.start_worker()
    ids = bench.submit(bench.recording("a.wav"), bench.recording("b.wav"), engine="openai")
    assert set(bench.wait_ended(*ids).values()) == {"failed"}
    error = queries.show_job(bench.database, ids[0])["error"]
    assert error["code"] == "bad_option"
    assert "VOICEJOBS_OPENAI_URL is not set" in error["message"]


# ---- speech

TEXT = "Good morning. This is a text of three sentences! Does it end here?\n\nNo, it goes on in a second paragraph."


def spoken(text: str) -> bytes:
    """Return what the fake voice says of a text, as 16-bit samples."""
    (sound,) = FakeVoiceEngine.load(EngineSpec("fake_voice")).synthesise([text], SynthesiseOptions())
    return (sound.samples * 32767).astype("<i2").tobytes()


def odd_pieces(data: bytes) -> Iterator[bytes]:
    """Cut bytes without regard to samples."""
    return (data[at : at + 1001] for at in range(0, len(data), 1001))


def test_a_text_is_spoken_by_cosyvoices_grpc_server(bench: Bench) -> None:
    """Every piece is heard in order, although pieces of the answer split samples and the server once breaks off."""
    once: list[bytes] = []

    def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        pieces = odd_pieces(spoken(server.read(request).sft_request.tts_text))  # type: ignore[attr-defined]
        if not once:
            once.append(request)
            yield next(pieces)
            context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
        yield from pieces

    with CosyVoiceGrpcServer(answer) as server:
        bench.start_worker(
            cosyvoice_url=server.url, cosyvoice_model="iic/CosyVoice-300M-SFT", cosyvoice_voices="anna,otto"
        )
        (one,) = speak(bench, text_file(bench, "a.txt", TEXT), synthesise={"engine": "cosyvoice"})
        assert bench.wait_ended(one.job_id) == {one.job_id: "succeeded"}
        assert heard_in(target(bench, "a.txt").with_suffix(".wav")) == expected(TEXT)
        assert bench.stories(one.job_id)["synthesise"] == ["retried", "succeeded"]
        assert "engine_unavailable" in bench.log
        requests = [server.read(request) for request in server.requests]
        assert {request.sft_request.spk_id for request in requests} == {"anna"}  # type: ignore[attr-defined]


def test_a_text_is_spoken_by_cosyvoices_http_server(bench: Bench, serve: Serve) -> None:
    """A recording of a voice goes along with each sentence, in the form that the server reads."""
    prompt = base64.b64encode(np.arange(16_000, dtype="<i2").tobytes()).decode()

    def respond(request: Request) -> Reply:
        assert request.path == "/inference_instruct2"
        assert request.fields()["instruct_text"] == ["Calm."]
        return Reply(200, list(odd_pieces(spoken(request.fields()["tts_text"][0]))))

    server = serve(respond)
    bench.start_worker(cosyvoice_url=server.url, cosyvoice_model="CosyVoice2-0.5B", cosyvoice_rate_hz=22_050)
    options = {"engine": "cosyvoice", "instruct": "Calm.", "prompt_audio": prompt}
    (one,) = speak(bench, text_file(bench, "a.txt", TEXT), synthesise=options)
    assert bench.wait_ended(one.job_id) == {one.job_id: "succeeded"}
    assert heard_in(target(bench, "a.txt").with_suffix(".wav")) == expected(TEXT)


def test_a_text_is_spoken_by_an_openai_compatible_server(bench: Bench, serve: Serve) -> None:
    """Every piece is heard in order, at the rate that the header of each WAV file tells."""

    def respond(request: Request) -> Reply:
        content = json.loads(request.body)
        assert (content["model"], content["voice"]) == ("tts-9", "nova")
        data = np.frombuffer(spoken(content["input"]), "<i2")
        return Reply(200, wav_of(data, 22_050))

    server = serve(respond)
    bench.start_worker(openai_url=server.url, openai_key=KEY, openai_speech_model="tts-9", openai_voice="nova")
    (one,) = speak(bench, text_file(bench, "a.txt", TEXT), synthesise={"engine": "openai_voice"})
    assert bench.wait_ended(one.job_id) == {one.job_id: "succeeded"}
    assert heard_in(target(bench, "a.txt").with_suffix(".wav")) == expected(TEXT)
    assert not [path for path in _files(bench.folder) if KEY.encode() in path.read_bytes()]


def test_a_text_is_spoken_by_a_voice_engine_elsewhere(bench: Bench) -> None:
    """Every piece is heard in order, sample by sample as the engine there made it."""
    with VoiceEngine(bench.folder / "far", "--engine", "none", "--voice-engine", "fake_voice") as server:
        bench.start_worker(remote_url=server.url)
        near, far = (text_file(bench, name, TEXT) for name in ("near.txt", "far.txt"))
        accepted = [
            *speak(bench, near),
            *speak(bench, far, synthesise={"engine": "remote_voice", "voice": "low"}),
        ]
        states = bench.wait_ended(*(one.job_id for one in accepted))
    assert set(states.values()) == {"succeeded"}
    assert heard_in(target(bench, "far.txt").with_suffix(".wav")) == expected(TEXT)
    near_bytes, far_bytes = (target(bench, name).with_suffix(".wav").read_bytes() for name in ("near.txt", "far.txt"))
    assert near_bytes == far_bytes


@pytest.mark.timeout(120)
def test_a_voice_engine_that_is_killed_and_comes_back_loses_no_job(bench: Bench) -> None:
    """Windows in flight fail as unavailable and come again; every job has the text that it has without all this."""
    port = free_port()
    words = ("--engine", "fake")
    paths = [bench.recording(f"{number}.wav", 2.0 + number / 10) for number in range(8)]
    far = VoiceEngine(bench.folder / "far", *words, port=port, fake_cost_window_s=0.4, engine_processes=1)
    with far:
        bench.start_worker(remote_url=far.url, engine_processes=2)
        ids = bench.submit(*paths, engine="remote")
        wait_until(lambda: _ended(bench, ids) >= 2, 30.0, what=lambda: bench.log[-3000:])
        far.stop(signal.SIGKILL)
        time.sleep(1.0)
        far.start()
        assert set(bench.wait_ended(*ids, timeout_s=60.0).values()) == {"succeeded"}
    near = bench.submit(*paths, out="near", force=True)
    bench.wait_ended(*near)
    assert [bench.text(one) for one in ids] == [bench.text(one) for one in near]


def _ended(bench: Bench, ids: list[str]) -> int:
    """Return how many jobs have succeeded."""
    return sum(job(bench.database, one).state == "succeeded" for one in ids)
