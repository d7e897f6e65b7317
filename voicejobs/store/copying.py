"""Copy rows into a table of Postgres: several times quicker than insertion, in the caller's transaction."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from sqlalchemy import Connection, Table

_BLOCK_ROWS = 500


def copy_rows(connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Copy rows that all have the same columns; those that they lack get their defaults."""
    iterator = iter(rows)
    first = next(iterator, None)
    if first is not None:
        lines = (text_of(row.values()) for row in chain([first], iterator))
        copy_lines(connection, table, list(first), lines)


def copy_lines(connection: Connection, table: Table, columns: Sequence[str], lines: Iterable[str]) -> None:
    """Copy rows that are text already, as `text_of` writes it; the server takes them in while more are being made."""
    names = ", ".join(f'"{name}"' for name in columns)
    driver: Any = connection.connection.driver_connection  # psycopg's own: SQLAlchemy knows no COPY
    iterator = iter(lines)
    with driver.cursor() as cursor, cursor.copy(f'COPY "{table.name}" ({names}) FROM STDIN') as copy:
        while block := list(islice(iterator, _BLOCK_ROWS)):
            copy.write("\n".join([*block, ""]))


def text_of(values: Collection[Any]) -> str:
    """Return a row as COPY reads text: tabs between the columns, and a backslash before what would end one."""
    texts = ["\\N" if value is None else value if type(value) is str else str(value) for value in values]
    line = "\t".join(texts)
    nulls = texts.count("\\N")
    # Nearly all rows have nothing to escape, and to count in all of a row is quicker than to look into each column.
    if "\n" in line or "\r" in line or line.count("\t") != len(texts) - 1 or line.count("\\") != nulls:
        line = "\t".join(["\\N" if value is None else _escaped(str(value)) for value in values])
    return line


def _escaped(text: str) -> str:
    """Return a value in which nothing ends it too early."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
