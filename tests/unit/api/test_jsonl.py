"""Batches as files with a JSON object on each line."""

import io
import json
from typing import Any

import pytest

from voicejobs.api.jsonl import SPEECH, TRANSCRIPTIONS, BadLine, Line, bad_line, output_line, read_lines


def line(custom_id: str = "a", **more: Any) -> dict[str, Any]:
    """Return a request as its line holds it."""
    return {"custom_id": custom_id, "method": "POST", "url": TRANSCRIPTIONS, "body": {"model": "base"}, **more}


def read(*lines: Any, most: int = 10, longest_bytes: int = 10_000) -> list[Line | BadLine]:
    """Return what is found in a file."""
    data = b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in lines)
    return list(read_lines(io.BytesIO(data), TRANSCRIPTIONS, most=most, longest_bytes=longest_bytes))


def test_lines_are_read_and_empty_ones_left_out() -> None:
    """The number is that of the line in the file, whatever is left out."""
    assert read(line("a"), b"", b"  ", line("\N{GRINNING FACE}\N{HANGUL SYLLABLE TAE}")) == [
        Line(1, "a", {"model": "base"}),
        Line(4, "\N{GRINNING FACE}\N{HANGUL SYLLABLE TAE}", {"model": "base"}),
    ]


@pytest.mark.parametrize(
    ("wrong", "code", "param"),
    [
        (b"{", "invalid_json_line", None),
        (b"\xff\xfe", "invalid_json_line", None),
        (b"[" * 100_000, "line_too_long", None),
        ([], "invalid_json_line", None),
        (line("\ud800"), "invalid_json_line", None),
        (line(body={"model": "base", "prompt": "\udfff"}), "invalid_json_line", None),
        (b'{"custom_id": "\xed\xa0\x80"}', "invalid_json_line", None),
        (line(""), "invalid_custom_id", "custom_id"),
        (line("x" * 513), "invalid_custom_id", "custom_id"),
        (line(method="GET"), "invalid_method", "method"),
        (line(url=SPEECH), "mismatched_url", "url"),
        (line(body="text"), "invalid_body", "body"),
        (line(model="base"), "unknown_field", "line"),
    ],
)
def test_a_line_that_is_no_request_says_why(wrong: Any, code: str, param: str | None) -> None:
    """What is wrong has a code, and the field where there is one."""
    (bad,) = read(wrong)
    assert isinstance(bad, BadLine)
    assert (bad.number, bad.code, bad.param) == (1, code, param)


def test_a_body_of_too_many_levels_is_refused() -> None:
    """No request needs them, and whoever reads them recursively would fall over."""
    body: dict[str, Any] = {}
    for _ in range(40):
        body = {"a": [body]}
    (bad,) = read(line(body=body))
    assert isinstance(bad, BadLine)
    assert bad.code == "invalid_body"


def test_a_custom_id_that_comes_twice_ends_the_reading() -> None:
    """Answers could not be told apart: the fault is fatal and names the line."""
    found = read(line("a"), line("a"), line("b"))
    assert isinstance(found[-1], BadLine)
    assert (found[-1].number, found[-1].code, found[-1].is_fatal, len(found)) == (2, "duplicate_custom_id", True, 2)


def test_a_bad_line_takes_its_custom_id() -> None:
    """A line with a wrong body is answered under its name, which no other may have."""
    found = read(line("a", body=3), line("a"))
    assert [isinstance(one, BadLine) for one in found] == [True, True]
    assert found[1].is_fatal  # type: ignore[union-attr]


def test_more_lines_than_may_be_end_the_reading() -> None:
    """The limit counts requests, and the fault is fatal."""
    found = read(*(line(str(number)) for number in range(5)), most=3)
    assert (len(found), found[-1].code) == (4, "too_many_lines")  # type: ignore[union-attr]


def test_lines_that_go_out_have_the_form_of_openai() -> None:
    """An answer and a refused line are told alike, each under its custom_id."""
    answer = json.loads(output_line("job_1", "a", {"text": "x"}))
    assert answer == {
        "id": "batch_req_1",
        "custom_id": "a",
        "response": {"status_code": 200, "request_id": "req_1", "body": {"text": "x"}},
        "error": None,
    }
    refused = json.loads(bad_line("batch_9", BadLine(4, "invalid_json_line", "The line is no JSON")))
    assert (refused["custom_id"], refused["line"], refused["response"]["status_code"]) == (None, 4, 400)
    assert refused["response"]["body"]["error"]["code"] == "invalid_json_line"
