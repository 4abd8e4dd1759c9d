"""CSV and Parquet files of records, whose columns are found by name, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from sstq.files.parquet import open_parquet
from sstq.inputs.cells import UNREADABLE
from sstq.inputs.csv_files import csv_rows
from sstq.inputs.people import Path, PeopleFile, Read, file_kind
from sstq.inputs.tables import Columns, check_header

if TYPE_CHECKING:
    from sstq.inputs.records import Column

# Values as Python objects take as many times the memory of numbers.
_SIZE_OF_A_VALUE = 8


def open_table(
    path: Path, columns: Mapping[str, Column], *, answering: bool = False
) -> PeopleFile:
    """Open a file that has these columns; ValueError for one that has not, whatever is in it."""
    name = os.fspath(path)
    kind = file_kind(name)
    if kind == "npy":
        raise ValueError(
            f"{name} must be a CSV or Parquet file with the columns {', '.join(columns)}, got a .npy file"
        )
    return (
        _open_parquet(name, columns)
        if kind == "parquet"
        else _open_csv(name, columns, answering)
    )


def _open_parquet(name: str, columns: Mapping[str, Column]) -> PeopleFile:
    names = tuple(columns)
    with open_parquet(name) as table:
        check_header(name, names, table.schema_arrow.names)
        count = int(table.metadata.num_rows)

    def read(size: int) -> Read:
        few = -(-size // _SIZE_OF_A_VALUE)
        with open_parquet(name) as table:
            for batch in table.iter_batches(batch_size=few, columns=list(names)):
                values = {column: batch.column(column) for column in names}
                yield Columns(values), batch.num_rows, None

    return PeopleFile(name, len(names), count, read, names)


def _open_csv(name: str, columns: Mapping[str, Column], answering: bool) -> PeopleFile:
    names = tuple(columns)
    header = next(csv_rows(name, answering=answering), [])
    check_header(name, names, header)
    places = [header.index(column) for column in names]

    def read(size: int) -> Read:
        few = -(-size // _SIZE_OF_A_VALUE)
        rows = islice(
            csv_rows(name, len(header), answering=answering, spanning=True), 1, None
        )
        while some := list(islice(rows, few)):
            values = {
                column: [
                    _value(fields, place, len(header), columns[column])
                    for fields in some
                ]
                for column, place in zip(names, places, strict=True)
            }
            yield Columns(values), len(some), None

    count = (
        sum(1 for _ in csv_rows(name, len(header), answering=answering, spanning=True))
        - 1
    )
    return PeopleFile(name, len(names), count, read, names)


def _value(fields: list[str], place: int, width: int, column: Column) -> Any:
    """The value of a field; its text if it is none, which the owner is told and a device takes as no answer."""
    if len(fields) != width:  # on a device
        return UNREADABLE
    text = fields[place]
    if column.is_blank(text):
        return None
    try:
        return column.parsed(text)
    except ValueError:
        return text
