"""Tables of counts in `sstq aggregate`: Parquet and CSV files, and queries of DuckDB and SQLite databases."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.cli.terminal import note, warn
from sstq.cli.usage import WrongUsage

if TYPE_CHECKING:
    from sstq import Aggregator, Mechanism

_SQLITE, _PARQUET, _DUCKDB = b"SQLite format 3\x00", b"PAR1", b"DUCK"
# A DuckDB database has its mark after a checksum.
_DUCKDB_AT = 8


def add_counts(
    sums: Aggregator[Any] | dict[str, Aggregator[Any]],
    sources: set[str],
    mechanism: Mechanism,
    path: str,
    query: str | None,
    by: str | None,
) -> bool:
    """Add a table of counts as a whole; returns whether it was added, because each table counts once."""
    from sstq.aggregation.counts import COUNT, COUNTED, column_names, fingerprint

    table = _read(path, query, by)
    try:
        if by is not None and by not in column_names(table):
            raise ValueError(f"there is no column {by!r}")
        source = COUNTED + fingerprint(table, COUNT, mechanism.counted_layout, by)[len(COUNTED) :]
        if source in sources:
            warn(
                f"{path} has the same rows as a table that was added before, and is skipped. If they count other "
                "messages, unite both tables with UNION ALL, and add that one to a new --output"
            )
            return False
        if not isinstance(sums, dict):
            sums.update_counts(table, source=source)
            return True
        _add_by_label(sums, mechanism, table, str(by))
        sources.add(source)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return True


def _add_by_label(sums: dict[str, Aggregator[Any]], mechanism: Mechanism, table: Any, by: str) -> None:
    """Add a table of counts to the sums of its labels."""
    import numpy as np

    from sstq.aggregation.counts import COUNT, read_counts
    from sstq.cli.groups import split

    layout, column = mechanism.counted_layout, table[by]
    columns, times = read_counts(table, COUNT, layout)
    labels = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    if None in labels or "" in labels:
        raise ValueError(f"the column {by!r} must not have nulls or empty labels; fill or drop them first")
    part: dict[str, Aggregator[Any]] = {}
    for label, rows in split(np.array([str(label) for label in labels], dtype=object)):
        fields = {field.name: values[rows] for field, values in zip(layout.fields, columns, strict=True)}
        part[label] = mechanism.aggregator().update_counts(fields, times[rows])
    for label, added in part.items():
        sums.setdefault(label, mechanism.aggregator()).merge(added)


def whether_simulated(sources: set[str], simulated: bool) -> bool | None:
    """Return whether some messages come from a seed; None, with a remark, where only tables of counts could tell."""
    from sstq.aggregation.counts import known_simulated

    known = known_simulated(simulated, sources)
    if known is None:
        note("tables of counts do not say whether messages were simulated with a seed: only their source can tell")
    return known


def _read(path: str, query: str | None, by: str | None) -> Any:
    """Read a table of counts as columns by name."""
    from sstq.files.stores import open_file

    with open_file(path) as file:
        start = file.read(16)
        file.seek(0)
        database = start == _SQLITE or start[_DUCKDB_AT:].startswith(_DUCKDB)
        if database != (query is not None):
            raise WrongUsage(f"--query reads a DuckDB or SQLite database; {path} is {'one' * database or 'none'}")
        if start.startswith(_PARQUET):
            from sstq.messages.parquet import open_parquet

            with open_parquet(file) as table:
                return table.read()
        if query is None:
            return _read_csv(file.read(), path, by)
    return _query_sqlite(path, query) if start == _SQLITE else _query_duckdb(path, query)


def _query_sqlite(path: str, query: str) -> dict[str, list[Any]]:
    connection = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)
    try:
        found = connection.execute(query)
        rows, names = found.fetchall(), [column[0] for column in found.description or ()]
    except sqlite3.Error as error:
        raise ValueError(f"{path}: the query failed: {error}") from error
    finally:
        connection.close()
    return _table(names, rows, path)


def _table(names: list[str], rows: list[Any], path: str) -> dict[str, list[Any]]:
    """Rows as columns by name; ValueError for two of one name."""
    if len(set(names)) < len(names):
        raise ValueError(f"{path}: columns must have distinct names, got {', '.join(names)}")
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def _query_duckdb(path: str, query: str) -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise ImportError(f"{path} needs DuckDB: pip install duckdb") from error
    try:
        with duckdb.connect(path, read_only=True) as connection:
            found = connection.sql(query)
            return {} if found is None else found.to_arrow_table()
    except duckdb.Error as error:
        raise ValueError(f"{path}: the query failed: {error}") from error


def _read_csv(raw: bytes, path: str, by: str | None) -> dict[str, list[Any]]:
    """Columns of numbers, but for the labels."""
    import csv
    import io

    try:
        rows = list(csv.reader(io.StringIO(raw.decode("utf-8-sig"))))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} must be a Parquet or CSV file of counts: {error}") from error
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise ValueError(f"{path} must be a CSV file with a header and as many fields in every line")
    columns = _table(rows[0], rows[1:], path)
    return {
        name: values if name == by else [int(value) if value.isdecimal() else value for value in values]
        for name, values in columns.items()
    }
