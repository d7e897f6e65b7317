"""Recognition and synthesis by any server that speaks OpenAI's HTTP interface, ours and FunASR's among them."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

import numpy as np

from voicejobs.audio.types import Pcm, Sound, WindowResult
from voicejobs.engines.base import EngineFacts, EngineSpec, RecogniseOptions, SynthesiseOptions, Voice
from voicejobs.engines.openai_answers import result_of
from voicejobs.engines.servers import Answer, HttpServer, Together, checked_key, checked_url, with_patience
from voicejobs.engines.wav import sound_of_s16le, sound_of_wav, wav_of
from voicejobs.errors import BadOption, EngineRefused, EngineUnavailable, VoicejobsError
from voicejobs.units import samples_to_seconds

_MEMORY_BYTES = 90_000_000
_MARGIN_S = 30.0
"""The adapter gives up by itself before the host takes it for hung."""
_TEXT_BYTES = 16 << 20
_SOUND_BYTES = 256 << 20
_BATCH = 4
_PCM_RATE_HZ = 24_000
"""OpenAI's `pcm` has no header; its documentation says 24 kHz, 16 bit, one channel."""
_FORM_CODES = frozenset({400, 415, 422})
"""Statuses with which servers refuse a field that they do not know."""
_NO_LIST_CODES = frozenset({404, 405})
_FEW = 5
_SLOWEST, _FASTEST = 0.25, 4.0
_CARRIED = frozenset({"language", "task", "word_timestamps", "temperatures", "initial_prompt", "hotwords"})
_OURS = frozenset(
    {"compression_ratio_threshold", "logprob_threshold", "no_speech_threshold", "condition_on_previous_text"}
)
"""Options of a fallback ladder, which lies with the server here: they steer a loop that we do not run."""


def _facts(spec: EngineSpec, kind: Any) -> EngineFacts:
    """Return the facts of both engines; `max_batch`, 4 by default, is how many requests of a process run at once."""
    params = dict(spec.params)
    return EngineFacts(
        kind=kind,
        needs_model=False,
        max_batch=int(params.get("max_batch", _BATCH)),
        call_timeout_s=2 * float(params.get("timeout_s", 120.0)) + _MARGIN_S,  # a server may refuse the first form
        memory_bytes=_MEMORY_BYTES,
        shares_calls=False,
        names_model=True,
    )


def _server(spec: EngineSpec) -> HttpServer:
    """Return the server that the parameters name.

    Raises:
        BadOption: the address or the key has a wrong form.
    """
    params = dict(spec.params)
    url = checked_url(str(params.get("url", "")), "VOICEJOBS_OPENAI_URL", ("http", "https"))
    if not urlsplit(url).path:
        url += "/v1"
    key = checked_key(dict(spec.secrets).get("key", ""), "VOICEJOBS_OPENAI_KEY")
    return HttpServer(url, "the OpenAI-compatible server", key=key, most=_facts(spec, "recogniser").max_batch)


class OpenAiEngine:
    """Send each window as a WAV file to `/audio/transcriptions` (or `/audio/translations`) of a server.

    Parameters: `url`, `model` (where the spec names none), `timeout_s` for each window, `max_batch`; secret: `key`.
    """

    name: ClassVar[str] = "openai"

    def __init__(self, server: HttpServer, spec: EngineSpec) -> None:
        params = dict(spec.params)
        self._server = server
        self._model = spec.model or str(params.get("model", ""))
        self._timeout_s = float(params.get("timeout_s", 120.0))
        self._together: Together[WindowResult] = Together(self.facts(spec).max_batch)
        self._formats: tuple[str, ...] = ("verbose_json", "json")

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts."""
        return _facts(spec, "recogniser")

    @classmethod
    def load(cls, spec: EngineSpec) -> Self:
        """Make the client; nothing is sent yet.

        Raises:
            BadOption: the address or the key has a wrong form.
        """
        return cls(_server(spec), spec)

    def recognise(self, windows: Sequence[Pcm], options: RecogniseOptions) -> list[WindowResult]:
        """Return one result for each window, in order; up to `max_batch` are with the server at the same time.

        Raises:
            BadOption: the interface has no field for an option.
            EngineBusy, EngineUnavailable, EngineRefused: what the server did with a window.
        """
        _check_carried(options)
        keys = [(sha256(np.ascontiguousarray(window).data).digest(), options) for window in windows]
        return self._together.run(keys, [partial(self._recognise_one, window, options) for window in windows])

    def detect_language(self, window: Pcm) -> tuple[str, float]:
        """Return the language that the server names for a window, with its probability, or 1 where it gives none.

        Raises:
            BadOption: the server names none.
            EngineBusy, EngineUnavailable, EngineRefused: what it did with the window.
        """
        result = self._recognise_one(window, RecogniseOptions())
        if result.language is None:
            raise BadOption(f"The server does not tell the language of {self._model!r}", hint="Give --language.")
        probability = result.language_probability
        return result.language, 1.0 if probability is None else probability

    def close(self) -> None:
        """Close the connections; the end of the engine process does the same."""
        self._together.close()
        self._server.close()

    def _recognise_one(self, window: Pcm, options: RecogniseOptions) -> WindowResult:
        """Transcribe one window, with times where the server has them."""
        duration_s = samples_to_seconds(window.size)
        if window.size == 0:
            return WindowResult((), options.language, None)
        first_refusal: VoicejobsError | None = None
        for form in self._formats:
            try:
                answer = self._post(window, options, form)
            except EngineRefused as error:
                if error.details.get("status") not in _FORM_CODES:
                    raise
                first_refusal = first_refusal or error
                continue
            if first_refusal is not None:
                self._formats = (form,)  # it has no other: there is no need to hear it again for each window
            is_text = answer.headers.get("content-type", "").startswith("text/plain")
            content = {"text": answer.body.decode("utf-8", "replace")} if is_text else answer.json()
            return result_of(content, duration_s, options.language)
        raise first_refusal or EngineRefused("the server takes no form of answer")

    def _post(self, window: Pcm, options: RecogniseOptions, form: str) -> Answer:
        """Send one window, asking for one form of answer."""
        translates = options.task == "translate"
        data: dict[str, str | list[str]] = {"model": self._model, "response_format": form}
        if options.language and not translates:
            data["language"] = options.language
        prompt = " ".join(text.strip() for text in (options.hotwords, options.initial_prompt) if text.strip())
        if prompt:
            data["prompt"] = prompt
        if options.temperatures != RecogniseOptions().temperatures:
            data["temperature"] = f"{options.temperatures[0]:g}"
        if form == "verbose_json" and options.word_timestamps and not translates:
            data["timestamp_granularities[]"] = ["word", "segment"]
        files = {"file": ("window.wav", wav_of(window), "audio/wav")}
        path = "/audio/translations" if translates else "/audio/transcriptions"

        def ask(left_s: float) -> Answer:
            return self._server.ask("POST", path, left_s, _TEXT_BYTES, data=data, files=files)

        return with_patience(ask, self._timeout_s)


def _check_carried(options: RecogniseOptions) -> None:
    """Refuse an option that was changed and for which the interface has no field, rather than ignore it."""
    usual = RecogniseOptions()
    names = [field.name for field in fields(options) if getattr(options, field.name) != getattr(usual, field.name)]
    lost = [name for name in names if name not in _CARRIED | _OURS]
    if len(options.temperatures) > 1 and options.temperatures != usual.temperatures:
        lost.append("temperatures")
    if not lost and options.temperatures:
        return
    named = f"--{(lost or ['temperatures'])[0].replace('_', '-')}"
    raise BadOption(
        f"The engine openai cannot carry {named}: the interface has no field for it",
        hint="Leave it out, or take the engine whisper; one temperature can be carried.",
    )


class OpenAiVoiceEngine:
    """Have each text spoken by `/audio/speech` of a server.

    Parameters: `url`, `model` and `voice` (where a job names none), `timeout_s` for each text, `max_batch`; secret:
    `key`. The answer is asked for as WAV, whose header tells the rate; a server without WAV is asked for `pcm`, which
    is 24 kHz unless its content type says otherwise.
    """

    name: ClassVar[str] = "openai_voice"

    def __init__(self, server: HttpServer, spec: EngineSpec) -> None:
        params = dict(spec.params)
        self._server = server
        self._model = spec.model or str(params.get("model", ""))
        self._voice = str(params.get("voice", ""))
        self._timeout_s = float(params.get("timeout_s", 120.0))
        self._together: Together[Sound] = Together(self.facts(spec).max_batch)
        self._formats: tuple[str, ...] = ("wav", "pcm")
        self._rate_hz = _PCM_RATE_HZ

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts."""
        return _facts(spec, "synthesiser")

    @classmethod
    def load(cls, spec: EngineSpec) -> Self:
        """Make the client; nothing is sent yet.

        Raises:
            BadOption: the address or the key has a wrong form.
        """
        return cls(_server(spec), spec)

    def synthesise(self, texts: Sequence[str], options: SynthesiseOptions) -> list[Sound]:
        """Return the sound of each text, in order; up to `max_batch` are with the server at the same time.

        Raises:
            BadOption: the interface has no field for an option, or takes no such value.
            EngineBusy, EngineUnavailable, EngineRefused: what the server did with a text.
        """
        if options.mode or options.prompt_audio or options.prompt_text:
            raise BadOption(
                "The engine openai_voice speaks with the server's voices alone",
                hint="Leave mode, prompt_text and prompt_audio out, or take the engine cosyvoice.",
            )
        if not _SLOWEST <= options.speed <= _FASTEST:
            raise BadOption(f"The speed {options.speed:g} is not within {_SLOWEST:g} and {_FASTEST:g}")
        keys = [(text, options) for text in texts]
        sounds = self._together.run(keys, [partial(self._speak, text, options) for text in texts])
        # A text without a sound has the rate of those beside it, which was not known before they came.
        return [sound if len(sound.samples) else replace(sound, rate_hz=self._rate_hz) for sound in sounds]

    def voices(self) -> list[Voice]:
        """Return the voices that the server lists, the default first; the default alone where it lists none."""
        default = [Voice(self._voice)] if self._voice else []
        try:
            found = self._server.ask("GET", "/audio/voices", self._timeout_s, _TEXT_BYTES).json()
        except VoicejobsError:  # OpenAI's own server has no such list, and says so in several ways
            return default
        items = found.get("voices", found.get("data", [])) if isinstance(found, dict) else found
        names = [_voice_name(item) for item in items] if isinstance(items, list) else []
        return default + [Voice(name) for name in names if name and name != self._voice]

    def close(self) -> None:
        """Close the connections; the end of the engine process does the same."""
        self._together.close()
        self._server.close()

    def _speak(self, text: str, options: SynthesiseOptions) -> Sound:
        """Return the sound of one text."""
        if not any(character.isalnum() for character in text):
            return Sound(np.zeros(0, np.float32), self._rate_hz)
        first_refusal: VoicejobsError | None = None
        for form in self._formats:
            try:
                answer = with_patience(self._request(text, options, form), self._timeout_s)
            except EngineRefused as error:
                if error.details.get("status") not in _FORM_CODES:
                    raise
                first_refusal = first_refusal or error
                continue
            if first_refusal is not None:
                self._formats = (form,)
            sound = _sound(answer, form)
            if not len(sound.samples):
                raise EngineUnavailable("the server's answer to a text holds no sound")
            self._rate_hz = sound.rate_hz
            return sound
        raise first_refusal or EngineRefused("the server takes no form of answer")

    def _request(self, text: str, options: SynthesiseOptions, form: str) -> Callable[[float], Answer]:
        """Return what sends one text."""
        voice = options.voice or self._voice
        content: dict[str, Any] = {"model": self._model, "input": text, "voice": voice, "response_format": form}
        if options.speed != 1:
            content["speed"] = options.speed
        if options.instruct:
            content["instructions"] = options.instruct
        return lambda left_s: self._server.ask("POST", "/audio/speech", left_s, _SOUND_BYTES, json=content)


def _sound(answer: Answer, form: str) -> Sound:
    """Return the sound of an answer; a server may send WAV whatever it was asked for."""
    if form == "wav" or answer.body[:4] == b"RIFF":
        return sound_of_wav(answer.body)
    return sound_of_s16le(answer.body, _rate_of(answer.headers.get("content-type", "")))


def _rate_of(content_type: str) -> int:
    """Return the rate that a content type such as `audio/pcm;rate=22050` names, else OpenAI's."""
    for part in content_type.lower().replace(" ", "").split(";")[1:]:
        name, _, value = part.partition("=")
        if name in {"rate", "sample_rate"} and value.isdigit() and int(value):
            return int(value)
    return _PCM_RATE_HZ


def _voice_name(item: Any) -> str:
    """Return the name of a voice in a list of names or of objects."""
    if isinstance(item, dict):
        item = item.get("id") or item.get("name") or item.get("voice_id") or ""
    return str(item)


def probe(spec: EngineSpec, within_s: float) -> str:
    """Return what the server says of itself, for whoever wants to know whether it answers.

    Raises:
        VoicejobsError: it does not answer, refuses the key, or its address has a wrong form.
    """
    server = _server(spec)
    try:
        found = server.ask("GET", "/models", within_s, _TEXT_BYTES).json()
    except EngineRefused as error:
        if error.details.get("status") not in _NO_LIST_CODES:
            raise
        return "answers, and lists no models"
    finally:
        server.close()
    items = found.get("data", []) if isinstance(found, dict) else []
    names = [str(item.get("id", "")) for item in items if isinstance(item, dict)]
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return f"answers, models: {', '.join(names[:_FEW])}{more}" if names else "answers, and lists no models"
