"""Synthesis by CosyVoice's own servers, gRPC and HTTP, with the deadlines and the checks that they lack."""

import socket
from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar, Protocol, Self
from urllib.parse import urlsplit

import numpy as np

from voicejobs.audio.types import Sound
from voicejobs.engines.base import EngineFacts, EngineSpec, SynthesiseOptions, Voice
from voicejobs.engines.cosyvoice_http import HttpWire
from voicejobs.engines.cosyvoice_requests import SILENT_HINT, Family, Utterance, family_of, utterance_of
from voicejobs.engines.servers import Together, checked_url, with_patience
from voicejobs.engines.wav import sound_of_s16le
from voicejobs.errors import BadOption, EngineUnavailable, ExtraMissing

_MEMORY_BYTES = 70_000_000
_CALL_TIMEOUT_S = 900.0
_MARGIN_S = 30.0
"""The adapter gives up by itself before the host takes it for hung."""
_BATCH = 1
_RATES_HZ: dict[Family, int] = {1: 22_050, 2: 24_000, 3: 24_000}
_HIGHEST_HZ = 192_000
_USUAL_PORTS = {"http": 80, "https": 443}


class Wire(Protocol):
    """Carry one utterance to the server."""

    def pieces(self, utterance: Utterance, within_s: float) -> Iterator[bytes]:
        """Give the bytes of the answer as they come.

        Raises:
            EngineBusy, EngineUnavailable, EngineRefused: see there; after the first byte with `begun` in the details.
        """
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class CosyVoiceEngine:
    """Have each text spoken by a server of CosyVoice.

    Parameters: `url` (`grpc://`, `http://`, `https://`), `model` (where the spec names none), `rate_hz` (0: that of the
    model), `voices` (names with commas between), `base_s` and `char_s` (seconds for a text and for each character of
    it), `max_batch` (1: texts with the server at the same time).
    """

    name: ClassVar[str] = "cosyvoice"

    def __init__(self, wire: Wire, spec: EngineSpec, rate_hz: int) -> None:
        params = dict(spec.params)
        self._wire = wire
        self._rate_hz = rate_hz
        self._is_grpc = str(params["url"]).startswith("grpc:")
        self._family = family_of(_model(spec))
        self._voices = [name.strip() for name in str(params.get("voices", "")).split(",") if name.strip()]
        self._base_s = float(params.get("base_s", 30.0))
        self._char_s = float(params.get("char_s", 0.5))
        self._together: Together[Sound] = Together(self.facts(spec).max_batch)

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts; a server takes four calls at once by default, and gets slow by them."""
        return EngineFacts(
            kind="synthesiser",
            needs_model=False,
            max_batch=int(dict(spec.params).get("max_batch", _BATCH)),
            call_timeout_s=_CALL_TIMEOUT_S,
            memory_bytes=_MEMORY_BYTES,
            names_model=True,
            takes_speed=False,
            takes_prompt=True,
            streams=True,
        )

    @classmethod
    def load(cls, spec: EngineSpec) -> Self:
        """Make the client; nothing is sent yet.

        Raises:
            BadOption: the address has a wrong form, or nothing tells the sampling rate.
            ExtraMissing: grpcio is not installed.
        """
        url = checked_url(str(dict(spec.params).get("url", "")), "VOICEJOBS_COSYVOICE_URL", ("grpc", "http", "https"))
        rate_hz = _rate_hz(spec)
        most = cls.facts(spec).max_batch
        wire = _grpc_wire(urlsplit(url).netloc) if url.startswith("grpc:") else HttpWire(url, most)
        return cls(wire, spec, rate_hz)

    def synthesise(self, texts: Sequence[str], options: SynthesiseOptions) -> list[Sound]:
        """Return the sound of each text, in order.

        Raises:
            BadOption: the servers have no such option, or the model is known to fail at the mode.
            EngineBusy, EngineUnavailable, EngineRefused: what the server did with a text.
        """
        utterances = [utterance_of(text, self._with_voice(options), self._family, self._is_grpc) for text in texts]
        return self._together.run(utterances, [partial(self._speak, one) for one in utterances])

    def stream(self, text: str, options: SynthesiseOptions) -> Iterator[Sound]:
        """Give the sound of one text in pieces, each as soon as the server sends it; errors as in `synthesise`.

        It asks the server once: a caller that has heard a piece cannot unhear it.
        """
        utterance = utterance_of(text, self._with_voice(options), self._family, self._is_grpc)
        if _is_mute(text):
            return
        for data in _whole_samples(self._wire.pieces(utterance, self._within_s(text))):
            yield sound_of_s16le(data, self._rate_hz)

    def voices(self) -> list[Voice]:
        """Return the speakers that the setting names; the servers have no list of theirs."""
        return [Voice(name, rate_hz=self._rate_hz) for name in self._voices]

    def close(self) -> None:
        """Close the connections; the end of the engine process does the same."""
        self._together.close()
        self._wire.close()

    def _with_voice(self, options: SynthesiseOptions) -> SynthesiseOptions:
        """Return the options with the default speaker where they name none."""
        if options.voice or not self._voices:
            return options
        return SynthesiseOptions(**{**options.to_json(), "voice": self._voices[0]})

    def _within_s(self, text: str) -> float:
        """Return the seconds that a text may take, in proportion to its length."""
        return min(self._base_s + self._char_s * len(text), _CALL_TIMEOUT_S - _MARGIN_S)

    def _speak(self, utterance: Utterance) -> Sound:
        """Return the whole sound of one text; asks again only while not a byte of it has come."""
        if _is_mute(utterance.text):
            return Sound(np.zeros(0, np.float32), self._rate_hz)

        def ask(left_s: float) -> bytes:
            return b"".join(_whole_samples(self._wire.pieces(utterance, left_s)))

        return sound_of_s16le(with_patience(ask, self._within_s(utterance.text)), self._rate_hz)


def _grpc_wire(target: str) -> Wire:
    """Return the way to a gRPC server."""
    try:
        from voicejobs.engines.cosyvoice_grpc import GrpcWire  # noqa: PLC0415 - not everybody has grpcio
    except ImportError as error:
        raise ExtraMissing("grpcio is not installed", hint="pip install 'voicejobs[server]'") from error
    return GrpcWire(target)


def _is_mute(text: str) -> bool:
    """Tell whether a text has nothing that can be said."""
    return not any(character.isalnum() for character in text)


def _whole_samples(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Give pieces of whole samples, whatever the borders of the server's.

    Raises:
        EngineUnavailable: nothing came, or the last sample lacks a byte.
    """
    rest = b""
    begun = False
    for piece in pieces:
        data = rest + piece
        whole = len(data) - len(data) % 2
        rest = data[whole:]
        if whole:
            begun = True
            yield data[:whole]
    if rest:
        raise EngineUnavailable("the CosyVoice server's sound ends inside a sample", begun=True)
    if not begun:
        raise EngineUnavailable("the CosyVoice server sent no sound and no error", hint=SILENT_HINT, begun=True)


def _model(spec: EngineSpec) -> str:
    """Return the name of the model, that of the job first."""
    return spec.model or str(dict(spec.params).get("model", ""))


def _rate_hz(spec: EngineSpec) -> int:
    """Return the sampling rate of the model: no message of the server tells it.

    Raises:
        BadOption: neither the setting nor the model's name tells it.
    """
    model = _model(spec)
    given = int(dict(spec.params).get("rate_hz", 0))
    family = family_of(model)
    if not given and family is None:
        what = f"the model {model!r} is not known" if model else "no model is named"
        raise BadOption(
            f"The sampling rate of the CosyVoice server is not known: {what}",
            hint="Set VOICEJOBS_COSYVOICE_MODEL, such as CosyVoice2-0.5B, or VOICEJOBS_COSYVOICE_RATE_HZ.",
        )
    if given > _HIGHEST_HZ:
        raise BadOption(f"VOICEJOBS_COSYVOICE_RATE_HZ={given} is no sampling rate")
    return given or _RATES_HZ[family or 2]


def probe(spec: EngineSpec, within_s: float) -> str:
    """Return that a server takes connections there, for whoever wants to know; none of the two can tell more.

    Raises:
        VoicejobsError: nobody does, or a setting has a wrong form.
    """
    engine = CosyVoiceEngine.load(spec)
    engine.close()
    parts = urlsplit(str(dict(spec.params)["url"]))
    port = parts.port or _USUAL_PORTS.get(parts.scheme, 0)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=within_s):
            return f"takes connections, sound at {_rate_hz(spec)} Hz"
    except OSError as error:
        raise EngineUnavailable(f"no CosyVoice server takes connections: {error}") from error
