"""Tables of counts: how often each message occurred, which is what GROUP BY in any SQL engine gives.

A table has one column per field of a message and one with the number of messages. Rows may repeat a message. Anything
that gives a column by its name is a table: a dict of arrays, an Arrow table, a pandas or Polars data frame.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sstq.array_types import Ints
from sstq.checks import check_option
from sstq.inputs.tables import check_header, column_names
from sstq.messages.layouts import Column, Layout

COUNT = "messages"
"""The usual name of the column with the numbers of messages."""
COUNTED = "counts "
"""How the name of a table that nobody vouches for begins, among the sources of an aggregator."""
MOST_MESSAGES = 1 << 32
"""The maximum number of messages, so that sums of 31-bit terms fit into 63 bits."""
DIALECTS = {
    "duckdb": '"',
    "spark": "`",
    "bigquery": "`",
    "clickhouse": '"',
    "postgresql": '"',
    "sqlite": '"',
}
"""The SQL dialects and how each quotes a name."""
# Dialects that cannot group by a list, those with backslashes in quotes, and how some read Parquet files by name.
_WITHOUT_LISTS = ("bigquery", "sqlite")
_BACKSLASHES = ("bigquery", "clickhouse")
_PARQUET = {
    "duckdb": ("'", "read_parquet({})"),
    "spark": ("`", "parquet.{}"),
    "clickhouse": ("'", "file({}, Parquet)"),
}


def read_counts(
    table: Any, counts: ArrayLike | str, layout: Layout
) -> tuple[tuple[Column, ...], Ints]:
    """Return the fields of the messages and their numbers; ValueError for anything that cannot be counts of them."""
    names = layout.names + ([counts] if isinstance(counts, str) else [])
    check_header("a table of counts", names, column_names(table))
    numbers = table[counts] if isinstance(counts, str) else counts
    times = _integers(numbers, "counts", 1)[:, 0]
    if len(times) and not 0 <= times.min() <= times.max() <= MOST_MESSAGES:
        worst = times.min() if times.min() < 0 else times.max()
        raise ValueError(f"counts must be from 0 to 2^32, got {worst}")
    columns = []
    for field in layout.fields:
        values = _integers(table[field.name], field.name, field.count)
        if len(values) != len(times):
            raise ValueError(
                f"{field.name} must have as many rows as counts, {len(times)}, got {len(values)}"
            )
        field.check(values)
        columns.append(values.astype(field.dtype).reshape(field.shape(len(values))))
    return tuple(columns), times


def known_simulated(simulated: bool, sources: Iterable[str]) -> bool | None:
    """Whether some messages come from a seed; None if tables of counts, which do not say it, are among the sources."""
    return (
        None
        if not simulated and any(source.startswith(COUNTED) for source in sources)
        else simulated
    )


def _integers(column: Any, name: str, count: int) -> Ints:
    """Return a column of integers, or of lists of `count` of them, as (n, count).

    Engines return sums of counts as decimals or doubles: these must be whole.
    """
    values = np.asarray(column)
    try:
        if values.dtype == object:
            values = np.array(values.tolist())
        with np.errstate(invalid="ignore"):
            whole = values.astype(np.int64)
        exact = (
            values.dtype.kind not in "bSU"
            and not np.ma.is_masked(column)
            and np.array_equal(values, whole)
        )
    except (TypeError, ValueError, OverflowError):
        exact = False
    if values.size and not exact:
        several = f"lists of {count} " if count > 1 else ""
        raise ValueError(
            f"{name} must hold {several}integers without nulls, got {values.dtype} such as {values[0]!r}"
        )
    if values.size and values.shape != (
        (len(values),) if count == 1 else (len(values), count)
    ):
        raise ValueError(
            f"{name} must hold {count} per row, got an array of shape {values.shape}"
        )
    return whole.reshape(-1, count)


def counting_query(
    layout: Layout,
    table: str = "messages",
    dialect: str = "duckdb",
    by: str | None = None,
) -> str:
    """Return the SQL query that counts the messages of a table, one row per message that occurs.

    Args:
        layout: the fields to count, `mechanism.counted_layout`.
        table: the table as SQL names it, or a Parquet file (name or pattern) for DuckDB, Spark and ClickHouse.
        dialect: the engine: "duckdb", "spark", "bigquery", "clickhouse", "postgresql" or "sqlite".
        by: a column with public groups, for one estimate per group.

    Examples:
        >>> import sstq
        >>> print(counting_query(sstq.FrameUnit(dim=4, epsilon=3.0, frames=8).counted_layout, by="country"))
        SELECT "country", "row", "frame", count(*) AS "messages"
        FROM messages
        GROUP BY "country", "row", "frame"
    """
    check_option("dialect", dialect, tuple(DIALECTS))
    lists = [field.name for field in layout.fields if field.count > 1]
    if lists and dialect in _WITHOUT_LISTS:
        raise ValueError(
            f"dialect must group by lists for the column {lists[0]}, got {dialect!r}; use another engine"
        )
    names = layout.names
    if by in (*names, COUNT):
        raise ValueError(
            f"by must not be the name of a column of counts, got {by!r}; rename it"
        )
    mark = DIALECTS[dialect]
    quoted = [
        _quoted(name, mark, dialect) for name in ([] if by is None else [by]) + names
    ]
    if table.endswith((".parquet", ".pq")):
        if dialect not in _PARQUET:
            raise ValueError(
                f"table must be a table of the database for {dialect}, got the file {table!r}"
            )
        quote, reader = _PARQUET[dialect]
        table = reader.format(_quoted(table, quote, dialect))
    elif ";" in table:
        raise ValueError(f"table must be one table as SQL names it, got {table!r}")
    columns = ", ".join(quoted)
    return f"SELECT {columns}, count(*) AS {mark}{COUNT}{mark}\nFROM {table}\nGROUP BY {columns}"


def _quoted(name: str, mark: str, dialect: str) -> str:
    if dialect in _BACKSLASHES:
        return mark + name.replace("\\", "\\\\").replace(mark, f"\\{mark}") + mark
    return mark + name.replace(mark, 2 * mark) + mark


def fingerprint(table: Any, layout: Layout, by: str | None = None) -> str:
    """Return a `source` for a table of counts, 64 characters that depend on its rows and not on their order."""
    columns, times = read_counts(table, COUNT, layout)
    labels = (
        np.zeros(len(times), dtype="U1")
        if by is None
        else np.asarray(table[by]).astype(str)
    )
    flat = [column.reshape(len(times), -1) for column in columns] if len(times) else []
    keys = [*(part for column in flat for part in column.T), times]
    order = np.lexsort([*keys, labels])
    digest = hashlib.sha256("\n".join(labels[order]).encode())
    for key in keys:
        digest.update(key[order].astype("<i8").tobytes())
    return COUNTED + digest.hexdigest()[len(COUNTED) :]
