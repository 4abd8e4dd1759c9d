"""Files of texts: what a person holds per row, whatever is in it."""

from collections.abc import Sequence
from pathlib import Path

from sstq.checks import ArgumentError
from sstq.files.parquet import import_pyarrow
from sstq.inputs.cells import UNREADABLE, cells_of
from sstq.inputs.csv_files import csv_rows


def read_texts(path: Path, column: str | None) -> list[str | None]:
    """Return the texts in a column of a CSV or Parquet file, or the lines of a .txt file; None for what is missing."""
    kind = path.suffix.lower()
    if kind == ".txt":
        # A line ends where all programs see its end, not at rare characters of a text, and any bytes are a text.
        with open(path, encoding="utf-8-sig", errors="replace", newline="\n") as file:
            return [line.rstrip("\r\n") for line in file]
    if kind == ".parquet":
        table = import_pyarrow().parquet.read_table(path)
        cells = cells_of(table.column(_place(column, table.column_names)))
        missing = (None, UNREADABLE)
        return [None if cell in missing else str(cell) for cell in cells]
    rows = csv_rows(str(path), answering=True)
    header = next(rows, None)
    if header is None:
        raise ValueError(f"{path} is empty: its first line must name the columns")
    place = _place(column, header)
    return [row[place] if place < len(row) else None for row in rows]


def _place(column: str | None, header: Sequence[str]) -> int:
    """The place of a column, which need not be named if it is the only one."""
    if column is None and len(header) == 1:
        return 0
    if column is None:
        raise ArgumentError("column", f"must be given: one of {', '.join(header)}")
    if column not in header:
        raise ArgumentError(
            "column", f"must be one of {', '.join(header)}, got {column!r}"
        )
    return list(header).index(column)
