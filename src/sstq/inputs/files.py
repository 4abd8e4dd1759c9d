"""Reading files of vectors (.npy, Parquet and CSV) in bounded memory, repeatedly if needed.

A file's kind is recognised by its first bytes, not its name; text is CSV. Nulls, text and rows of another length are
read as nan. `VectorFile.pieces` refuses that with the file's name and the row; code that answers a server's document
replaces it (`sstq.mechanisms.answers`).
"""

import csv
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.checks import ArgumentError, did_you_mean
from sstq.files.npy import DAMAGED_ARCHIVE
from sstq.files.parquet import MAGIC, open_parquet
from sstq.inputs import arrays

# Rows are read this many numbers at a time, so that memory grows neither with the clients nor with the files.
_NUMBERS_AT_A_TIME = 1 << 21
_NPY = b"\x93NUMPY"
IDENTIFIERS = ("id", "uuid", "user", "name")
_UNKNOWN = "is not a .npy, Parquet or CSV file of vectors"

Read = Iterator[tuple[NDArray[Any], NDArray[Any] | None]]
"""Vectors, (rows, dim), with their public labels, if there are any."""


@dataclass(frozen=True)
class VectorFile:
    """The vectors of one file: its name, the length of each vector, their number, and the function that reads them."""

    name: str
    dim: int
    count: int
    read: Callable[[int], Read]
    """Yields numbers of any kind, this many rows at a time, with nan for what is none; and labels."""
    columns: tuple[str, ...] = ()
    """The names of the columns of numbers, if the file has any."""

    def numbers(self) -> Read:
        """Yield the vectors in order, a bounded piece at a time, with nan for what is no number."""
        return self.read(max(1, _NUMBERS_AT_A_TIME // self.dim))

    def pieces(self) -> Read:
        """Yield the vectors in order, as (rows, dim) arrays of finite float32 or float64; may be called repeatedly.

        With each come the labels of its rows, or None if the file was opened without.

        Raises ValueError, with the row, for what is not a finite number and for a damaged file.
        """
        row = 0
        for read, labels in self.numbers():
            rows = arrays.as_floats(read, f"{self.name}: vectors", row)
            finite = np.isfinite(rows)
            if not finite.all():
                at, place = np.argwhere(~finite)[0]
                got = "no number" if np.isnan(rows[at, place]) else rows[at, place]
                column = self.columns[place] if self.columns else place
                wanted = f"{self.name}: vectors must be {self.dim} finite numbers"
                raise ValueError(f"{wanted}, got {got} in row {row + at}, column {column}; fill or drop it")
            row += len(rows)
            yield rows, labels
        if row != self.count:
            raise ValueError(f"{self.name} must have {self.count} vectors, got {row}")


def open_files(
    vectors: Sequence[str | os.PathLike[str]],
    dim: int | None,
    columns: Sequence[str] | None = None,
    by: str | None = None,
) -> tuple[list[VectorFile], int]:
    """Open files as `open_vectors` does, and return them with the number of all vectors, at least one.

    Without `dim` all must be as long as those of the first file. A file given twice, even by a link, is refused:
    encoding it again would spend ε again.
    """
    seen: dict[tuple[int, int], str] = {}
    files: list[VectorFile] = []
    for path in vectors:
        status, name = os.stat(path), os.fspath(path)
        first = seen.setdefault((status.st_dev, status.st_ino), name)
        if len(seen) == len(files):
            problem = f"must be different files, so that nobody is encoded twice: {name} is the same file as {first}"
            raise ArgumentError("vectors", problem)
        files.append(open_vectors(path, dim, columns, by))
        dim = files[0].dim
    count = sum(file.count for file in files)
    if not count:
        raise ValueError(f"there are no vectors in {', '.join(file.name for file in files)}")
    return files, count


def open_vectors(
    path: str | os.PathLike[str],
    dim: int | None,
    columns: Sequence[str] | None = None,
    by: str | None = None,
) -> VectorFile:
    """Open the vectors of a .npy, Parquet or CSV file (one vector per line, with or without a header).

    Arguments:
        path: the file on this machine; its kind is recognised by its content.
        dim: the length that the vectors must have; None for whatever the file has.
        columns: the columns of numbers of a CSV or Parquet file, or one column of lists of a Parquet file. By default
            the only column of lists, or all columns.
        by: the column with public labels of a Parquet file, or of a CSV file with a header.

    Raises ValueError if the file cannot hold such vectors, and ImportError if it is Parquet without the [data] extra.
    """
    name = os.fspath(path)
    with open(name, "rb") as file:
        start = file.read(6)
    if start == _NPY:
        if columns is not None:
            raise ArgumentError("columns", f"must be left out for the .npy file {name}, got {','.join(columns)}")
        if by is not None:
            raise ArgumentError("by", f"must be left out for {name}: only Parquet and CSV files have columns")
        return _open_npy(name, dim)
    return (_open_parquet if start.startswith(MAGIC) else _open_csv)(name, dim, columns, by)


def load_array(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Map a .npy file into memory; ValueError if it is damaged or something else."""
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (FileNotFoundError, PermissionError):
        raise
    except DAMAGED_ARCHIVE as error:
        raise ValueError(f"{os.fspath(path)} is truncated, damaged or not a .npy file: {error}") from error


def _open_npy(name: str, dim: int | None) -> VectorFile:
    """Open a .npy file, mapped into memory."""
    array = load_array(name)
    rows = array[None] if dim is not None and array.shape == (dim,) else array
    if rows.ndim != 2 or dim not in (None, rows.shape[1]):
        wanted = "(n, d)" if dim is None else f"({dim},) or (n, {dim})"
        raise ValueError(f"{name}: the array must have shape {wanted}, got {array.shape}")

    def read(size: int) -> Read:
        return ((np.asarray(rows[start : start + size]), None) for start in range(0, len(rows), size))

    return VectorFile(name, rows.shape[1], len(rows), read)


def _open_parquet(name: str, dim: int | None, wanted: Sequence[str] | None, by: str | None) -> VectorFile:
    """Open a Parquet file with a column of lists, or with one column per coordinate."""
    with open(name, "rb") as file, open_parquet(file) as table:
        count, schema = int(table.metadata.num_rows), table.schema_arrow
        lists = [field.name for field in schema if arrays.is_arrow_list(field.type) and field.name != by]
        texts = [field.name for field in schema if field.name not in lists and not arrays.is_arrow_number(field.type)]
        columns = _choose(name, schema.names, dim, wanted, by, lists, texts)
        if by is not None:
            arrays.check_label_type(schema.field(by).type, by, name)
        of_lists = columns[0] in lists
        for column in [] if of_lists else columns:
            if not arrays.is_arrow_number(kind := schema.field(column).type):
                problem = f"must be one column of lists or columns of numbers of {name}, got {column}: {kind}"
                raise ArgumentError("columns", problem)
        if dim is None and of_lists:
            first = next(table.iter_batches(batch_size=1, columns=columns), None)
            dim = len(first.column(0)[0] or ()) if first is not None and first.num_rows else 1
        length = len(columns) if dim is None else dim

    def read(size: int) -> Read:
        row = 0
        with open(name, "rb") as file, open_parquet(file) as table:
            for batch in table.iter_batches(batch_size=size, columns=columns if by is None else [*columns, by]):
                labels = None if by is None else arrays.arrow_labels(batch.column(by), by, name, row)
                yield arrays.arrow_numbers([batch.column(column) for column in columns], length), labels
                row += batch.num_rows

    return VectorFile(name, length, count, read, columns=() if of_lists else tuple(columns))


def _choose(
    name: str,
    names: Sequence[str],
    dim: int | None,
    wanted: Sequence[str] | None,
    by: str | None,
    lists: Sequence[str],
    texts: Sequence[str],
) -> list[str]:
    """Return the columns of the vectors: one of lists, or those of the coordinates; no error suggests texts."""
    if by is not None and (by not in names or by in (wanted or ())):
        problem = f"must be a column of {name} beside the vectors ({_shorten(names)})"
        raise ArgumentError("by", f"{problem}, got {by!r}{did_you_mean(by, names) if by not in names else ''}")
    rest = [column for column in names if column != by]
    if wanted is None and len(lists) == 1:
        return list(lists)
    chosen = rest if wanted is None else list(wanted)
    for column in chosen if by is None else [*chosen, by]:
        if column not in names:
            raise ArgumentError("columns", f"must be columns of {name} ({_shorten(names)}), got {column!r}")
        if names.count(column) > 1:
            raise ValueError(f"{name} has {names.count(column)} columns {column!r}; give them different names")
    if len(chosen) == 1 and chosen[0] in lists:
        return chosen
    people = [column for column in rest if column.lower() in IDENTIFIERS]
    others = ",".join([column for column in rest if column not in people and column not in texts][:dim])
    if wanted is None and (lists or (people and dim is None)):
        problem = f"{len(lists)} columns of lists" if lists else f"the column {people[0]!r}, which identifies people"
        raise ArgumentError("columns", f"must be given for {name}, which has {problem}; such as {others}")
    if dim not in (None, len(chosen)):
        given = f"got {len(chosen)}" if wanted or len(rest) < (dim or 0) else f"such as {others}"
        raise ArgumentError("columns", f"must be {dim} columns of {name} ({_shorten(names)}), {given}")
    return chosen


def _open_csv(name: str, dim: int | None, wanted: Sequence[str] | None, by: str | None) -> VectorFile:
    """Open a CSV file with one vector per line.

    The first line is a header if columns are chosen by name, or if none of its fields is a number.
    """
    first = next(csv_lines(name), (1, []))[1]
    names = [field.strip() for field in first]
    header = bool(by or wanted or (any(names) and all(_number(field) is None for field in names)))
    if not header and dim not in (None, len(first)):
        raise ValueError(f"{name} {_UNKNOWN}: line 1 has {len(first)} values, vectors have {dim}")
    second = next(islice(csv_lines(name), 1, None), (2, []))[1]
    texts = [column for column, field in zip(names, second, strict=False) if _number(field) is None]
    columns = _choose(name, names, dim, wanted, by, (), texts) if header else []
    places = [names.index(column) for column in columns] if header else range(len(first))

    def row(line: int, fields: list[str]) -> tuple[list[float | None], str]:
        """The numbers of a line, None where there is none, and its label."""
        fields = fields if len(fields) == len(first) else [""] * len(first)
        label = "" if by is None else fields[names.index(by)]
        if by is not None and not label:
            problem = f"column {by!r} must not have empty labels, got one in line {line}"
            raise ValueError(f"{name}: {problem}; fill or drop it first")
        return [_number(fields[place]) for place in places], label

    def read(size: int) -> Read:
        lines = islice(csv_lines(name), int(header), None)
        while rows := [row(*line) for line in islice(lines, size)]:
            labels = None if by is None else np.array([label for _, label in rows], dtype=object)
            yield np.array([numbers for numbers, _ in rows], dtype=np.float64).reshape(-1, len(places)), labels

    count = sum(1 for _ in csv_lines(name)) - int(header)
    return VectorFile(name, len(places), count, read, columns=tuple(columns))


def csv_lines(name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields of each non-empty line, with its number; they are separated as in the first line."""
    try:
        with open(name, encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            lines = csv.reader(file, delimiter=max(",;\t|", key=first.count), strict=True)
            for fields in filter(None, lines):
                yield lines.line_num, fields
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{name} {_UNKNOWN}: {error}") from error


def _number(text: str) -> float | None:
    """Return the number in a field of a CSV file, if it is one; 2020_1 is a number only to Python."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names if len(names) <= 8 else [*names[:6], "…", names[-1]]) or "none"
