"""Large JSON is read in pieces, and is the same as if it were not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicejobs import piecewise

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=6)
)
PIECES = st.sampled_from([1, 2, 3, 7, 30])


@given(VALUES, PIECES, st.sampled_from([None, 1]), st.booleans())
def test_the_value_is_that_of_the_standard_library(
    value: Any, chars: int, indent: int | None, ascii_only: bool
) -> None:
    """Whatever the value, its spelling, and the length of the pieces."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(piecewise, "PIECE_CHARS", chars)
        patch.setattr(piecewise, "BLOCK_BYTES", chars)
        assert piecewise.loads(text) == value
        assert piecewise.loads(text.encode("utf-8", "replace")) == json.loads(text.encode("utf-8", "replace"))


@given(VALUES, PIECES, st.data())
def test_what_is_no_json_is_refused(value: Any, chars: int, data: st.DataObject) -> None:
    """A text from which something was taken, or to which something was added, is read or refused as there."""
    text = json.dumps(value)
    place = data.draw(st.integers(0, len(text)))
    broken = text[:place] + data.draw(st.sampled_from(["", *'{}[]",: 1x'])) + text[place + 1 :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(piecewise, "PIECE_CHARS", chars)
        try:
            expected = json.loads(broken)
        except ValueError:
            with pytest.raises(ValueError):  # noqa: PT011 - as json.loads, of which no more is promised
                piecewise.loads(broken)
        else:
            assert piecewise.loads(broken) == expected


def test_no_call_reads_more_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a document of megabytes no call takes more than some thousand characters, texts and numbers aside."""
    document = {"items": [{"source": {"text": f"Text {number}"}, "list": [[]] * 9} for number in range(20_000)]}
    text = json.dumps(document)
    lengths = []
    read = piecewise._read

    def noted(part: str, at: int) -> tuple[Any, int]:
        if part[at] in "{[":
            lengths.append(len(part) - at)
        return read(part, at)

    monkeypatch.setattr(piecewise, "_read", noted)
    assert piecewise.loads(text.encode()) == document
    assert max(lengths) <= piecewise.PIECE_CHARS
    assert len(lengths) > len(text) / piecewise.PIECE_CHARS


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[[" * 50 + " " * 20_000 + "[" * 100_000])
def test_a_document_without_end_is_no_json(text: str) -> None:
    """Levels without end are refused, and take no stack away."""
    with pytest.raises((ValueError, RecursionError)):
        piecewise.loads(text)


def test_bytes_that_are_no_text_are_refused() -> None:
    """So are those that end in the middle of a character; a byte order mark is left out."""
    assert piecewise.loads(b'\xef\xbb\xbf"\xc3\xa9"') == "é"
    for data in (b'"\xff"', b'"\xc3'):
        with pytest.raises(ValueError, match="utf-8"):
            piecewise.loads(data)


@given(st.lists(st.text(max_size=5)), PIECES)
def test_parts_are_joined(parts: list[str], count: int) -> None:
    """Many short texts become one, in UTF-8."""
    kept = [part.encode("utf-8", "ignore").decode() for part in parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(piecewise, "PARTS_AT_ONCE", count)
        assert piecewise.encoded(iter(kept)) == "".join(kept).encode()


def test_values_are_counted_on_all_levels() -> None:
    """What a value holds counts wherever it is; a single text or number holds nothing."""
    value = {"a": [1, 2, {"b": []}], "c": "text"}
    assert not piecewise.has_more_values(value, 6)
    assert piecewise.has_more_values(value, 5)
    assert not piecewise.has_more_values("text", 0)


def test_characters_are_counted_on_all_levels() -> None:
    """Names count as well as texts, numbers do not."""
    value = {"ab": ["cde", {"f": "g"}], "h": 12345}
    assert not piecewise.has_more_chars(value, 8)
    assert piecewise.has_more_chars(value, 7)
    assert piecewise.has_more_chars("abc", 2)
