"""What a request to the OpenAI-compatible endpoints asks for, checked: from the fields of a form or a JSON object.

A parameter that is not known, or that cannot be honoured, is refused and named: nothing is ignored in silence.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

from voicejobs.errors import BadOption
from voicejobs.formats import RenderOptions

Task = Literal["transcribe", "translate"]

TEXT_FORMATS = ("json", "text", "srt", "verbose_json", "vtt", "diarized_json")
"""Forms of a transcription; a translation has all but the last."""
SOUND_FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
STREAMABLE = frozenset({"json", "text", "diarized_json"})
"""Forms of a transcription that can come as events."""
CHANNELS = ("mix", "split", "left", "right")
PCM_RATE_HZ = 24_000
"""Rate of sound in the format `pcm`, which has no header to tell it."""
SLOWEST, FASTEST = 0.25, 4.0
LONGEST_PROMPT = 4096
"""Characters of a prompt or of hot words; engines look at the last few hundred."""
LONGEST_NAME = 256

_LISTS = frozenset({
    "timestamp_granularities", "include", "keywords", "languages", "known_speaker_names", "known_speaker_references",
})  # fmt: skip
_RENDER = ("subtitle_profile", "max_line_width", "max_line_count", "max_words_per_line", "max_chars_per_second")
_WHOLE = frozenset({"max_line_width", "max_line_count", "max_words_per_line"})
_TRANSCRIPTION = frozenset({
    "model", "language", "prompt", "response_format", "temperature", "timestamp_granularities", "stream", "include",
    "chunking_strategy", "keywords", "languages", "known_speaker_names", "known_speaker_references",
    "hotwords", "vad_filter", "channels", *_RENDER,
})  # fmt: skip
_TRANSLATION = frozenset({"model", "prompt", "response_format", "temperature", "hotwords", "vad_filter", *_RENDER})
_SPEECH = frozenset({
    "model", "input", "voice", "instructions", "response_format", "speed", "stream_format", "sample_rate", "language",
    "seed",
})  # fmt: skip
_VAD_FIELDS: Mapping[str, str] = {
    "threshold": "vad_threshold",
    "prefix_padding_ms": "vad_pad_ms",
    "silence_duration_ms": "vad_min_silence_ms",
}
_NESTED = re.compile(r"([^\[\]]+)\[([^\[\]]*)\]")
_MAX_SEED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TranscriptionWish:
    """Hold what a transcription or a translation shall be.

    Args:
        model: name as the request has it.
        task: `transcribe`, or `translate` to English.
        response_format: one of `TEXT_FORMATS`.
        language: as the request names it; empty to tell it from the sound.
        prompt: text that biases spelling.
        hotwords: words to expect.
        temperature: of the decoding; None and 0 leave the engine its own ladder.
        granularities: `word`, `segment` or both: what `verbose_json` lists.
        stream: answer with events.
        channels: one of `CHANNELS`.
        detection: options of the step `prepare` that say how speech is told from silence.
        render: limits of subtitles, as `RenderOptions` takes them.
    """

    model: str
    task: Task = "transcribe"
    response_format: str = "json"
    language: str = ""
    prompt: str = ""
    hotwords: str = ""
    temperature: float | None = None
    granularities: frozenset[str] = frozenset({"segment"})
    stream: bool = False
    channels: str = "mix"
    detection: Mapping[str, Any] = field(default_factory=dict)
    render: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs_words(self) -> bool:
        """Tell whether the engine has to give the times of words."""
        if self.response_format in {"srt", "vtt"}:
            return bool(self.render.get("subtitle_profile") != "plain")
        return self.response_format == "verbose_json" and "word" in self.granularities

    def to_json(self) -> dict[str, Any]:
        """Return what is needed to write the answer later, as JSON values."""
        return {
            "task": self.task,
            "response_format": self.response_format,
            "granularities": sorted(self.granularities),
            "render": dict(self.render),
        }


@dataclass(frozen=True, slots=True)
class SpeechWish:
    """Hold what shall be said, and how.

    Args:
        model: name as the request has it.
        text: what to say.
        voice: name of a voice.
        instructions: how to speak, in words; empty for none.
        response_format: one of `SOUND_FORMATS`.
        speed: 1 as the voice speaks by itself.
        stream: answer with events.
        sample_rate_hz: rate of the sound; 0 for that of the voice (of `pcm`: 24 kHz).
        language: of the text; empty for that of the voice.
        seed: another reading of the same text, by number.
    """

    model: str
    text: str
    voice: str
    instructions: str = ""
    response_format: str = "mp3"
    speed: float = 1.0
    stream: bool = False
    sample_rate_hz: int = 0
    language: str = ""
    seed: int | None = None


def fields_of_form(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the fields of a form as the JSON object that they stand for.

    `name[]`, and any repetition of a name that holds a list, make a list; `name[key]` makes an object.

    Raises:
        BadOption: a name that holds one value comes twice, or is used in two ways.
    """
    found: dict[str, Any] = {}
    for raw, value in pairs:
        match = _NESTED.fullmatch(raw)
        name, key = (match[1], match[2]) if match else (raw, None)
        if key == "" or name in _LISTS:
            place = found.setdefault(name, [])
            if not isinstance(place, list):
                raise _refused(name, "is given in two ways")
            place.append(value)
        elif key is not None:
            place = found.setdefault(name, {})
            if not isinstance(place, dict) or key in place:
                raise _refused(name, "is given twice")
            place[key] = value
        elif name in found:
            raise _refused(name, "is given twice")
        else:
            found[name] = value
    return found


def transcription_wish(fields: Mapping[str, Any], task: Task = "transcribe") -> TranscriptionWish:
    """Return what the fields of a transcription or translation ask for; values may be JSON's or their texts.

    Raises:
        BadOption: a parameter is unknown, is missing, or cannot be honoured; `param` in the details names it.
    """
    _demand_known(fields, _TRANSCRIPTION if task == "transcribe" else _TRANSLATION)
    formats = TEXT_FORMATS if task == "transcribe" else TEXT_FORMATS[:-1]
    form = _choice(fields, "response_format", formats, "json")
    stream = _flag(fields, "stream", default=False)
    channels = _choice(fields, "channels", CHANNELS, "mix")
    _refuse_speakers(fields, form, channels)
    if "include" in fields and _texts(fields, "include"):
        raise _refused("include", "cannot be honoured: the engines give no probabilities of single tokens")
    if stream and form not in STREAMABLE:
        raise _refused("stream", f"goes with the formats {', '.join(sorted(STREAMABLE))}, and not with {form}")
    return TranscriptionWish(
        model=_text(fields, "model", required=True, longest=LONGEST_NAME),
        task=task,
        response_format=form,
        language=_language(fields),
        prompt=_text(fields, "prompt", longest=LONGEST_PROMPT),
        hotwords=_hotwords(fields),
        temperature=_number(fields, "temperature", 0, 1),
        granularities=_granularities(fields, form),
        stream=stream,
        channels=channels,
        detection=_detection(fields),
        render=_render(fields, form),
    )


def speech_wish(fields: Mapping[str, Any], longest: int) -> SpeechWish:
    """Return what the JSON object of a request for speech asks for.

    Args:
        fields: the object.
        longest: characters that the text may have.

    Raises:
        BadOption: a parameter is unknown, is missing, or cannot be honoured; `param` in the details names it.
    """
    _demand_known(fields, _SPEECH)
    text = _text(fields, "input", required=True, longest=longest)
    voice = fields.get("voice")
    if isinstance(voice, Mapping):
        if set(voice) != {"id"}:
            raise _refused("voice", "is a name, or an object with nothing but an id")
        voice = voice["id"]
    if not isinstance(voice, str) or not voice or len(voice) > LONGEST_NAME:
        raise _refused("voice", "is missing: name a voice, as `GET /v1/audio/voices` lists them")
    form = _choice(fields, "response_format", SOUND_FORMATS, "mp3")
    rate = _number(fields, "sample_rate", 8_000, 48_000, whole=True)
    speed = _number(fields, "speed", SLOWEST, FASTEST)
    seed = _number(fields, "seed", 0, _MAX_SEED, whole=True)
    return SpeechWish(
        model=_text(fields, "model", required=True, longest=LONGEST_NAME),
        text=text,
        voice=voice,
        instructions=_text(fields, "instructions", longest=LONGEST_PROMPT),
        response_format=form,
        speed=1.0 if speed is None else speed,
        stream=_choice(fields, "stream_format", ("audio", "sse"), "audio") == "sse",
        sample_rate_hz=int(rate or (PCM_RATE_HZ if form == "pcm" else 0)),
        language=_text(fields, "language", longest=LONGEST_NAME),
        seed=None if seed is None else int(seed),
    )


def _refused(name: str, why: str, hint: str = "docs/openai.md lists the parameters.") -> BadOption:
    """Return the error for a parameter, which it names as OpenAI's errors do."""
    return BadOption(f"{name} {why}", hint=hint, param=name)


def _demand_known(fields: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse the first parameter that is not known; one that is null is not given."""
    for name, value in fields.items():
        if name not in known and value is not None:
            shown = name[:LONGEST_NAME]
            raise BadOption(
                f"{shown} is no parameter of this endpoint", hint="docs/openai.md lists the parameters.", param=shown
            )


def _text(fields: Mapping[str, Any], name: str, *, longest: int, required: bool = False) -> str:
    """Return a text; empty where it is left out."""
    value = fields.get(name)
    if value is None or value == "":
        if required:
            raise _refused(name, "is missing")
        return ""
    if not isinstance(value, str):
        raise _refused(name, "is no text")
    if len(value) > longest:
        raise _refused(name, f"has {len(value)} characters, and may have {longest}")
    return value


def _texts(fields: Mapping[str, Any], name: str) -> list[str]:
    """Return a list of texts; one text alone counts as a list of it."""
    value = fields.get(name)
    items = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(items, Sequence) or not all(isinstance(item, str) for item in items):
        raise _refused(name, "is no list of texts")
    return [item for item in items if item]


def _choice(fields: Mapping[str, Any], name: str, known: Sequence[str], default: str) -> str:
    """Return one of the values that a parameter knows."""
    value = fields.get(name)
    if value is None or value == "":
        return default
    if not isinstance(value, str) or value not in known:
        raise _refused(name, f"has no such value; it knows {', '.join(known)}")
    return value


def _flag(fields: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Return a truth value, which forms write as a word."""
    value = fields.get(name)
    if value is None or value == "":
        return default
    if isinstance(value, bool):
        return value
    known = {"true": True, "1": True, "false": False, "0": False}
    if not isinstance(value, str) or value.lower() not in known:
        raise _refused(name, "is neither true nor false")
    return known[value.lower()]


def _number(fields: Mapping[str, Any], name: str, least: float, most: float, *, whole: bool = False) -> float | None:
    """Return a number within its limits; None where it is left out."""
    value = fields.get(name)
    if value is None or value == "":
        return None
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        number = None
    if number is None or not isfinite(number) or (whole and number != int(number)):
        raise _refused(name, "is no whole number" if whole else "is no number")
    if not least <= number <= most:
        raise _refused(name, f"is {number:g}, and must be from {least:g} to {most:g}")
    return number


def _language(fields: Mapping[str, Any]) -> str:
    """Return the language, which newer clients may write as a list of one."""
    language = _text(fields, "language", longest=LONGEST_NAME)
    several = _texts(fields, "languages")
    if not several:
        return language
    if len(several) > 1 or language:
        raise _refused("languages", "may name one language, and that in place of `language`")
    return several[0]


def _hotwords(fields: Mapping[str, Any]) -> str:
    """Return the words to expect: a text of ours, or OpenAI's list of keywords."""
    words = _text(fields, "hotwords", longest=LONGEST_PROMPT)
    keywords = ", ".join(_texts(fields, "keywords"))
    if len(keywords) > LONGEST_PROMPT:
        raise _refused("keywords", f"have more than {LONGEST_PROMPT} characters")
    return ", ".join(one for one in (words, keywords) if one)


def _granularities(fields: Mapping[str, Any], form: str) -> frozenset[str]:
    """Return what `verbose_json` is to list."""
    given = _texts(fields, "timestamp_granularities")
    unknown = sorted(set(given) - {"word", "segment"})
    if unknown:
        raise _refused("timestamp_granularities", "knows word and segment")
    if "word" in given and form != "verbose_json":
        raise _refused("timestamp_granularities", "with word needs response_format=verbose_json")
    return frozenset(given) or frozenset({"segment"})


def _refuse_speakers(fields: Mapping[str, Any], form: str, channels: str) -> None:
    """Refuse to label speakers, which no engine does; channels that were kept apart are labels of their own."""
    for name in ("known_speaker_names", "known_speaker_references"):
        if name in fields and _texts(fields, name):
            raise _refused(name, "cannot be honoured: no engine here knows speakers by their voice")
    if form == "diarized_json" and channels != "split":
        raise _refused(
            "response_format",
            "diarized_json needs labels of speakers, which no engine here gives",
            "With channels=split each channel of the recording is a speaker.",
        )


def _detection(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return how speech is told from silence, in the words of the step `prepare`."""
    found: dict[str, Any] = {}
    if not _flag(fields, "vad_filter", default=True):
        found["vad_filter"] = False
    strategy = fields.get("chunking_strategy")
    if not strategy or strategy == "auto":
        return found
    if not isinstance(strategy, Mapping) or strategy.get("type") != "server_vad":
        raise _refused("chunking_strategy", "is auto, or an object of the type server_vad")
    unknown = sorted(set(strategy) - {"type", *_VAD_FIELDS})
    if unknown:
        raise BadOption(f"chunking_strategy has no field {unknown[0]!r}", param="chunking_strategy")
    limits = {"threshold": (0.01, 0.99), "prefix_padding_ms": (0, 5_000), "silence_duration_ms": (0, 60_000)}
    for name, ours in _VAD_FIELDS.items():
        number = _number(strategy, name, *limits[name], whole=name != "threshold")
        if number is not None:
            found[ours] = number if name == "threshold" else int(number)
    return found


def _render(fields: Mapping[str, Any], form: str) -> dict[str, Any]:
    """Return the limits of subtitles, which nothing else has."""
    given: dict[str, Any] = {}
    for name in _RENDER:
        if fields.get(name) is None or fields[name] == "":
            continue
        if form not in {"srt", "vtt"}:
            raise _refused(name, "goes with the formats srt and vtt alone")
        if name == "subtitle_profile":
            given[name] = _text(fields, name, longest=LONGEST_NAME)
            continue
        number = _number(fields, name, 1, 10_000, whole=name in _WHOLE)
        given[name] = int(number or 0) if name in _WHOLE else number
    try:
        return RenderOptions.from_json(given).to_json()
    except BadOption as error:
        raise BadOption(error.message, hint=error.hint, param=next(iter(given))) from None
