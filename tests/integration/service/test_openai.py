"""The `openai` package, as it is, against a live service: every call, with sound and text that come back right."""

import asyncio
import base64
import io
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import soundfile as sf
from sqlalchemy import select
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect

from tests.integration.service.stack import HARBOR, Stack, serving
from tests.servers.api import ApiServer
from tests.servers.valkey import Valkey
from tests.waiting import wait_until
from voicejobs.api.live import MOST_STRANGERS
from voicejobs.engines.fake_voice import describe, hear
from voicejobs.store.schema import batches, jobs

Client = Any
"""`openai.OpenAI`; its types do not know what answers hold beyond OpenAI's, or which of several forms was asked for."""
pytestmark = pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # the package calls translations so
BROKER_DATABASE = 14
TEXT = "The harbour is quiet tonight."


@pytest.fixture(scope="module")
def stack(valkey: Valkey, models_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Return a service whose jobs are done by engines without models."""
    settings = {
        "models_dir": models_dir,
        "engine_processes": 1,
        "api_aliases": "whisper-1=fake,tts-1=fake_voice",
        "api_voices": "ash=high",
        "api_sync_audio_s": 20,
        "fake_cost_window_s": 0.01,
    }
    folder = tmp_path_factory.mktemp("openai")
    with serving(folder, valkey.broker_url(BROKER_DATABASE), **settings) as found:
        yield found


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Client]:
    """Return the client, as any program makes it."""
    with openai.OpenAI(api_key=stack.key, base_url=stack.base_url, max_retries=0) as found:
        yield found


def tone(seconds: float, seed: int = 1) -> io.BytesIO:
    """Return a WAV of noise under a name."""
    samples = np.random.default_rng(seed).normal(0, 0.1, int(seconds * 16_000)).astype(np.float32)
    file = io.BytesIO()
    sf.write(file, samples, 16_000, subtype="PCM_16", format="WAV")
    file.seek(0)
    file.name = f"noise-{seed}.wav"
    return file


def heard(data: bytes) -> list[tuple[int, int]]:
    """Return which texts a sound of `fake_voice` was made from."""
    samples, rate_hz = sf.read(io.BytesIO(data), dtype="float32")
    return hear(samples, rate_hz)


def error_of(caught: pytest.ExceptionInfo[openai.APIStatusError]) -> tuple[int, Any, Any]:
    """Return status, code and parameter of an error."""
    return caught.value.status_code, caught.value.code, caught.value.param


# ---- Recordings


def test_a_transcription_in_every_form(client: Client) -> None:
    """JSON is an object with the text and its seconds; texts are bare; all forms hold the same words."""
    made = {}
    for form in ("json", "text", "srt", "vtt", "verbose_json"):
        made[form] = client.audio.transcriptions.create(model="whisper-1", file=HARBOR, response_format=form)
    found = made["json"]
    assert found.usage.seconds == pytest.approx(7.4, abs=0.5)
    assert made["text"].strip() == found.text
    assert made["srt"].startswith("1\n00:00:0")
    assert made["vtt"].startswith("WEBVTT")
    long = made["verbose_json"]
    assert (long.text, long.language, long.words) == (found.text, "english", None)
    assert long.segments[0].text.strip() in found.text
    assert (long.task, long.model_extra["language_code"]) == ("transcribe", "en")


def test_words_have_times_where_they_are_asked_for(client: Client) -> None:
    """By the name that the client writes, with brackets, and the segments only if they are named too."""
    words = client.audio.transcriptions.create(
        model="whisper-1", file=HARBOR, response_format="verbose_json", timestamp_granularities=["word"]
    )
    assert words.segments is None
    assert " ".join(word.word for word in words.words) == words.text
    both = client.audio.transcriptions.create(
        model="whisper-1", file=HARBOR, response_format="verbose_json", timestamp_granularities=["word", "segment"]
    )
    assert both.words
    assert both.segments


def test_granularities_without_brackets_are_read_too(stack: Stack) -> None:
    """As curl users write them; and the file may stand behind the fields or before them."""
    with stack.api.client(stack.key) as plain:
        answer = plain.post(
            "/v1/audio/transcriptions",
            data={"model": "whisper-1", "response_format": "verbose_json", "timestamp_granularities": "word"},
            files={"file": ("a.flac", HARBOR.read_bytes())},
        )
    assert answer.status_code == 200, answer.text
    assert answer.json()["words"]


def test_a_transcription_as_a_stream(client: Client) -> None:
    """The deltas, joined, are the text of the last event, and that of the answer in one piece."""
    whole = client.audio.transcriptions.create(model="whisper-1", file=HARBOR)
    events = list(client.audio.transcriptions.create(model="whisper-1", file=HARBOR, stream=True))
    deltas = [event.delta for event in events if event.type == "transcript.text.delta"]
    assert "".join(deltas) == events[-1].text == whole.text
    assert events[-1].type == "transcript.text.done"


def test_channels_are_speakers(client: Client, tmp_path: Path) -> None:
    """Kept apart, each channel of a recording is one, in one piece and as a stream."""
    sides = np.random.default_rng(2).normal(0, 0.1, (32_000, 2))
    sf.write(tmp_path / "call.wav", sides, 16_000)
    wanted: dict[str, Any] = {
        "model": "whisper-1",
        "file": tmp_path / "call.wav",
        "response_format": "diarized_json",
        "extra_body": {"channels": "split", "vad_filter": "false"},
    }
    found = client.audio.transcriptions.create(**wanted)
    assert {segment.speaker for segment in found.segments} == {"channel_1", "channel_2"}
    told = list(client.audio.transcriptions.create(**wanted, stream=True))
    assert {one.speaker for one in told if one.type == "transcript.text.segment"} == {"channel_1", "channel_2"}


def test_a_translation(client: Client) -> None:
    """It has the forms of a transcription, and says that it is one."""
    found = client.audio.translations.create(model="whisper-1", file=HARBOR, response_format="verbose_json")
    assert found.model_extra["task"] == "translate"
    assert client.audio.translations.create(model="whisper-1", file=HARBOR).text == found.text


@pytest.mark.parametrize(
    ("wanted", "status", "code", "param"),
    [
        ({"model": "whisper-99"}, 404, "model_not_found", "model"),
        ({"model": "tts-1"}, 404, "model_not_found", "model"),
        ({"timestamp_granularities": ["word"]}, 400, "bad_option", "timestamp_granularities"),
        ({"include": ["logprobs"]}, 400, "bad_option", "include"),
        ({"response_format": "diarized_json"}, 400, "bad_option", "response_format"),
        ({"known_speaker_names": ["Ann"]}, 400, "bad_option", "known_speaker_names"),
        ({"extra_body": {"colour": "red"}}, 400, "bad_option", "colour"),
        ({"model": "tiny.en", "language": "de"}, 400, "bad_option", "language"),
        ({"file": ("a.wav", b"no sound at all")}, 415, "not_audio", None),
        ({"file": ("a.wav", b"")}, 400, "empty_file", None),
        ({"file": tone(25.0)}, 413, "audio_too_long_for_sync", "file"),
    ],
)
def test_a_recording_that_is_refused(
    client: Client, wanted: dict[str, Any], status: int, code: str, param: str | None
) -> None:
    """The error has OpenAI's form: a status, a stable code, and the parameter at fault."""
    with pytest.raises(openai.APIStatusError) as caught:
        client.audio.transcriptions.create(**{"model": "whisper-1", "file": HARBOR, **wanted})
    assert error_of(caught) == (status, code, param)
    assert caught.value.request_id


def test_who_prefers_not_to_wait_gets_the_job(stack: Stack, client: Client) -> None:
    """202 with its place, on the same endpoint; the client reads it as an answer without text."""
    answer = client.audio.transcriptions.with_raw_response.create(
        model="whisper-1", file=tone(21.0, 7), extra_headers={"Prefer": "respond-async"}
    )
    assert answer.status_code == 202
    job_id = answer.parse().model_extra["id"]
    assert answer.headers["location"] == f"/api/v1/jobs/{job_id}"
    wait_until(lambda: state_of(stack, job_id) == "succeeded", 30)


def state_of(stack: Stack, job_id: str) -> str:
    """Return the state of a job."""
    with stack.api.database.read() as connection:
        return str(connection.execute(select(jobs.c.state).where(jobs.c.id == job_id)).scalar_one())


def newest_job(stack: Stack) -> str:
    """Return the id of the job that came last; nothing if there has been none."""
    with stack.api.database.read() as connection:
        return connection.execute(select(jobs.c.id).order_by(jobs.c.id.desc()).limit(1)).scalar() or ""


def options_of(stack: Stack, job_id: str) -> Any:
    """Return the options of a job's nodes."""
    with stack.api.database.read() as connection:
        return json.loads(connection.execute(select(jobs.c.options).where(jobs.c.id == job_id)).scalar_one())


@pytest.mark.parametrize("form", ["audio", "sse"])
def test_a_job_that_nobody_waits_for_is_cancelled(stack: Stack, form: str) -> None:
    """Whoever closes the connection takes the work back, whether an answer or a stream was asked for."""
    before = newest_job(stack)
    long = {"model": "fake_voice", "input": " ".join([TEXT] * 130), "voice": "low", "speed": 0.25}
    with stack.api.client(stack.key) as plain, pytest.raises(httpx.ReadTimeout):
        plain.post(
            "/v1/audio/speech",
            json={**long, "stream_format": form, "seed": len(form)},
            timeout=httpx.Timeout(10, read=0.12),
        )
    wait_until(lambda: newest_job(stack) != before, 10)
    job_id = newest_job(stack)
    wait_until(lambda: state_of(stack, job_id) in {"cancelled", "succeeded"}, 20)
    assert state_of(stack, job_id) == "cancelled"


def test_captions_without_an_engine_say_so(stack: Stack) -> None:
    """The operator has to name one; the socket is closed as failed."""
    with connect(stack.api.url.replace("http", "ws", 1) + "/api/v1/live") as socket:
        socket.send(json.dumps({"type": "start", "key": stack.key}))
        assert json.loads(socket.recv(timeout=20))["error"]["code"] == "not_served"
        with pytest.raises(ConnectionClosedError) as caught:
            socket.recv(timeout=20)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1011


def test_sockets_that_say_nothing_keep_nobody_out(stack: Stack) -> None:
    """So many may wait for their first message, one more is told to come later; a key in a header gets in."""
    url = stack.api.url.replace("http", "ws", 1) + "/api/v1/live"
    with ExitStack() as held:
        for _ in range(MOST_STRANGERS):
            held.enter_context(connect(url))
        with connect(url) as socket:
            assert json.loads(socket.recv(timeout=20))["error"]["code"] == "queue_full"
        with connect(url, additional_headers={"authorization": f"Bearer {stack.key}"}) as socket:
            socket.send('{"type": "start"}')
            assert json.loads(socket.recv(timeout=20))["error"]["code"] == "not_served"


def test_who_waits_too_long_is_told_and_the_job_is_cancelled(valkey: Valkey, tmp_path: Path) -> None:
    """Without workers nothing is done in time: 503, not to be asked again by the client itself."""
    settings = {"api_sync_wait_s": 0.5, "api_aliases": "tts-1=fake_voice"}
    with ApiServer(tmp_path / "api", valkey.broker_url(BROKER_DATABASE - 2), **settings) as api:
        with openai.OpenAI(api_key=api.key("first"), base_url=f"{api.url}/v1") as client:
            began = time.monotonic()
            with pytest.raises(openai.InternalServerError) as caught:
                client.audio.speech.create(model="tts-1", input=TEXT, voice="alloy")
            assert time.monotonic() - began < 5
            assert caught.value.code == "waited_too_long"
            assert caught.value.response.headers["x-should-retry"] == "false"
        with api.database.read() as connection:
            assert list(connection.execute(select(jobs.c.state)).scalars()) == ["cancelled"]


# ---- Speech


@pytest.mark.parametrize("form", ["mp3", "opus", "aac", "flac", "wav", "pcm"])
def test_speech_in_every_format(client: Client, form: str) -> None:
    """What comes back is sound that was made from the text."""
    answer = client.audio.speech.create(model="tts-1", input=TEXT, voice="alloy", response_format=form)
    data = answer.read()
    kind = answer.response.headers["content-type"]
    if form == "pcm":
        assert kind == "audio/pcm;rate=24000;channels=1"
        samples, rate_hz = np.frombuffer(data, "<i2").astype(np.float32) / 32_768, 24_000
    elif form == "aac":
        import av

        with av.open(io.BytesIO(data), format="aac") as container:
            frames: list[Any] = list(container.decode(audio=0))  # type: ignore[union-attr] # it is read, not written
            samples, rate_hz = np.concatenate([one.to_ndarray().reshape(-1) for one in frames]), frames[0].sample_rate
    else:
        samples, rate_hz = sf.read(io.BytesIO(data), dtype="float32")
    assert kind.startswith("audio/")
    assert hear(samples.astype(np.float32), rate_hz) == [describe(TEXT)]


def test_speech_as_a_stream_of_events(stack: Stack, client: Client) -> None:
    """The pieces of base64 decode to the sound; the client gives the events as they are."""
    with client.audio.speech.with_streaming_response.create(
        model="tts-1", input=TEXT, voice="alloy", response_format="wav", stream_format="sse"
    ) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    events = [json.loads(line) for line in lines]
    assert events[-1]["type"] == "speech.audio.done"
    data = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert heard(data) == [describe(TEXT)]


def test_speed_rate_and_voice_change_the_sound(stack: Stack, client: Client) -> None:
    """Twice as fast is half as long; `sample_rate` is ours; a name of OpenAI's may stand for a voice of ours."""

    def samples_of(**wanted: Any) -> Any:
        given = {"model": "tts-1", "input": TEXT, "voice": "alloy", "response_format": "wav", **wanted}
        return sf.read(io.BytesIO(client.audio.speech.create(**given).read()), dtype="float32")

    plain, rate_hz = samples_of()
    quick, _ = samples_of(speed=2.0)
    assert len(quick) < 0.7 * len(plain)
    other, other_hz = samples_of(extra_body={"sample_rate": 16_000})
    assert (rate_hz, other_hz) == (22_050, 16_000)
    assert len(other) / other_hz == pytest.approx(len(plain) / rate_hz, abs=0.02)
    samples_of(voice="ash")
    assert options_of(stack, newest_job(stack))["synthesise"]["voice"] == "high"


@pytest.mark.parametrize(
    ("wanted", "status", "param"),
    [
        ({"input": "x" * 4097}, 400, "input"),
        ({"response_format": "midi"}, 400, "response_format"),
        ({"speed": 9.0}, 400, "speed"),
        ({"model": "whisper-1"}, 404, "model"),
        ({"extra_body": {"pitch": 2}}, 400, "pitch"),
        ({"voice": "nobody"}, 400, None),
    ],
)
def test_speech_that_is_refused(client: Client, wanted: dict[str, Any], status: int, param: str | None) -> None:
    """The error names the parameter; a voice that the engine does not have is no error of the server."""
    with pytest.raises(openai.APIStatusError) as caught:
        client.audio.speech.create(**{"model": "tts-1", "input": TEXT, "voice": "alloy", **wanted})
    assert (caught.value.status_code, caught.value.param) == (status, param)


# ---- Models and voices


def test_models_and_voices_are_listed(stack: Stack, client: Client) -> None:
    """Aliases, models of the catalogue and engines without models; names with slashes can be asked for."""
    names = {model.id for model in client.models.list()}
    assert {"whisper-1", "tts-1", "base", "en_US-joe-medium", "fake"} <= names
    assert not {"openai", "remote", "silero"} & names
    assert client.models.retrieve("whisper-1").model_extra["alias_of"] == "fake"
    assert client.models.retrieve("whisper/base").model_extra["engine"] == "whisper"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("someone/else")
    with stack.api.client(stack.key) as plain:
        voices = plain.get("/v1/audio/voices").json()["voices"]
    assert "en_US-joe-medium" in {voice["id"] for voice in voices}


# ---- Files and uploads


def test_a_file_comes_lists_and_goes(client: Client) -> None:
    """What was uploaded comes back as it was, under its name, until it is deleted."""
    data = bytes(range(256)) * 5000
    made = client.files.create(file=("Köln 1.bin", data), purpose="user_data", expires_after={
        "anchor": "created_at", "seconds": 3600,
    })  # fmt: skip
    assert (made.filename, made.bytes, made.purpose) == ("Köln 1.bin", len(data), "user_data")
    assert made.expires_at == pytest.approx(made.created_at + 3600, abs=2)
    assert client.files.content(made.id).read() == data
    assert client.files.retrieve(made.id).model_extra["sha256"] == sha256(data).hexdigest()
    assert made.id in {file.id for file in client.files.list(purpose="user_data")}
    assert client.files.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made.id)


def test_a_large_file_leaves_the_memory_flat(stack: Stack) -> None:
    """The service grows by a tenth of what it takes at most, while it takes it and gives it back."""
    block = b"x" * (1 << 20)
    size = 150 * len(block)
    name = "Content-Disposition: form-data; name"
    head = f'--b\r\n{name}="purpose"\r\n\r\nuser_data\r\n--b\r\n{name}="file"; filename="a.bin"\r\n\r\n'.encode()

    def body() -> Iterator[bytes]:
        yield head
        yield from repeat(block, 150)
        yield b"\r\n--b--\r\n"

    before = stack.api.process.memory_info().rss
    with stack.api.client(stack.key, {"content-type": "multipart/form-data; boundary=b"}) as plain:
        made = plain.post("/v1/files", content=body()).json()
        assert made["bytes"] == size
        with plain.stream("GET", f"/v1/files/{made['id']}/content") as answer:
            assert sum(map(len, answer.iter_bytes())) == size
    assert stack.api.process.memory_info().rss - before < size / 10


def test_pages_of_files_are_followed(client: Client) -> None:
    """The client asks for the next page by itself, and meets each file once."""
    made = [client.files.create(file=(f"{number}.bin", b"x"), purpose="vision").id for number in range(5)]
    found = [file.id for file in client.files.list(purpose="vision", limit=2)]
    assert found == made[::-1]
    assert [file.id for file in client.files.list(purpose="vision", limit=2, order="asc")] == made


def test_an_upload_in_parts(stack: Stack, client: Client, tmp_path: Path) -> None:
    """The client cuts the file, sends the parts and completes; the file is what was sent."""
    data = np.random.default_rng(3).bytes(3_000_000)
    (tmp_path / "talk.bin").write_bytes(data)
    done = client.uploads.upload_file_chunked(
        file=tmp_path / "talk.bin", mime_type="application/octet-stream", purpose="user_data", part_size=1_000_000
    )
    assert (done.status, done.file.bytes) == ("completed", len(data))
    assert client.files.content(done.file.id).read() == data


def test_an_upload_goes_on_after_a_break(stack: Stack, client: Client) -> None:
    """The parts that are there are listed with their hashes, and in the end the file; another hash is refused."""
    upload = client.uploads.create(bytes=6, filename="a.bin", mime_type="audio/wav", purpose="user_data")
    first = client.uploads.parts.create(upload.id, data=b"abc", extra_body={"sha256": sha256(b"abc").hexdigest()})
    with pytest.raises(openai.BadRequestError):
        client.uploads.parts.create(upload.id, data=b"abd", extra_body={"sha256": sha256(b"abc").hexdigest()})
    with stack.api.client(stack.key) as plain:
        listed = plain.get(f"/v1/uploads/{upload.id}").json()["parts"]
    assert [(part["id"], part["bytes"]) for part in listed] == [(first.id, 3)]
    second = client.uploads.parts.create(upload.id, data=b"def")
    done = client.uploads.complete(upload.id, part_ids=[first.id, second.id])
    assert client.files.content(done.file.id).read() == b"abcdef"
    with stack.api.client(stack.key) as plain:
        assert plain.get(f"/v1/uploads/{upload.id}").json()["file"]["id"] == done.file.id
        client.files.delete(done.file.id)
        assert plain.get(f"/v1/uploads/{upload.id}").json()["file"] is None


def test_a_cancelled_upload_takes_no_parts(client: Client) -> None:
    """409, which the client is told not to try again."""
    upload = client.uploads.create(bytes=6, filename="a.bin", mime_type="audio/wav", purpose="user_data")
    assert client.uploads.cancel(upload.id).status == "cancelled"
    with pytest.raises(openai.ConflictError) as caught:
        client.uploads.parts.create(upload.id, data=b"abc")
    assert caught.value.response.headers["x-should-retry"] == "false"


# ---- Batches


def lines_file(client: Client, lines: list[Any]) -> str:
    """Upload the file of a batch, and return its id."""
    data = b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in lines)
    return str(client.files.create(file=("batch.jsonl", data), purpose="batch").id)


def request_line(custom_id: str, endpoint: str = "/v1/audio/transcriptions", **body: Any) -> dict[str, Any]:
    """Return a request as its line holds it."""
    return {"custom_id": custom_id, "method": "POST", "url": endpoint, "body": body}


def ended(client: Client, batch_id: str) -> Any:
    """Return a batch once it has ended."""
    wait_until(lambda: client.batches.retrieve(batch_id).status not in {"in_progress", "cancelling"}, 40)
    return client.batches.retrieve(batch_id)


def answers(client: Client, file_id: str) -> dict[Any, Any]:
    """Return the lines of a file of answers by their custom_id."""
    lines = client.files.content(file_id).text.splitlines()
    return {one["custom_id"]: one for one in map(json.loads, lines)}


def test_a_batch_with_bad_lines(stack: Stack, client: Client) -> None:
    """The good lines are answered; the others stand in the file of errors, and in `errors` with their numbers."""
    audio_id = client.files.create(file=HARBOR, purpose="user_data").id
    inline = {"data": base64.b64encode(tone(2.0, 11).read()).decode(), "format": "wav"}
    file_id = lines_file(
        client,
        [
            request_line("one", model="whisper-1", file_id=audio_id),
            b"{ this is no JSON",
            request_line("two", model="whisper-1", input_audio=inline, response_format="srt", vad_filter=False),
            request_line("three", model="whisper-1", file_id="file_unknown"),
            request_line("four", model="whisper-1", file_id=audio_id, colour="red"),
            request_line("five", model="whisper-1", url="http://127.0.0.1/a.wav"),
            request_line(
                "six", model="whisper-1", input_audio={"data": base64.b64encode(b"no sound").decode(), "format": "wav"}
            ),
        ],
    )
    made = client.batches.create(
        input_file_id=file_id,
        endpoint="/v1/audio/transcriptions",
        completion_window="24h",
        metadata={"who": "test"},
    )
    assert [(one.line, one.code, one.param) for one in made.errors.data] == [
        (2, "invalid_json_line", None),
        (4, "no_such_record", "body.file_id"),
        (5, "bad_option", "body.colour"),
        (6, "address_refused", "body.url"),
    ]
    done = ended(client, made.id)
    assert done.status == "completed"
    counts = done.request_counts
    assert (counts.total, counts.completed, counts.failed) == (7, 2, 5)
    assert (done.metadata, done.endpoint, done.input_file_id) == (
        {"who": "test"}, "/v1/audio/transcriptions", file_id,
    )  # fmt: skip
    good = answers(client, done.output_file_id)
    plain = client.audio.transcriptions.create(model="whisper-1", file=HARBOR)
    assert set(good) == {"one", "two"}
    assert good["one"]["response"]["status_code"] == 200
    assert good["one"]["response"]["body"]["text"] == plain.text
    assert good["two"]["response"]["body"].startswith("1\n00:00:00")
    bad = answers(client, done.error_file_id)
    assert set(bad) == {None, "three", "four", "five", "six"}
    assert bad["six"]["response"]["body"]["error"]["code"] == "not_audio"
    assert bad[None]["line"] == 2
    assert made.id in {batch.id for batch in client.batches.list()}
    with stack.api.database.read() as connection:
        before = connection.execute(select(batches.c.request).where(batches.c.id == made.id)).scalar_one()
    assert ended(client, made.id).output_file_id == done.output_file_id
    with stack.api.database.read() as connection:
        assert connection.execute(select(batches.c.request).where(batches.c.id == made.id)).scalar_one() == before


def test_a_batch_of_speech(stack: Stack, client: Client) -> None:
    """Each answer names the artifact that holds the sound."""
    lines = [
        request_line(str(n), "/v1/audio/speech", model="tts-1", input=f"{TEXT} {n}", voice="low") for n in range(3)
    ]
    made = client.batches.create(
        input_file_id=lines_file(client, lines),
        endpoint="/v1/audio/speech",
        completion_window="24h",
    )
    done = ended(client, made.id)
    found = answers(client, done.output_file_id)
    assert set(found) == {"0", "1", "2"}
    assert {one["response"]["body"]["media_type"] for one in found.values()} == {"audio/mpeg"}
    assert done.error_file_id is None


@pytest.mark.parametrize(
    ("lines", "code", "line"),
    [
        ([request_line("a", model="whisper-1"), request_line("a", model="whisper-1")], "duplicate_custom_id", 2),
        ([], "empty_file", 1),
        ([request_line("a", "/v1/embeddings", model="whisper-1")], "mismatched_url", 1),
    ],
)
def test_a_batch_that_cannot_be(client: Client, lines: list[Any], code: str, line: int) -> None:
    """It is failed from the beginning, and tells why."""
    made = client.batches.create(
        input_file_id=lines_file(client, [*lines, b""]),
        endpoint="/v1/audio/transcriptions",
        completion_window="24h",
    )
    assert made.status == "failed"
    assert [(one.code, one.line) for one in made.errors.data][-1] == (code, line)
    assert client.batches.retrieve(made.id).failed_at


def test_a_batch_that_is_asked_for_twice_is_one(client: Client) -> None:
    """With the same Idempotency-Key the same batch is told of; with the key and another request nothing is done."""
    file_id = lines_file(client, [request_line("a", model="whisper-1")])
    wanted: dict[str, Any] = {
        "input_file_id": file_id,
        "endpoint": "/v1/audio/transcriptions",
        "completion_window": "24h",
        "extra_headers": {"Idempotency-Key": f"key of {file_id}"},
    }
    first = client.batches.create(**wanted)
    assert client.batches.create(**wanted).id == first.id
    with pytest.raises(openai.UnprocessableEntityError):
        client.batches.create(**{**wanted, "completion_window": "48h"})


def test_a_batch_is_cancelled_and_keeps_its_answers(stack: Stack, client: Client) -> None:
    """What waited is told of as cancelled; to cancel what has ended is a conflict."""
    audio = base64.b64encode(tone(1.0, 12).read()).decode()
    body: dict[str, Any] = {"model": "whisper-1", "input_audio": {"data": audio, "format": "wav"}}
    made = client.batches.create(
        input_file_id=lines_file(client, [request_line(str(number), **body) for number in range(200)]),
        endpoint="/v1/audio/transcriptions",
        completion_window="24h",
    )
    assert client.batches.cancel(made.id).status in {"cancelling", "cancelled", "finalizing"}
    done = ended(client, made.id)
    assert done.status == "cancelled"
    told = answers(client, done.error_file_id)
    assert {one["error"]["code"] for one in told.values()} == {"batch_cancelled"}
    with pytest.raises(openai.ConflictError):
        client.batches.cancel(made.id)


def test_a_call_that_waits_overtakes_a_batch(stack: Stack, client: Client) -> None:
    """While hundreds of requests of a batch wait, one call is answered at once."""
    audio = base64.b64encode(tone(2.0, 13).read()).decode()
    body: dict[str, Any] = {"model": "whisper-1", "vad_filter": False}
    lines = [
        request_line(str(n), **body, input_audio={"data": audio, "format": "wav"}, prompt=str(n)) for n in range(150)
    ]
    made = client.batches.create(
        input_file_id=lines_file(client, lines),
        endpoint="/v1/audio/transcriptions",
        completion_window="24h",
    )
    wait_until(lambda: client.batches.retrieve(made.id).request_counts.completed > 0, 30)
    client.audio.transcriptions.create(model="whisper-1", file=tone(3.0, 14))
    counts = client.batches.retrieve(made.id).request_counts
    assert counts.completed < counts.total
    client.batches.cancel(made.id)
    ended(client, made.id)


# ---- Without blocking


def test_every_call_from_a_coroutine(stack: Stack) -> None:
    """The asynchronous client runs the same calls, several at once."""

    async def calls() -> None:
        client: Client
        async with openai.AsyncOpenAI(api_key=stack.key, base_url=stack.base_url, max_retries=0) as client:
            audio = HARBOR.read_bytes()
            heard_, words, translated, spoken = await asyncio.gather(
                client.audio.transcriptions.create(model="whisper-1", file=("a.flac", audio)),
                client.audio.transcriptions.create(
                    model="whisper-1", file=("a.flac", audio), response_format="verbose_json",
                    timestamp_granularities=["word"],
                ),
                client.audio.translations.create(model="whisper-1", file=("a.flac", audio)),
                client.audio.speech.create(model="tts-1", input=TEXT, voice="alloy", response_format="wav"),
            )  # fmt: skip
            assert heard_.text == words.text == translated.text
            assert heard(await spoken.aread()) == [describe(TEXT)]
            stream = await client.audio.transcriptions.create(model="whisper-1", file=("a.flac", audio), stream=True)
            events = [event async for event in stream]
            assert events[-1].text == heard_.text
            assert "whisper-1" in {model.id async for model in client.models.list()}
            file = await client.files.create(file=("b.jsonl", b"abc"), purpose="batch")
            assert (await client.files.content(file.id)).content == b"abc"
            assert (await client.files.delete(file.id)).deleted
            upload = await client.uploads.upload_file_chunked(
                file=audio, filename="a.flac", bytes=len(audio), mime_type="audio/flac", purpose="user_data"
            )
            line = json.dumps(request_line("a", model="whisper-1", file_id=upload.file.id)).encode()
            input_file = await client.files.create(file=("b.jsonl", line), purpose="batch")
            batch = await client.batches.create(
                input_file_id=input_file.id,
                endpoint="/v1/audio/transcriptions",
                completion_window="24h",
            )
            deadline = time.monotonic() + 30
            while batch.status == "in_progress" and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
                batch = await client.batches.retrieve(batch.id)
            told = json.loads((await client.files.content(batch.output_file_id)).text)
            assert told["response"]["body"]["text"] == heard_.text

    asyncio.run(calls())
