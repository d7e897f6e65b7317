"""Batches as files with a JSON object on each line: what comes in, line by line, and what goes out."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from voicejobs.errors import VoicejobsError

TRANSCRIPTIONS = "/v1/audio/transcriptions"
TRANSLATIONS = "/v1/audio/translations"
SPEECH = "/v1/audio/speech"
ENDPOINTS = (TRANSCRIPTIONS, TRANSLATIONS, SPEECH)
"""What a batch can be for; all its lines are for the same."""
LONGEST_CUSTOM_ID = 512
MAX_DEPTH = 32
"""Levels of objects and lists in a line: no request needs more, and a parser has limits of its own."""
_KEYS = frozenset({"custom_id", "method", "url", "body"})


@dataclass(frozen=True, slots=True)
class Line:
    """Hold one request.

    Args:
        number: of the line in the file, from 1.
        custom_id: by which whoever wrote it knows the answer.
        body: what a request to the endpoint has as its body.
    """

    number: int
    custom_id: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BadLine:
    """Say what is wrong with a line: `code`, `message`, and the parameter at fault where it is one.

    `is_fatal`: the whole batch cannot be, since answers could not be told apart or the file is none of ours.
    """

    number: int
    code: str
    message: str
    custom_id: str = ""
    param: str | None = None
    is_fatal: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, line: Line, error: VoicejobsError) -> "BadLine":
        """Return what an error says of a line."""
        told = error.details.get("param")
        return cls(line.number, error.code, error.message, line.custom_id, None if told is None else f"body.{told}")

    def to_json(self) -> dict[str, Any]:
        """Return it as it stands in `errors.data` of a batch."""
        return {"code": self.code, "line": self.number, "message": self.message, "param": self.param}


def read_lines(file: BinaryIO, endpoint: str, *, most: int, longest_bytes: int) -> Iterator[Line | BadLine]:
    """Yield the requests of a file, and what is wrong with the lines that are none; empty lines are left out.

    Reading ends with the first fatal fault. No more than one line is in memory.

    Args:
        file: opened for reading bytes.
        endpoint: what all lines must be for.
        most: lines that a batch may have.
        longest_bytes: bytes that a line may have.
    """
    seen: dict[str, int] = {}
    count = number = 0
    while data := file.readline(longest_bytes + 1):
        number += 1
        if len(data) > longest_bytes:
            yield BadLine(number, "line_too_long", f"The line has more than {longest_bytes} bytes", is_fatal=True)
            return
        if not data.strip():
            continue
        count += 1
        if count > most:
            yield BadLine(number, "too_many_lines", f"A batch may have {most} requests", is_fatal=True)
            return
        found = parse_line(number, data, endpoint)
        first = seen.setdefault(found.custom_id, number) if found.custom_id else number
        if first != number:
            yield BadLine(
                number,
                "duplicate_custom_id",
                f"The custom_id {found.custom_id!r} is that of line {first} too",
                found.custom_id,
                "custom_id",
                is_fatal=True,
            )
            return
        yield found


def parse_line(number: int, data: bytes, endpoint: str) -> Line | BadLine:
    """Return the request on a line, or what is wrong with it; what its body asks for is not looked at."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return BadLine(number, "invalid_json_line", "The line is no JSON")
    if not isinstance(document, dict):
        return BadLine(number, "invalid_json_line", "The line is no JSON object")
    if (b"\\u" in data or b"\xed" in data) and not _is_text(document):
        return BadLine(number, "invalid_json_line", "The line holds a surrogate alone, which is no character")
    custom_id = document.get("custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= LONGEST_CUSTOM_ID:
        message = f"custom_id is no text of 1 to {LONGEST_CUSTOM_ID} characters"
        return BadLine(number, "invalid_custom_id", message, param="custom_id")
    wrong = _wrong_with(document, endpoint)
    if wrong is not None:
        code, message, param = wrong
        return BadLine(number, code, message, custom_id, param)
    return Line(number, custom_id, document["body"])


def _is_text(document: Any) -> bool:
    """Tell whether all texts of a document can be written: JSON may name halves of characters."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _wrong_with(document: Mapping[str, Any], endpoint: str) -> tuple[str, str, str] | None:
    """Return code, message and parameter of what is wrong with a line beside its body."""
    unknown = sorted(set(document) - _KEYS)
    if unknown:
        return "unknown_field", f"There is no field {unknown[0][:LONGEST_CUSTOM_ID]!r} in a line", "line"
    if document.get("method", "POST") != "POST":
        return "invalid_method", "method is not POST", "method"
    if document.get("url") != endpoint:
        return "mismatched_url", f"url is not {endpoint}, the endpoint of the batch", "url"
    body = document.get("body")
    if not isinstance(body, dict):
        return "invalid_body", "body is no object", "body"
    if _depth(body) > MAX_DEPTH:
        return "invalid_body", f"body has more than {MAX_DEPTH} levels", "body"
    return None


def _depth(value: Any) -> int:
    """Return how many levels of objects and lists a value has, at most one beyond the limit."""
    level, depth = [value], 0
    while level and depth <= MAX_DEPTH:
        nested = [item for item in level if isinstance(item, dict | list)]
        if not nested:
            break
        depth += 1
        level = [inner for item in nested for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


def output_line(job_id: str, custom_id: str, body: Any, *, status_code: int = 200) -> bytes:
    """Return the line of an answer."""
    response = {"status_code": status_code, "request_id": f"req_{job_id.removeprefix('job_')}", "body": body}
    return _dump({"id": f"batch_req_{job_id.removeprefix('job_')}", "custom_id": custom_id, "response": response,
                  "error": None})  # fmt: skip


def failed_line(job_id: str, custom_id: str, error: Mapping[str, Any], *, status_code: int) -> bytes:
    """Return the line of a request that was answered with an error: `error` has message, type, param and code."""
    return output_line(job_id, custom_id, {"error": dict(error)}, status_code=status_code)


def undone_line(job_id: str, custom_id: str, code: str, message: str) -> bytes:
    """Return the line of a request that was never answered, since the batch ended before."""
    error = {"code": code, "message": message}
    return _dump({"id": f"batch_req_{job_id.removeprefix('job_')}", "custom_id": custom_id, "response": None,
                  "error": error})  # fmt: skip


def bad_line(batch_id: str, bad: BadLine) -> bytes:
    """Return the line of a request that was never one; who has no custom_id is known by the number of the line."""
    error = {"message": bad.message, "type": "invalid_request_error", "param": bad.param, "code": bad.code}
    known_as = f"{batch_id.removeprefix('batch_')}-{bad.number}"
    document = json.loads(failed_line(known_as, bad.custom_id, error, status_code=400))
    return _dump({**document, "custom_id": bad.custom_id or None, "line": bad.number})


def _dump(document: Any) -> bytes:
    """Return a document on a line of its own."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
