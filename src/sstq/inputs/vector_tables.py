"""Vectors in files: which columns of Parquet and CSV files they are in, and how rows become numbers.

Nulls, text and rows of another length are
read as nan, which `PeopleFile` refuses with the row unless a device reads the file. Files are read in bounded memory,
repeatedly if needed.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from sstq.checks import ArgumentError, did_you_mean
from sstq.files.parquet import open_parquet
from sstq.inputs import arrays
from sstq.inputs.csv_files import csv_rows, number_in
from sstq.inputs.people import (
    Path,
    PeopleFile,
    Read,
    file_kind,
    open_npy,
    refuse_columns,
)

IDENTIFIERS = ("id", "uuid", "user", "name")
# What stands for a missing number. Where a device reads, a line with one of these is a person, never a header.
_MISSING = {
    "",
    "na",
    "n/a",
    "#n/a",
    "nan",
    "nat",
    "null",
    "none",
    "nil",
    "missing",
    "?",
    "-",
    "--",
    ".",
}


@dataclass(frozen=True)
class VectorColumns:
    """Where the vectors are in a file.

    Attributes:
        dim: the length that the vectors must have; None for whatever the file has.
        columns: the columns of numbers of a CSV or Parquet file, or one column of lists of a Parquet file. By default
            the only column of lists, those of `names`, or all columns. Empty if a CSV file has no header.
        by: the column with public labels of a Parquet file, or of a CSV file with a header.
        names: the names of the numbers of the vectors, if the mechanism has bounds with names.
        answering: whether a device reads the file, which never refuses a value.
    """

    dim: int | None
    columns: Sequence[str] | None = None
    by: str | None = None
    names: Sequence[str] = ()
    answering: bool = False

    def chosen(
        self,
        file: str,
        header: Sequence[str],
        lists: Sequence[str],
        texts: Sequence[str],
    ) -> list[str]:
        """Return the columns of the vectors: one of lists, or those of the coordinates; no error suggests texts."""
        self._check_label_column(file, header)
        rest = [column for column in header if column != self.by]
        if self.columns is None and len(lists) == 1:
            return list(lists)
        wanted = self.columns
        if wanted is None and self.names:
            wanted = self.names
            missing = [name for name in wanted if name not in header]
            if missing:
                problem = f"must be given for {file} ({_shortened(header)}), which has no column {missing[0]!r}"
                raise ArgumentError("columns", f"{problem} of the mechanism's bounds")
        chosen = rest if wanted is None else list(wanted)
        for column in chosen if self.by is None else [*chosen, self.by]:
            if column not in header:
                raise ArgumentError(
                    "columns",
                    f"must be columns of {file} ({_shortened(header)}), got {column!r}",
                )
            if list(header).count(column) > 1:
                raise ValueError(
                    f"{file} has several columns {column!r}; give them different names"
                )
        if len(chosen) != 1 or chosen[0] not in lists:
            self._check_number_of_columns(file, header, chosen, lists, texts)
        return chosen

    def _check_label_column(self, file: str, header: Sequence[str]) -> None:
        if self.by is None or (
            self.by in header and self.by not in (self.columns or ())
        ):
            return
        problem = f"must be a column of {file} beside the vectors ({_shortened(header)}), got {self.by!r}"
        raise ArgumentError(
            "by", problem + ("" if self.by in header else did_you_mean(self.by, header))
        )

    def _check_number_of_columns(
        self,
        file: str,
        header: Sequence[str],
        chosen: Sequence[str],
        lists: Sequence[str],
        texts: Sequence[str],
    ) -> None:
        rest = [column for column in header if column != self.by]
        people = [column for column in rest if column.lower() in IDENTIFIERS]
        others = ",".join(
            [column for column in rest if column not in people and column not in texts][
                : self.dim
            ]
        )
        if self.columns is None and lists:
            problem = f"must be given for {file}, which has {len(lists)} columns of lists; such as {others}"
            raise ArgumentError("columns", problem)
        if self.columns is None and people and self.dim is None:
            problem = f"which has the column {people[0]!r}, which identifies people; such as {others}"
            raise ArgumentError("columns", f"must be given for {file}, {problem}")
        if self.dim not in (None, len(chosen)):
            given = (
                f"got {len(chosen)}"
                if self.columns or len(rest) < (self.dim or 0)
                else f"such as {others}"
            )
            raise ArgumentError(
                "columns",
                f"must be {self.dim} columns of {file} ({_shortened(header)}), {given}",
            )


def open_vectors(path: Path, wanted: VectorColumns) -> PeopleFile:
    """Open the vectors of a .npy, Parquet or CSV file (one vector per line, with or without a header).

    Raises ValueError if the file cannot hold such vectors, and ImportError if it is Parquet without the [data] extra.
    """
    name = os.fspath(path)
    kind = file_kind(name)
    if kind == "npy":
        refuse_columns(name, wanted.columns, wanted.by)
        return open_npy(name, wanted.dim, answering=wanted.answering)
    return (_open_parquet if kind == "parquet" else _open_csv)(name, wanted)


def _open_parquet(name: str, wanted: VectorColumns) -> PeopleFile:
    """Open a Parquet file with a column of lists, or with one column per coordinate."""
    by = wanted.by
    # What a column holds may be one person's doing: on a device, every list is one, and every column has numbers.
    is_list = arrays.is_any_arrow_list if wanted.answering else arrays.is_arrow_list
    with open_parquet(name) as table:
        count = int(table.metadata.num_rows)
        schema = table.schema_arrow
        lists = [
            field.name for field in schema if is_list(field.type) and field.name != by
        ]
        texts = [
            field.name
            for field in schema
            if field.name not in lists and not arrays.is_arrow_number(field.type)
        ]
        columns = wanted.chosen(name, schema.names, lists, texts)
        if by is not None:
            arrays.check_label_type(schema.field(by).type, by, name)
        of_lists = columns[0] in lists
        if not of_lists and not wanted.answering:
            _check_numbers(name, schema, columns)
        dim = len(columns) if wanted.dim is None else wanted.dim
        if wanted.dim is None and of_lists:
            first = next(table.iter_batches(batch_size=1, columns=columns), None)
            dim = (
                len(first.column(0)[0] or ())
                if first is not None and first.num_rows
                else 1
            )

    def read(size: int) -> Read:
        row = 0
        with open_parquet(name) as table:
            for batch in table.iter_batches(
                batch_size=size, columns=columns if by is None else [*columns, by]
            ):
                labels = (
                    None
                    if by is None
                    else arrays.arrow_labels(batch.column(by), by, name, row)
                )
                arrow = [batch.column(column) for column in columns]
                yield arrays.arrow_numbers(arrow, dim), batch.num_rows, labels
                row += batch.num_rows

    names = () if of_lists else tuple(columns)
    return PeopleFile(name, dim, count, read, names, finite=not wanted.answering)


def _check_numbers(name: str, schema: Any, columns: Sequence[str]) -> None:
    for column in columns:
        kind = schema.field(column).type
        if not arrays.is_arrow_number(kind):
            problem = f"must be one column of lists or columns of numbers of {name}, got {column}: {kind}"
            raise ArgumentError("columns", problem)


def _open_csv(name: str, wanted: VectorColumns) -> PeopleFile:
    """Open a CSV file with one vector per line."""
    by = wanted.by
    expected = wanted.dim if wanted.answering else None
    first, second = [
        *islice(csv_rows(name, expected, answering=wanted.answering), 2),
        None,
        None,
    ][:2]
    names = [field.strip() for field in first or ()]
    header = _is_header(names, second, wanted)
    if not header and not wanted.answering and wanted.dim not in (None, len(names)):
        problem = f"line 1 has {len(names)} values, vectors have {wanted.dim}"
        raise ValueError(
            f"{name} is not a .npy, Parquet or CSV file of vectors: {problem}"
        )
    texts = [
        column
        for column, field in zip(names, second or (), strict=False)
        if number_in(field) is None
    ]
    columns = wanted.chosen(name, names, (), texts) if header else []
    width = len(names) if header or wanted.dim is None else wanted.dim
    places = (
        [names.index(column) for column in columns] if header else list(range(width))
    )
    label_place = None if by is None else names.index(by)

    def read(size: int) -> Read:
        rows = enumerate(
            islice(csv_rows(name, width, answering=wanted.answering), int(header), None)
        )
        while some := list(islice(rows, size)):
            labels = (
                None
                if label_place is None
                else np.array(
                    [_label(name, by, label_place, *row) for row in some], object
                )
            )
            numbers = [_numbers(fields, width, places) for _, fields in some]
            yield np.array(numbers, dtype=np.float64), len(some), labels

    count = sum(1 for _ in csv_rows(name, width, answering=wanted.answering)) - int(
        header
    )
    finite = not wanted.answering
    return PeopleFile(name, len(places), count, read, tuple(columns), finite)


def _is_header(
    names: Sequence[str], second: Sequence[str] | None, wanted: VectorColumns
) -> bool:
    """Whether the first line is a header: if columns are chosen by name, or if none of its fields is a number.

    On a device a person's line may have no number either. There the first line is a header only if a line follows, and
    if it has distinct words of which none stands for a missing number.
    """
    if wanted.columns is not None and not wanted.columns:
        return False
    if wanted.by or wanted.columns:
        return True
    if not any(names) or any(number_in(name) is not None for name in names):
        return False
    if not wanted.answering:
        return True
    words = {name.lower() for name in names}
    return second is not None and len(words) == len(names) and not words & _MISSING


def _numbers(
    fields: Sequence[str], width: int, places: Sequence[int]
) -> list[float | None]:
    """The numbers of a line; None where there is none, and all of them if the line has another length."""
    if len(fields) != width:
        return [None] * len(places)
    return [number_in(fields[place]) for place in places]


def _label(
    name: str, by: str | None, place: int, row: int, fields: Sequence[str]
) -> str:
    if len(fields) <= place or not fields[place]:
        problem = f"column {by!r} must not have empty labels, got one in row {row}"
        raise ValueError(f"{name}: {problem}; fill or drop it first")
    return fields[place]


def _shortened(names: Sequence[str]) -> str:
    return (
        ", ".join(names if len(names) <= 8 else [*names[:6], "…", names[-1]]) or "none"
    )
