"""How an utterance travels to CosyVoice's FastAPI server: a form, answered by raw sound."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from voicejobs.engines.cosyvoice_requests import Utterance
from voicejobs.engines.servers import HttpServer
from voicejobs.engines.wav import wav_of


def form_of(utterance: Utterance) -> tuple[str, dict[str, Any]]:
    """Return the path and the form of an utterance, as httpx takes it; a recording goes as a WAV file."""
    fields = {
        "tts_text": utterance.text,
        "spk_id": utterance.speaker,
        "prompt_text": utterance.prompt_text,
        "instruct_text": utterance.instruct,
    }
    content: dict[str, Any] = {"data": {name: value for name, value in fields.items() if value}}
    if utterance.prompt_audio:
        recording = wav_of(np.frombuffer(utterance.prompt_audio, "<i2"))
        content["files"] = {"prompt_wav": ("prompt.wav", recording, "audio/wav")}
    return f"/inference_{utterance.mode}", content


class HttpWire:
    """Speak with CosyVoice's FastAPI server."""

    def __init__(self, url: str, most: int) -> None:
        self._server = HttpServer(url, "the CosyVoice server", most=most)

    def pieces(self, utterance: Utterance, within_s: float) -> Iterator[bytes]:
        """Give the bytes of the answer as they come; errors as in `Wire`."""
        path, content = form_of(utterance)
        with self._server.pour("POST", path, within_s, **content) as (_, chunks):
            yield from chunks
