"""Recognition and synthesis by another voicejobs: a client of the voice engine that `voicejobs serve engine` serves."""

import base64
import binascii
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np

from voicejobs.audio.types import Pcm, Sound, WindowResult
from voicejobs.engines.base import (
    TRACES,
    EngineFacts,
    EngineKind,
    EngineSpec,
    RecogniseOptions,
    SynthesiseOptions,
    Voice,
)
from voicejobs.engines.servers import Together, checked_key, checked_url, with_patience
from voicejobs.engines.wav import sound_of_s16le
from voicejobs.errors import (
    AccessDenied,
    BadOption,
    EngineBusy,
    EngineRefused,
    EngineUnavailable,
    ExtraMissing,
    Permanent,
    QueueFull,
    VoicejobsError,
    WaitedTooLong,
)

if TYPE_CHECKING:
    from voicejobs.rpc.client import VoiceClient, pb

T = TypeVar("T")
_MEMORY_BYTES = 80_000_000
_MARGIN_S = 30.0
"""The adapter gives up by itself before the host takes it for hung."""
_KEY_HINT = "Set VOICEJOBS_REMOTE_KEY to one of the keys that the server takes."
_BATCH = 4
_TIMEOUT_S = 300.0
_WINDOW_FORMAT = "pcm_s16le_16k"
_SOUND_FORMATS = {"pcm_f32le": "<f4", "pcm_s16le": "<i2"}


def _facts(spec: EngineSpec, kind: EngineKind) -> EngineFacts:
    """Return the facts of both engines.

    `max_batch`, 4 by default, is how many requests of a process run at once: the server makes batches of its own of
    what comes together.
    """
    params = dict(spec.params)
    return EngineFacts(
        kind=kind,
        needs_model=False,
        max_batch=int(params.get("max_batch", _BATCH)),
        call_timeout_s=float(params.get("timeout_s", _TIMEOUT_S)) + _MARGIN_S,
        memory_bytes=_MEMORY_BYTES,
        takes_prompt=kind == "synthesiser",
        shares_calls=False,  # the server looks at the results of its own batches
    )


def connect(spec: EngineSpec) -> "VoiceClient":
    """Return a client of the server that the parameters name; nothing is sent yet.

    Raises:
        BadOption: the address or the key has a wrong form.
        ExtraMissing: grpcio is not installed.
    """
    params = dict(spec.params)
    url = checked_url(str(params.get("url", "")), "VOICEJOBS_REMOTE_URL", ("grpc", "grpcs", "unix"))
    key = checked_key(dict(spec.secrets).get("key", ""), "VOICEJOBS_REMOTE_KEY")
    try:
        from voicejobs.rpc.client import Target, VoiceClient  # noqa: PLC0415 - not everybody has grpcio
    except ImportError as error:
        raise ExtraMissing("grpcio is not installed", hint="pip install 'voicejobs[server]'") from error
    target = Target.of_url(url, key=key, ca_file=str(params.get("ca_file", "")))
    return VoiceClient(target, timeout_s=float(params.get("timeout_s", _TIMEOUT_S)), retries=0)


class _Remote:
    """Ask one voice engine with patience; its errors become those of an engine's server.

    Parameters: `url`, `ca_file`, `timeout_s` for each window or text, `max_batch`; secret: `key`.
    """

    def __init__(self, client: "VoiceClient", spec: EngineSpec) -> None:
        self._client = client
        self._timeout_s = float(dict(spec.params).get("timeout_s", _TIMEOUT_S))
        self._most = int(dict(spec.params).get("max_batch", _BATCH))

    def ask(self, method: Callable[[float], T]) -> T:
        """Return what a method of the client returns that is given the seconds which are left."""

        def once(left_s: float) -> T:
            try:
                return method(max(0.001, left_s))
            except VoicejobsError as error:
                raise server_error(error) from error

        return with_patience(once, self._timeout_s)


def server_error(error: VoicejobsError) -> VoicejobsError:
    """Return what an error of another voicejobs means here: a job of ours must not end as if it had been cancelled."""
    told = f"The remote voice engine says: {error.message}"
    if isinstance(error, EngineUnavailable | EngineBusy | EngineRefused):
        return error
    if isinstance(error, QueueFull | WaitedTooLong):
        wait_s = float(error.details.get("retry_after_ms") or 0.0) / 1000
        return EngineBusy(told, retry_after_s=wait_s, server_code=error.code)
    if isinstance(error, AccessDenied):
        return EngineRefused(told, hint=_KEY_HINT, server_code=error.code)
    if isinstance(error, Permanent):
        return EngineRefused(told, hint=error.hint, server_code=error.code)
    return EngineUnavailable(told, server_code=error.code)


def traces_of(count: int) -> Sequence[str]:
    """Return the trace id of each of `count` windows or texts of the call under way, empty where there is none."""
    traces = TRACES.get()
    return traces if len(traces) == count else [""] * count


class RemoteEngine(_Remote):
    """Send each window to `Recognize` as it is; batches are made where the model is."""

    name: ClassVar[str] = "remote"

    def __init__(self, client: "VoiceClient", spec: EngineSpec) -> None:
        super().__init__(client, spec)
        self._together: Together[WindowResult] = Together(self._most)

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts."""
        return _facts(spec, "recogniser")

    @classmethod
    def load(cls, spec: EngineSpec) -> Self:
        """Make the client; errors as in `connect`."""
        return cls(connect(spec), spec)

    def recognise(self, windows: Sequence[Pcm], options: RecogniseOptions) -> list[WindowResult]:
        """Return one result for each window, in order; up to `max_batch` are with the server at the same time.

        Raises:
            BadOption: an option that the messages cannot carry.
            EngineBusy, EngineUnavailable, EngineRefused: what the server did with a window.
        """
        for name in ("temperatures", "suppress_tokens"):
            if not getattr(options, name):  # an empty list means to the server that nothing was said
                raise BadOption(f"The engine remote cannot carry an empty --{name.replace('_', '-')}")
        keys = [(sha256(np.ascontiguousarray(window).data).digest(), options) for window in windows]
        traces = traces_of(len(windows))
        calls = [
            partial(self._recognise_one, window, options, trace) for window, trace in zip(windows, traces, strict=True)
        ]
        return self._together.run(keys, calls)

    def detect_language(self, window: Pcm) -> tuple[str, float]:
        """Return the language of a window and its probability 0..1, 1 where the server gives none.

        Raises:
            BadOption: the server tells none.
            EngineBusy, EngineUnavailable, EngineRefused: what it did with the window.
        """
        answer = self.ask(lambda left_s: self._call(window, left_s, language_only=True))
        if not answer.language:
            raise BadOption("The remote voice engine does not tell languages apart", hint="Give --language.")
        return answer.language, answer.language_probability if answer.HasField("language_probability") else 1.0

    def close(self) -> None:
        """Close the channels; the end of the engine process does the same."""
        self._together.close()
        self._client.close()

    def _recognise_one(self, window: Pcm, options: RecogniseOptions, trace_id: str) -> WindowResult:
        """Return the result of one window."""
        from voicejobs.rpc.client import options_message, result_of  # noqa: PLC0415 - not everybody has grpcio

        if window.size == 0:
            return WindowResult((), options.language, None)
        fields = {"language": options.language or "", "options": options_message(options)}
        wanted = {"single_window": True, "trace_id": trace_id, **fields}
        return result_of(self.ask(lambda left_s: self._call(window, left_s, **wanted)))

    def _call(self, window: Pcm, left_s: float, **fields: Any) -> "pb.RecognizeResponse":
        """Send one window."""
        data = np.ascontiguousarray(window, "<i2").tobytes()
        return self._client.recognise(data, _WINDOW_FORMAT, timeout_s=left_s, **fields)


class RemoteVoiceEngine(_Remote):
    """Send each text to `Synthesize` as it is, with every option."""

    name: ClassVar[str] = "remote_voice"

    def __init__(self, client: "VoiceClient", spec: EngineSpec) -> None:
        super().__init__(client, spec)
        self._together: Together[Sound] = Together(self._most)

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts."""
        return _facts(spec, "synthesiser")

    @classmethod
    def load(cls, spec: EngineSpec) -> Self:
        """Make the client; errors as in `connect`."""
        return cls(connect(spec), spec)

    def synthesise(self, texts: Sequence[str], options: SynthesiseOptions) -> list[Sound]:
        """Return the sound of each text, in order; up to `max_batch` are with the server at the same time.

        Raises:
            BadOption: the recording of a voice is not base64.
            EngineBusy, EngineUnavailable, EngineRefused: what the server did with a text.
        """
        keys = [(text, options) for text in texts]
        traces = traces_of(len(texts))
        return self._together.run(
            keys, [partial(self._speak, text, options, trace) for text, trace in zip(texts, traces, strict=True)]
        )

    def voices(self) -> list[Voice]:
        """Return the voices of the server, the default first."""
        found = self.ask(lambda left_s: self._client.voices(timeout_s=left_s))
        return [Voice(one.name, tuple(one.languages), one.sample_rate, one.description, one.licence) for one in found]

    def close(self) -> None:
        """Close the channels; the end of the engine process does the same."""
        self._together.close()
        self._client.close()

    def _speak(self, text: str, options: SynthesiseOptions, trace_id: str) -> Sound:
        """Return the sound of one text."""
        request = _request(text, options)
        answer = self.ask(lambda left_s: self._client.synthesise(request, timeout_s=left_s, trace_id=trace_id))
        if answer.channels != 1 or answer.encoding not in _SOUND_FORMATS or not answer.sample_rate:
            raise EngineUnavailable(
                f"The remote voice engine sent {answer.encoding!r} with {answer.channels} channels at"
                f" {answer.sample_rate} Hz, which was not asked for"
            )
        if answer.encoding == "pcm_s16le":
            return sound_of_s16le(answer.audio_data, answer.sample_rate)
        return Sound(np.frombuffer(answer.audio_data, "<f4"), answer.sample_rate)


def _request(text: str, options: SynthesiseOptions) -> "pb.SynthesizeRequest":
    """Return the message of one text."""
    from voicejobs.rpc.client import pb  # noqa: PLC0415 - not everybody has grpcio

    try:
        prompt = base64.b64decode(options.prompt_audio, validate=True)
    except binascii.Error:
        raise BadOption("prompt_audio is not base64", hint="It is 16-bit mono PCM at 16 kHz in base64.") from None
    return pb.SynthesizeRequest(
        text=text,
        voice=options.voice,
        language=options.language or "",
        audio_format="pcm_f32le",
        speed=options.speed,
        seed=options.seed,
        prompt_audio=prompt,
        prompt_audio_format=_WINDOW_FORMAT if prompt else "",
        prompt_text=options.prompt_text,
        instruct=options.instruct,
        mode=options.mode,
        single_piece=True,
    )


def probe(spec: EngineSpec, within_s: float) -> str:
    """Return what the server says of itself, for whoever wants to know whether it answers.

    Raises:
        VoicejobsError: it does not answer, refuses the key, or its address has a wrong form.
    """
    with connect(spec) as client:
        try:
            info = client.info(timeout_s=within_s)
        except VoicejobsError as error:
            raise server_error(error) from error
    engines = [one for name in ("recogniser", "synthesiser") if info.HasField(name) for one in [getattr(info, name)]]
    told = ", ".join(f"{one.engine} {one.model}".strip() for one in engines)
    return f"answers, voicejobs {info.version} with {told}"
