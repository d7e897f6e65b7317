"""What openapi.json says of the OpenAI-compatible endpoints whose bodies no model of the framework describes."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from voicejobs.api.openai_wishes import CHANNELS, FASTEST, SLOWEST, SOUND_FORMATS, TEXT_FORMATS
from voicejobs.formats.options import PROFILES

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
_MODEL: Schema = {"type": "string", "maxLength": 256, "description": "A name that `GET /v1/models` lists."}
_FILE: Schema = {"type": "string", "format": "binary", "description": "The recording."}
_RENDER: Mapping[str, Schema] = {
    "subtitle_profile": {"type": "string", "enum": list(PROFILES)},
    "max_line_width": {"type": "integer", "minimum": 1},
    "max_line_count": {"type": "integer", "minimum": 1},
    "max_words_per_line": {"type": "integer", "minimum": 1},
    "max_chars_per_second": {"type": "number", "minimum": 1},
}
_LISTENING: Mapping[str, Schema] = {
    "file": _FILE,
    "model": _MODEL,
    "prompt": _TEXT,
    "temperature": {"type": "number", "minimum": 0, "maximum": 1},
    "hotwords": _TEXT,
    "vad_filter": {"type": "boolean"},
    **_RENDER,
}
TRANSCRIPTION_FORM: Schema = {
    "type": "object",
    "required": ["file", "model"],
    "properties": {
        **_LISTENING,
        "response_format": {"type": "string", "enum": list(TEXT_FORMATS)},
        "language": _TEXT,
        "timestamp_granularities[]": {"type": "array", "items": {"type": "string", "enum": ["word", "segment"]}},
        "stream": {"type": "boolean"},
        "keywords[]": _TEXTS,
        "channels": {"type": "string", "enum": list(CHANNELS)},
        "chunking_strategy": {"type": "string", "enum": ["auto"]},
    },
}
TRANSLATION_FORM: Schema = {
    "type": "object",
    "required": ["file", "model"],
    "properties": {**_LISTENING, "response_format": {"type": "string", "enum": list(TEXT_FORMATS[:-1])}},
}
SPEECH_FORM: Schema = {
    "type": "object",
    "required": ["model", "input", "voice"],
    "additionalProperties": False,
    "properties": {
        "model": _MODEL,
        "input": {"type": "string", "minLength": 1},
        "voice": {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": 256},
                {"type": "object", "required": ["id"], "properties": {"id": _TEXT}, "additionalProperties": False},
            ]
        },
        "instructions": _TEXT,
        "response_format": {"type": "string", "enum": list(SOUND_FORMATS)},
        "speed": {"type": "number", "minimum": SLOWEST, "maximum": FASTEST},
        "stream_format": {"type": "string", "enum": ["audio", "sse"]},
        "sample_rate": {"type": "integer", "minimum": 8000, "maximum": 48000},
        "language": _TEXT,
        "seed": {"type": "integer", "minimum": 0},
    },
    "example": {"model": "tts-1", "input": "Good morning.", "voice": "alloy"},
}
FILE_FORM: Schema = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"type": "string", "enum": ["assistants", "batch", "evals", "fine-tune", "user_data", "vision"]},
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2_592_000},
    },
}
PART_FORM: Schema = {
    "type": "object",
    "required": ["data"],
    "properties": {
        "data": {"type": "string", "format": "binary"},
        "sha256": {"type": "string", "pattern": "^[0-9a-fA-F]{64}$", "description": "What its hash must be."},
    },
}
_BINARY: Schema = {"schema": {"type": "string", "format": "binary"}}
_BARE: Schema = {"schema": {"type": "string"}}
_EVENTS: Schema = {"text/event-stream": _BARE}
_ACCEPTED: Schema = {
    "description": "The job, where the caller prefers not to wait.",
    "content": {"application/json": {"schema": {"type": "object"}}},
}
TRANSCRIPTION_ANSWERS: dict[int | str, Schema] = {
    200: {
        "description": "What is said, in the form that was asked for.",
        "content": {
            "application/json": {
                "schema": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
            },
            "text/plain": _BARE,
            "text/vtt": _BARE,
            "application/x-subrip": _BARE,
            **_EVENTS,
        },
    },
    202: _ACCEPTED,
}
CONTENT_ANSWERS: dict[int | str, Schema] = {
    200: {"description": "The bytes.", "content": {"application/octet-stream": _BINARY}},
    206: {"description": "Some of the bytes.", "content": {"application/octet-stream": _BINARY}},
    416: {"description": "There are no such bytes.", "content": {"text/plain": _BARE}},
}
SPEECH_ANSWERS: dict[int | str, Schema] = {
    200: {
        "description": "The sound.",
        "content": {
            **dict.fromkeys(("audio/mpeg", "audio/ogg", "audio/aac", "audio/flac", "audio/wav", "audio/pcm"), _BINARY),
            **_EVENTS,
        },
    },
    202: _ACCEPTED,
}


def form_body(schema: Schema) -> dict[str, Any]:
    """Return the description of a body that is a form."""
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


def json_body(schema: Schema) -> dict[str, Any]:
    """Return the description of a body that is a JSON object."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def json_response(document: Any, *, status_code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON answer that no model of the framework looks at."""
    content = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Response(content, status_code=status_code, headers=headers, media_type="application/json")
