"""Tables of texts: CSV as people and spreadsheets write it."""

import pytest

from voicejobs.errors import BadText
from voicejobs.formats.text_table import TextRow, read_text_table


def test_columns_are_found_by_name_in_any_order_and_case() -> None:
    """Other columns are passed over, and fields that are missing at the end of a row are empty."""
    rows = read_text_table("id,OUT, Text ,voice\n1,a/b,Hello,joe\n2,,Bye\n", "t.csv")
    assert rows == [TextRow(2, "Hello", "joe", "a/b"), TextRow(3, "Bye")]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_fields_are_parted_by_what_the_first_line_has(mark: str) -> None:
    """Spreadsheets of many countries write semicolons; texts may hold the other marks."""
    rows = read_text_table(f"text{mark}out\nOne{mark}x\n", "t.csv")
    assert rows == [TextRow(2, "One", "", "x")]


def test_quoted_texts_may_hold_anything() -> None:
    """Commas, quotes and line breaks inside a field stay, and rows know the line on which they begin."""
    rows = read_text_table('text,out\r\n"One, ""two""\nthree",a\r\n\r\n,\r\nLast,b\r\n', "t.csv")
    assert rows == [TextRow(2, 'One, "two"\nthree', "", "a"), TextRow(6, "Last", "", "b")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no column 'text'"),
        ("Hello\nBye\n", "has no column 'text'"),
        ("text,text\na,b\n", "has two columns 'text'"),
    ],
)
def test_what_is_no_table_of_texts_is_refused(content: str, message: str) -> None:
    """The message names the file and the column."""
    with pytest.raises(BadText, match=rf"t\.csv {message}"):
        read_text_table(content, "t.csv")
