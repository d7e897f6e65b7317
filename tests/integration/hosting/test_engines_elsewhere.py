"""Engines that are clients, in engine processes of a host: what a call of several windows sends."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from tests.servers.http import JSON, HttpServer, Reply, Request
from voicejobs.engines.base import EngineSpec, RecogniseOptions, SynthesiseOptions
from voicejobs.errors import EngineRefused, EngineUnavailable
from voicejobs.hosting.host import EngineHost

MakeHost = Callable[..., EngineHost]
WINDOWS = [np.full(32_000 + number, number, np.int16) for number in range(4)]


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[Request], Reply]], HttpServer]]:
    """Return a function that starts a server, which ends with the test."""
    with ExitStack() as stack:
        yield lambda respond: stack.enter_context(HttpServer(respond))


Serve = Callable[[Callable[[Request], Reply]], HttpServer]


def samples_of(request: Request) -> int:
    """Return how many samples came."""
    return (len(request.file("file").content) - 44) // 2


def text(content: str) -> Reply:
    """Return a transcription."""
    return Reply(200, json.dumps({"text": content, "language": "en"}).encode(), {"Content-Type": JSON})


def spec(url: str, engine: str = "openai") -> EngineSpec:
    """Return the spec of an engine on a server."""
    return EngineSpec(engine, "m", params=(("url", url), ("timeout_s", 10.0)), secrets=(("key", "k"),))


def test_a_silent_window_of_a_call_is_not_sent_twice(make_host: MakeHost, serve: Serve) -> None:
    """Windows of a call do not influence each other at a server: what came out empty would come out empty again."""
    server = serve(lambda request: text(""))
    found = make_host(1).recogniser(spec(server.url)).recognise(WINDOWS, RecogniseOptions())
    assert [one.segments for one in found] == [()] * 4
    assert len(server.requests) == 4
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer k"}


@pytest.mark.parametrize(("status", "kind", "tries"), [(413, EngineRefused, 1), (500, EngineUnavailable, 3)])
def test_the_window_at_fault_is_found_without_asking_again(
    status: int, kind: type[Exception], tries: int, make_host: MakeHost, serve: Serve
) -> None:
    """A call with one bad window costs its requests once; another task whose windows were with it loses nothing."""

    def respond(request: Request) -> Reply:
        return Reply(status, b'{"detail": "no"}') if samples_of(request) == 32_002 else text("fine")

    server = serve(respond)
    recogniser = make_host(1).recogniser(spec(server.url))
    with pytest.raises(kind, match=f"{status}: no"):
        recogniser.recognise(WINDOWS, RecogniseOptions())
    assert len(server.requests) == 3 + tries
    (result,) = recogniser.recognise(WINDOWS[3:], RecogniseOptions())
    assert result.segments[0].text == " fine"


def test_an_engine_that_speaks_elsewhere_is_hosted_like_any_other(make_host: MakeHost, serve: Serve) -> None:
    """Its sounds and its voices cross the socket of the engine process, its errors with their code."""
    data = np.asarray([1, -1], "<i2").tobytes()

    def respond(request: Request) -> Reply:
        if request.path.endswith("/voices"):
            return Reply(200, b'["nova"]')
        return Reply(200, data, {"Content-Type": "audio/pcm;rate=8000"})

    server = serve(respond)
    cosyvoice = EngineSpec("cosyvoice", "CosyVoice-300M", params=(("url", server.url),))
    (sound,) = make_host(1).synthesiser(cosyvoice).synthesise(["Hello"], SynthesiseOptions(voice="a"))
    assert (len(sound.samples), sound.rate_hz) == (2, 22_050)
    hosted = make_host(1).synthesiser(spec(server.url, "openai_voice"))
    assert [voice.name for voice in hosted.voices()] == ["nova"]
    with pytest.raises(EngineUnavailable, match="no WAV"):
        hosted.synthesise(["Hello"], SynthesiseOptions())
