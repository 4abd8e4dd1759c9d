"""CSV and Parquet files of records, whose columns are found by name, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from sstq.files.parquet import MAGIC, open_parquet
from sstq.inputs.cells import UNREADABLE
from sstq.inputs.csv_files import csv_rows
from sstq.inputs.people import Path, Piece
from sstq.inputs.tables import check_header

if TYPE_CHECKING:
    from sstq.inputs.records import Column

_CELLS_AT_A_TIME = 1 << 18
_NPY = b"\x93NUMPY"


@dataclass(frozen=True)
class TableFile:
    """The records of one file.

    Attributes:
        name: the name of the file.
        count: the number of records.
        columns: the names of the columns.
        read: yields the columns of so many records at a time.
    """

    name: str
    count: int
    columns: tuple[str, ...]
    read: Callable[[int], Iterator[Mapping[str, Any]]]

    def pieces(self) -> Iterator[Piece]:
        """Yield the records in order; may be called repeatedly."""
        row = 0
        for table in self.read(max(1, _CELLS_AT_A_TIME // len(self.columns))):
            count = len(next(iter(table.values())))
            yield Piece(table, count, f"{self.name}, from row {row} on")
            row += count


def open_table(
    path: Path, columns: Mapping[str, Column], *, answering: bool = False
) -> TableFile:
    """Open a file that has these columns; ValueError for one that has not, whatever is in it."""
    name = os.fspath(path)
    with open(name, "rb") as file:
        start = file.read(len(_NPY))
    if start == _NPY:
        raise ValueError(
            f"{name} must be a CSV or Parquet file with the columns {', '.join(columns)}, got a .npy file"
        )
    return (
        _open_parquet(name, columns)
        if start.startswith(MAGIC)
        else _open_csv(name, columns, answering)
    )


def _open_parquet(name: str, columns: Mapping[str, Column]) -> TableFile:
    names = tuple(columns)
    with open(name, "rb") as file, open_parquet(file) as table:
        check_header(name, names, table.schema_arrow.names)
        count = int(table.metadata.num_rows)

    def read(size: int) -> Iterator[Mapping[str, Any]]:
        with open(name, "rb") as file, open_parquet(file) as table:
            for batch in table.iter_batches(batch_size=size, columns=list(names)):
                yield {column: batch.column(column) for column in names}

    return TableFile(name, count, names, read)


def _open_csv(name: str, columns: Mapping[str, Column], answering: bool) -> TableFile:
    names = tuple(columns)
    header = next(csv_rows(name, answering=answering), [])
    check_header(name, names, header)
    places = [header.index(column) for column in names]

    def read(size: int) -> Iterator[Mapping[str, Any]]:
        rows = islice(
            csv_rows(name, len(header), answering=answering, spanning=True), 1, None
        )
        while some := list(islice(rows, size)):
            yield {
                column: [
                    _value(fields, place, len(header), columns[column])
                    for fields in some
                ]
                for column, place in zip(names, places, strict=True)
            }

    count = (
        sum(1 for _ in csv_rows(name, len(header), answering=answering, spanning=True))
        - 1
    )
    return TableFile(name, count, names, read)


def _value(fields: list[str], place: int, width: int, column: Column) -> Any:
    """The value of a field; its text if it is none, which the owner is told and a device takes as no answer."""
    if len(fields) != width:  # on a device
        return UNREADABLE
    text = fields[place]
    if not text.strip():
        return None
    try:
        return column.parsed(text)
    except ValueError:
        return text
