"""Reading tables of counts: Parquet and CSV files, and queries of DuckDB and SQLite databases."""

import csv
import io
import re
import sqlite3
from pathlib import Path
from typing import Any

from sstq.checks import ArgumentError
from sstq.files.parquet import MAGIC, open_parquet
from sstq.files.stores import open_object

_SQLITE = b"SQLite format 3\x00"
_DUCKDB = b"DUCK"
# A DuckDB database has its mark after a checksum.
_DUCKDB_AT = 8


def read_count_table(
    path: str, query: str | None = None, text: str | None = None
) -> Any:
    """Read a table of counts as columns by name; the values of the column `text` of a CSV file stay as they are."""
    with open_object(path) if "://" in path else open(path, "rb") as file:
        start = file.read(16)
        file.seek(0)
        database = start == _SQLITE or start[_DUCKDB_AT:].startswith(_DUCKDB)
        if database != (query is not None):
            what = "one" if database else "none"
            raise ArgumentError(
                "query", f"reads a DuckDB or SQLite database; {path} is {what}"
            )
        if start.startswith(MAGIC):
            with open_parquet(file) as table:
                return table.read()
        if query is None:
            return _read_csv(file.read(), path, text)
    return (
        _query_sqlite(path, query) if start == _SQLITE else _query_duckdb(path, query)
    )


def _query_sqlite(path: str, query: str) -> dict[str, list[Any]]:
    connection = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)
    try:
        result = connection.execute(query)
        rows = result.fetchall()
        names = [column[0] for column in result.description or ()]
    except sqlite3.Error as error:
        raise ValueError(f"{path}: the query failed: {error}") from error
    finally:
        connection.close()
    return _table(names, rows, path)


def _table(names: list[str], rows: list[Any], path: str) -> dict[str, list[Any]]:
    """Rows as columns by name; ValueError for two of one name."""
    if len(set(names)) < len(names):
        raise ValueError(
            f"{path}: columns must have distinct names, got {', '.join(names)}"
        )
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def _query_duckdb(path: str, query: str) -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise ImportError(f"{path} needs DuckDB: pip install duckdb") from error
    try:
        with duckdb.connect(path, read_only=True) as connection:
            result = connection.sql(query)
            return {} if result is None else result.to_arrow_table()
    except duckdb.Error as error:
        raise ValueError(f"{path}: the query failed: {error}") from error


def _read_csv(raw: bytes, path: str, text: str | None) -> dict[str, list[Any]]:
    try:
        rows = list(csv.reader(io.StringIO(raw.decode("utf-8-sig"))))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"{path} must be a Parquet or CSV file of counts: {error}"
        ) from error
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise ValueError(
            f"{path} must be a CSV file with a header and as many fields in every line"
        )
    columns = _table(rows[0], rows[1:], path)
    return {
        name: values if name == text else [_integer(value) for value in values]
        for name, values in columns.items()
    }


def _integer(text: str) -> int | str:
    """The integer that a field is; its text if it is none, which is refused where numbers are expected."""
    return int(text) if re.fullmatch("-?[0-9]{1,30}", text) else text
