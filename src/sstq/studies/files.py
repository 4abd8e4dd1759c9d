"""Files of what people hold: a row per person, whatever is in it."""

from collections.abc import Sequence
from pathlib import Path

from sstq.checks import ArgumentError
from sstq.files.parquet import import_pyarrow
from sstq.inputs.csv_files import csv_rows

Cells = list[tuple[str | None, ...]]


def read_texts(path: Path, column: str | None) -> list[str | None]:
    """Return the texts in a column of a CSV or Parquet file, or the lines of a .txt file."""
    if path.suffix.lower() == ".txt":
        return list(path.read_text(encoding="utf-8").splitlines())
    return [text for (text,) in read_cells(path, [column])]


def read_cells(path: Path, names: Sequence[str | None]) -> Cells:
    """Return the texts in these columns of a CSV or Parquet file, one tuple per person; None for what is missing."""
    if path.suffix.lower() == ".parquet":
        table = import_pyarrow().parquet.read_table(path)
        columns = [
            map(_text, table.column(place).to_pylist())
            for place in _places(names, table.column_names)
        ]
        return list(zip(*columns, strict=True))
    header, *rows = csv_rows(str(path), answering=True)
    places = _places(names, header)
    return [
        tuple(row[place] if place < len(row) else None for place in places)
        for row in rows
    ]


def _places(names: Sequence[str | None], header: Sequence[str]) -> list[int]:
    for name in names:
        if name not in header:
            raise ArgumentError(
                "column", f"must be one of {', '.join(header)}, got {name!r}"
            )
    return [list(header).index(str(name)) for name in names]


def _text(cell: object) -> str | None:
    return None if cell is None else str(cell)
