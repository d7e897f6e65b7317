"""One recording through three doors: REST, gRPC and a WebSocket, with a real model behind each."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import openai
import pytest
from websockets import Origin, Subprotocol
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.bench import read_speech
from tests.integration.service.stack import HARBOR, Stack, serving
from tests.servers.valkey import Valkey
from tests.servers.voice_engine import VoiceEngine
from tests.waiting import wait_until
from voicejobs.rpc.client import Target, VoiceClient, pb
from voicejobs.store import keys

BROKER_DATABASE = 13
PIECE_BYTES = 3200
"""A tenth of a second."""


@dataclass(frozen=True)
class Doors:
    """Hold a service with workers, and the voice engine behind its captions."""

    stack: Stack
    engine_url: str

    @property
    def live_url(self) -> str:
        """Return the address of live captions."""
        return self.stack.api.url.replace("http", "ws", 1) + "/api/v1/live"


@pytest.fixture(scope="module")
def doors(valkey: Valkey, models_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """Return a service and an engine, both with the smallest whisper; nothing speaks."""
    for model in ("tiny.en", "silero-vad"):
        if not (models_dir / model).exists():
            pytest.skip(f"the model {model} is not on this machine: voicejobs models pull {model}")
    folder = tmp_path_factory.mktemp("doors")
    words = ("--engine", "whisper", "--model", "tiny.en")
    settings = {"models_dir": models_dir, "engine_processes": 1, "api_live_streams": 3, "api_live_key_streams": 2}
    with VoiceEngine(folder / "engine", *words, models_dir=models_dir, engine_processes=1) as engine:
        broker_url = valkey.broker_url(BROKER_DATABASE)
        with serving(folder / "api", broker_url, api_engine_url=engine.url, **settings) as stack:
            yield Doors(stack, engine.url)


def started(socket: ClientConnection, **start: Any) -> None:
    """Begin, and wait until sound may come."""
    socket.send(json.dumps({"type": "start", **start}))
    assert json.loads(socket.recv(timeout=20)) == {"type": "started"}


def captions(socket: ClientConnection, start: dict[str, Any], data: bytes) -> list[dict[str, Any]]:
    """Send sound and return what is told, to the end."""
    started(socket, **start)
    for first in range(0, len(data), PIECE_BYTES):
        socket.send(data[first : first + PIECE_BYTES])
    socket.send('{"type": "end"}')
    told: list[dict[str, Any]] = []
    while not told or told[-1]["type"] not in {"done", "error"}:
        told.append(json.loads(socket.recv(timeout=60)))
    return told


def last_texts(told: list[dict[str, Any]]) -> str:
    """Return the text of all segments, each as it was told last."""
    found = {one["segment_id"]: one["text"] for one in told if one["type"] in {"final", "revised"}}
    return " ".join(text for _, text in sorted(found.items()) if text)


def test_one_recording_gives_one_text_through_every_door(doors: Doors) -> None:
    """REST, a call of gRPC, a stream of gRPC and a WebSocket hear the same, letter by letter."""
    speech = read_speech().astype("<i2").tobytes()
    with openai.OpenAI(api_key=doors.stack.key, base_url=doors.stack.base_url, max_retries=0) as client:
        by_rest = client.audio.transcriptions.create(model="tiny.en", file=HARBOR).text
    with VoiceClient(Target.of_url(doors.engine_url), timeout_s=60) as engine:
        by_call = engine.recognise(HARBOR.read_bytes(), "flac").text.strip()
        config = pb.StreamingConfig(audio_format="pcm_s16le_16k")
        pieces = (speech[first : first + PIECE_BYTES] for first in range(0, len(speech), PIECE_BYTES))
        finals = {one.segment_id: one.text for one in engine.stream(config, pieces) if one.is_final}
    with connect(doors.live_url, additional_headers=bearer(doors)) as socket:
        told = captions(socket, {}, speech)
    by_stream = " ".join(text for _, text in sorted(finals.items()) if text)
    assert by_rest == by_call == by_stream == last_texts(told)
    assert "early in the morning" in by_rest
    assert told[-1] == {"type": "done"}
    words = [word for one in told if one["type"] == "final" for word in one["words"]]
    assert words
    assert all(0 <= word["start"] <= word["end"] <= 8 for word in words)


def bearer(doors: Doors) -> dict[str, str]:
    """Return the header that holds the key."""
    return {"authorization": f"Bearer {doors.stack.key}"}


def test_a_real_model_gives_words_and_a_real_voice_is_understood(doors: Doors, models_dir: Path) -> None:
    """Words have times in order; what piper says of a text is heard as that text."""
    with openai.OpenAI(api_key=doors.stack.key, base_url=doors.stack.base_url, max_retries=0) as client:
        found = client.audio.transcriptions.create(
            model="tiny.en", file=HARBOR, response_format="verbose_json", timestamp_granularities=["word", "segment"]
        )
        times = [word.start for word in found.words or []]
        assert len(times) > 10
        assert times == sorted(times)
        assert [segment.text.strip() for segment in found.segments or []]
        if not (models_dir / "en_US-joe-medium").exists() or find_spec("piper") is None:
            pytest.skip("piper or its voice is not on this machine")
        text = "The ship will leave the harbor in the evening."
        spoken = client.audio.speech.create(model="tts-1", voice="alloy", input=text, response_format="mp3").read()
        heard = client.audio.transcriptions.create(model="tiny.en", file=("a.mp3", spoken)).text
    assert re.findall(r"[a-z]+", heard.lower()) == re.findall(r"[a-z]+", text.lower())


def test_a_preview_is_spoken_once(doors: Doors, models_dir: Path) -> None:
    """The first call for a voice makes a job and waits, later ones get its sound; each tenant has its own."""
    if not (models_dir / "en_US-joe-medium").exists() or find_spec("piper") is None:
        pytest.skip("piper or its voice is not on this machine")
    address = "/api/v1/voices/en_US-joe-medium/preview"
    with (
        doors.stack.api.client(doors.stack.key) as client,
        doors.stack.api.client(doors.stack.api.key("other")) as other,
    ):

        def made() -> list[str]:
            """Return the jobs that have spoken the preview."""
            found = client.get("/api/v1/jobs", params={"limit": 100}).raise_for_status().json()["data"]
            return [one["id"] for one in found if one["source"]["name"] == "preview"]

        assert client.get("/api/v1/voices/nobody/preview").status_code == 404
        first = client.get(address, timeout=120)
        assert (first.status_code, first.headers["content-type"]) == (200, "audio/mpeg")
        assert len(made()) == 1
        again = client.get(address)
        assert (again.content, again.headers["etag"]) == (first.content, first.headers["etag"])
        assert client.get(address, headers={"if-none-match": first.headers["etag"]}).status_code == 304
        part = client.get(address, headers={"range": "bytes=0-99"})
        assert (part.status_code, part.content) == (206, first.content[:100])
        assert len(made()) == 1
        assert other.get(address, timeout=120).status_code == 200
        assert len(made()) == 1
        (job_id,) = made()
        assert client.delete(f"/api/v1/jobs/{job_id}").is_success
        assert client.get(address, timeout=120).status_code == 200
        assert len(made()) == 1
        assert made() != [job_id]
    with openai.OpenAI(api_key=doors.stack.key, base_url=doors.stack.base_url, max_retries=0) as openai_client:
        heard = openai_client.audio.transcriptions.create(model="tiny.en", file=("a.mp3", first.content)).text
    assert "how i sound when i read" in heard.lower()


def closed(doors: Doors, first: str | bytes, **more: Any) -> tuple[int, str]:
    """Return code of closing and code of the error of a socket that is refused after its first message."""
    with suppress(ConnectionClosed), connect(doors.live_url, **more) as socket:
        socket.send(first)
        told = json.loads(socket.recv(timeout=20))
        if told == {"type": "started"}:
            told = json.loads(socket.recv(timeout=20))
        code = told["error"]["code"]
        with pytest.raises(ConnectionClosed) as caught:
            socket.recv(timeout=20)
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code, code


def test_the_key_may_stand_in_the_first_message_or_in_a_protocol(doors: Doors) -> None:
    """Browsers cannot set headers; the key never stands in the address."""
    with connect(doors.live_url) as socket:
        assert captions(socket, {"key": doors.stack.key}, b"")[-1] == {"type": "done"}
    offered = [Subprotocol("voicejobs.live"), Subprotocol(f"voicejobs.key.{doors.stack.key}")]
    with connect(doors.live_url, subprotocols=offered) as socket:
        assert socket.subprotocol == "voicejobs.live"
        assert captions(socket, {}, b"")[-1] == {"type": "done"}


def test_who_has_no_key_is_told_so_and_let_go(doors: Doors) -> None:
    """By a code that says whether to come again; a key in the address counts for nothing."""
    assert closed(doors, '{"type": "start"}') == (1008, "key_needed")
    assert closed(doors, json.dumps({"type": "start", "key": "vj_wrong"})) == (1008, "key_needed")
    reader = doors.stack.api.key("first", "jobs:read")
    assert closed(doors, json.dumps({"type": "start", "key": reader})) == (1008, "scope_missing")
    with connect(f"{doors.live_url}?key={doors.stack.key}") as socket:
        socket.send('{"type": "start"}')
        assert json.loads(socket.recv(timeout=20))["error"]["code"] == "key_needed"


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (b"sound", "bad_option"),
        ("{", "bad_option"),
        ('{"type": "begin"}', "bad_option"),
        ('{"type": "start", "colour": "red"}', "bad_option"),
        ('{"type": "start", "audio_format": "wav"}', "bad_audio_format"),
        ('{"type": "start", "language": "klingon"}', "bad_option"),
        (f'{{"type": "start", "prompt": "{"x" * 20_000}"}}', "bad_option"),
    ],
)
def test_a_first_message_that_is_none_is_refused(doors: Doors, first: str | bytes, code: str) -> None:
    """The error says what is wrong, and the socket is closed as invalid."""
    assert closed(doors, first, additional_headers=bearer(doors)) == (1007, code)


def test_a_page_of_another_site_is_refused(doors: Doors) -> None:
    """Browsers send its origin; sockets know no other protection against it."""
    with pytest.raises(InvalidStatus) as caught:
        connect(doors.live_url, additional_headers=bearer(doors), origin=Origin("https://elsewhere.example"))
    assert caught.value.response.status_code == 403


def test_captions_have_an_end_to_their_number(doors: Doors) -> None:
    """One more than a key may have, or all, is told to come later, and gets in once another has left."""
    start = {"type": "start", "key": doors.stack.api.key("other", "jobs:write")}
    with connect(doors.live_url, additional_headers=bearer(doors)) as one:
        started(one)
        with connect(doors.live_url, additional_headers=bearer(doors)) as other:
            started(other)
            assert closed(doors, '{"type": "start"}', additional_headers=bearer(doors)) == (1013, "rate_limited")
            with connect(doors.live_url) as third:
                started(third, **start)
                assert closed(doors, json.dumps(start)) == (1013, "queue_full")

    def again() -> bool:
        with connect(doors.live_url, additional_headers=bearer(doors)) as socket:
            socket.send('{"type": "start"}')
            return bool(json.loads(socket.recv(timeout=20)) == {"type": "started"})

    wait_until(again, 10)


def test_captions_end_with_their_key(doors: Doors) -> None:
    """Sound that comes after the key was revoked is not listened to."""
    text = doors.stack.api.key("first", "jobs:write")
    with connect(doors.live_url) as socket:
        started(socket, key=text)
        keys.revoke_key(doors.stack.api.database, text.split("_")[2])
        time.sleep(1)
        socket.send(bytes(3200))
        assert json.loads(socket.recv(timeout=20))["error"]["code"] == "key_needed"


def test_a_text_among_the_sound_ends_the_captions(doors: Doors) -> None:
    """After the first message only `end` is a text."""
    with connect(doors.live_url, additional_headers=bearer(doors)) as socket:
        started(socket)
        socket.send("loud")
        assert json.loads(socket.recv(timeout=20))["error"]["code"] == "bad_option"
