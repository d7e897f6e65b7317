"""What a request may say of the options of each step, as JSON Schema; and the check of values against it.

Options that a request has no say in (the hash of a model, the place of outputs, threads) are not here.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from voicejobs.errors import BadOption
from voicejobs.steps.registry import step

Schema = Mapping[str, Any]

_TEXT: Final = {"type": "string", "maxLength": 4096}
_NAME: Final = {"type": "string", "maxLength": 200}
_FLAG: Final = {"type": "boolean"}
_DEVICE: Final = {"type": "string", "pattern": r"auto|cpu|cuda(:\d{1,3})?"}
_FORMATS: Final = {"type": "array", "items": {"type": "string"}, "maxItems": 16}


def _number(low: float, high: float, **further: Any) -> dict[str, Any]:
    return {"type": "number", "minimum": low, "maximum": high, **further}


def _count(low: int, high: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high}


def _or_null(schema: Schema) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


_LINES: Final = {
    "language": _or_null(_NAME),
    "max_chars": _count(20, 2000),
    "sentence_pause_s": _number(0, 60),
    "paragraph_pause_s": _number(0, 60),
}
_PAIRS: Final = {
    "type": "array",
    "items": {"type": "array", "items": _TEXT, "minItems": 2, "maxItems": 2},
    "maxItems": 1000,
}
_TIMES: Final = {"type": "array", "items": _or_null(_number(0, 1e7)), "minItems": 2, "maxItems": 2}

SCHEMAS: Final[Mapping[str, Mapping[str, Schema]]] = {
    "prepare": {
        "channels": {"type": "string", "enum": ["mix", "split", "left", "right"]},
        "clips": {"type": "array", "items": _TIMES, "maxItems": 1000},
        "max_audio_s": _number(0, 1e7),
        "vad_engine": _NAME,
        "vad_filter": _FLAG,
        "vad_threshold": _number(0.01, 0.99),
        "vad_min_speech_ms": _count(0, 60_000),
        "vad_min_silence_ms": _count(0, 60_000),
        "vad_pad_ms": _count(0, 5_000),
        "vad_max_window_s": _number(1, 30),
    },
    "recognise": {
        "engine": _NAME,
        "model": _NAME,
        "language": _or_null(_NAME),
        "task": {"type": "string", "enum": ["transcribe", "translate"]},
        "word_timestamps": {"type": ["boolean", "null"]},
        "initial_prompt": _TEXT,
        "hotwords": _TEXT,
        "temperatures": {"type": "array", "items": _number(0, 2), "minItems": 1, "maxItems": 16},
        "beam_size": _count(1, 20),
        "best_of": _count(1, 20),
        "patience": _number(0.1, 10),
        "length_penalty": _number(-10, 10),
        "repetition_penalty": _number(0.1, 10),
        "no_repeat_ngram_size": _count(0, 100),
        "suppress_tokens": {"type": "array", "items": _count(-1, 1_000_000), "maxItems": 1000},
        "compression_ratio_threshold": _or_null(_number(0, 100)),
        "logprob_threshold": _or_null(_number(-100, 0)),
        "no_speech_threshold": _or_null(_number(0, 1)),
        "condition_on_previous_text": _FLAG,
        "compute_type": _NAME,
        "device": _DEVICE,
    },
    "deliver": {"formats": _FORMATS, "render": {"type": "object"}},
    "plan_text": {**_LINES, "markup": _NAME},
    "plan_captions": _LINES,
    "retell": {**_LINES, "keep_times": _FLAG, "replace": _PAIRS},
    "synthesise": {
        "engine": _NAME,
        "model": _NAME,
        "voice": _NAME,
        "speed": _number(0.25, 4),
        "seed": _or_null(_count(0, 2**31 - 1)),
        "mode": _NAME,
        "instruct": _TEXT,
        "prompt_text": _TEXT,
        "prompt_audio": {"type": "string", "maxLength": 4_000_000, "pattern": r"[A-Za-z0-9+/=]*"},
        "prompt_file_id": _NAME,
        "max_speed": _number(1, 4),
        "max_stretch": _number(1, 2),
        "verify": _FLAG,
        "verify_model": _NAME,
        "device": _DEVICE,
    },
    "join": {
        "formats": _FORMATS,
        "captions": _FORMATS,
        "render": {"type": "object"},
        "sample_rate_hz": _count(0, 192_000),
        "crossfade_ms": _number(0, 1000),
    },
}
"""By step and option: those of the step, and `verify_model` of `verify`, `prompt_file_id` instead of `prompt_audio`."""

_KINDS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "array": list,
    "object": dict,
    "null": type(None),
}


def schema_of(step_name: str) -> dict[str, Any]:
    """Return the JSON Schema of the options that a request may give a step, with the defaults of the step."""
    defaults = step(step_name).defaults
    properties = {
        name: {**schema, **({"default": defaults[name]} if name in defaults and name != "verify" else {})}
        for name, schema in SCHEMAS.get(step_name, {}).items()
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def check(value: Any, schema: Schema, param: str) -> None:
    """Refuse a value that does not fit its schema.

    Args:
        value: a JSON value.
        schema: what is said of it above.
        param: how the error names it.

    Raises:
        BadOption: it does not fit; `param` in the details names the place.
    """
    for what in _faults(value, schema):
        raise BadOption(f"{param} {what}", hint="GET /api/v1/pipelines lists the options.", param=param)
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            check(item, schema["items"], f"{param}[{number}]")


def _faults(value: Any, schema: Schema) -> Iterator[str]:
    """Yield what is wrong with a value, without its items."""
    kinds = [schema["type"]] if isinstance(schema["type"], str) else list(schema["type"])
    if not any(_is_of(value, kind) for kind in kinds):
        yield f"must be of the type {' or '.join(kinds)}"
    elif value is not None:
        yield from _limits(value, schema)


def _limits(value: Any, schema: Schema) -> Iterator[str]:
    """Yield which limits a value of the right type passes."""
    if "enum" in schema and value not in schema["enum"]:
        yield f"must be one of {', '.join(map(str, schema['enum']))}"
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        yield "has another form than it must"
    if "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
        yield f"must be within {schema['minimum']:g} to {schema['maximum']:g}"
    if len(value) > schema.get("maxLength", len(value)) if isinstance(value, str) else False:
        yield f"is longer than {schema['maxLength']} characters"
    if isinstance(value, list) and not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"has {len(value)} items"


def _is_of(value: Any, kind: str) -> bool:
    """Tell whether a value is of a JSON type; true and false are no numbers, and `nan` is none either."""
    if kind in {"integer", "number"} and (isinstance(value, bool) or (isinstance(value, float) and math.isnan(value))):
        return False
    return isinstance(value, _KINDS[kind])
