"""Tables of texts to speak: CSV with the columns `text`, `voice` and `out`, in any order, and others besides."""

import csv
import io
from dataclasses import dataclass

from voicejobs.errors import BadText

TEXT, VOICE, OUT = "text", "voice", "out"
_MAX_FIELD_CHARS = 10_000_000
_DELIMITERS = ",;\t|"


@dataclass(frozen=True, slots=True)
class TextRow:
    """Hold a row of a table.

    Args:
        line: number of the line on which it begins, from 1.
        text: what is to be spoken, as written.
        voice: with which voice; empty for that of the command.
        out: where the sound goes, below the output folder; empty for the number of the row.
    """

    line: int
    text: str
    voice: str = ""
    out: str = ""


def read_text_table(content: str, name: str) -> list[TextRow]:
    """Return the rows of a table that have anything in them, in its order.

    The first line names the columns, in any case. Fields are parted by commas, or by semicolons, tabs or bars where
    the first line has those instead. Columns with other names are passed over.

    Args:
        content: the text of the file.
        name: what errors call it.

    Raises:
        BadText: it has no column `text`, or names one twice.
    """
    csv.field_size_limit(_MAX_FIELD_CHARS)
    first, _, _ = content.partition("\n")
    delimiter = max(_DELIMITERS, key=first.count)
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter)
    rows: list[TextRow] = []
    try:
        columns = _columns(next(reader, []), name)
        began = reader.line_num + 1
        for row in reader:
            if any(field.strip() for field in row):
                rows.append(_row(row, columns, began))
            began = reader.line_num + 1
    except csv.Error as error:
        raise BadText(f"{name} is no CSV: {error} in line {reader.line_num}") from error
    return rows


def _columns(header: list[str], name: str) -> dict[str, int]:
    """Return the place of each column that counts."""
    names = [field.strip().lower() for field in header]
    columns = {column: names.index(column) for column in (TEXT, VOICE, OUT) if column in names}
    if TEXT not in columns:
        raise BadText(
            f"{name} has no column {TEXT!r}", hint="The first line names the columns: text, and voice and out at will."
        )
    twice = next((column for column in columns if names.count(column) > 1), None)
    if twice is not None:
        raise BadText(f"{name} has two columns {twice!r}", hint="Leave one of them.")
    return columns


def _row(row: list[str], columns: dict[str, int], line: int) -> TextRow:
    """Return a row; a field that is missing at its end is empty."""
    fields = {column: row[place] if place < len(row) else "" for column, place in columns.items()}
    return TextRow(line, fields[TEXT], fields.get(VOICE, "").strip(), fields.get(OUT, "").strip())
