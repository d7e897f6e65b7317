"""Speak the text of one request with the steps of a job, in the thread that calls."""

from collections.abc import Callable, Iterator
from typing import Any

from voicejobs.errors import NotServed
from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.rpc.engines import Engines

SPEECH_FORMATS = ("wav",)


class Synthesis:
    """Answer requests for synthesis; every method may be called from any thread."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    def answer(self, request: pb.SynthesizeRequest, cancelled: Callable[[], bool]) -> pb.SynthesizeResponse:
        raise NotServed("x")

    def parts(self, request: Any, cancelled: Any) -> Iterator[Any]:
        raise NotServed("x")

    def voices(self, language: str) -> list[pb.VoiceInfo]:
        raise NotServed("x")
