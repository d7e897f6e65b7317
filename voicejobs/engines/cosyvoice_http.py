"""How an utterance travels to CosyVoice's FastAPI server: a form, answered by raw sound."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from voicejobs.engines.cosyvoice_requests import SILENT_HINT, Utterance
from voicejobs.engines.servers import HttpServer
from voicejobs.engines.wav import wav_of
from voicejobs.errors import EngineUnavailable


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
        is_heard = False
        try:
            with self._server.pour("POST", path, within_s, **content) as (_, chunks):
                for chunk in chunks:
                    is_heard = is_heard or bool(chunk)
                    yield chunk
        except EngineUnavailable as error:
            if is_heard or not error.details.get("begun"):
                raise
            raise EngineUnavailable(error.message, hint=SILENT_HINT, **error.details) from None

    def close(self) -> None:
        """Close the connections."""
        self._server.close()
