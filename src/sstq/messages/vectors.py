"""Reading files of vectors (.npy, .npz, Parquet and CSV) in bounded memory, repeatedly if needed.

A file's kind is recognised by its first bytes, not its name; text is CSV. What encoding would refuse is refused
here, with the file's name and the row: anything but finite numbers, wrong lengths, nulls. Code that answers a server's
document passes `unreadable="nan"` instead (`sstq.mechanisms.answers`).
"""

import csv
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sstq.checks import did_you_mean
from sstq.files import npy
from sstq.messages import arrays
from sstq.messages.labels import Labels, check_arrow_type, check_name
from sstq.messages.parquet import import_pyarrow, open_parquet

# Rows are read this many numbers at a time, so that memory grows neither with the clients nor with the files.
_NUMBERS_AT_A_TIME = 1 << 21
# An array in Fortran order is unpacked as a whole: at most this many bytes, or this many times the compressed size.
_WHOLE_BYTES, _WHOLE_RATIO = 1 << 26, 16
_NPY = b"\x93NUMPY"
_UNKNOWN = "is not a .npy, .npz, Parquet or CSV file of vectors"

Unreadable = Literal["raise", "nan"]
Chunks = Iterator[NDArray[Any]]
Read = Iterator[tuple[NDArray[Any], Sequence[Labels]]]
CsvLines = Iterator[tuple[int, list[str], list[str]]]


class Piece(NamedTuple):
    """Some vectors of a file, (rows, dim), with their public labels and private groups."""

    rows: NDArray[Any]
    labels: Labels | None = None
    groups: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class VectorFile:
    """The vectors of one file: its name, the length of each vector, their number, and the function that reads them."""

    name: str
    dim: int
    count: int
    read: Callable[[int], Read]
    """Yields numbers of any kind, this many rows at a time, not yet checked to be exact and finite; and columns."""
    by: str | None = None
    """The column of public labels."""
    group: str | None = None
    """The column of private groups."""
    group_names: Sequence[str] | None = None
    """The names of the groups, in the order of their numbers; None if the file has the numbers."""

    def chunks(self) -> Chunks:
        """Yield the vectors of `pieces` alone."""
        return (piece.rows for piece in self.pieces())

    def pieces(self) -> Iterator[Piece]:
        """Yield the vectors in order, as (rows, dim) arrays of finite float32 or float64; may be called repeatedly.

        With each come the labels and the groups of its rows, or None if the file was opened without.

        Raises ValueError, with the row, for nan or infinity and for a damaged file.
        """
        row = 0
        for read, beside in self.read(max(1, _NUMBERS_AT_A_TIME // self.dim)):
            rows = arrays.as_floats(read, f"{self.name}: vectors", row)
            finite = np.isfinite(rows)
            if not finite.all():
                at, column = np.argwhere(~finite)[0]
                place = f"row {row + at}, column {column}"
                raise ValueError(f"{self.name}: vectors must be finite, got {rows[at, column]} in {place}")
            labels = None if self.by is None else beside[0]
            secret = None if self.group is None else beside[-1].numbers(self.group_names, self.name, row)
            row += len(rows)
            yield Piece(rows, labels, secret)
        if row != self.count:
            raise ValueError(f"{self.name} must have {self.count} vectors, got {row}")


def open_vectors(
    path: str | os.PathLike[str],
    dim: int,
    column: str | None = None,
    by: str | None = None,
    group: str | None = None,
    group_names: Sequence[str] | None = None,
    unreadable: Unreadable = "raise",
) -> VectorFile:
    """Open the vectors of a .npy, .npz, Parquet or CSV file (one vector per line, with or without a header).

    Arguments:
        path: the file; its kind is recognised by its content.
        dim: the length that the vectors must have.
        column: the list column of a Parquet file, or the array of an .npz; without it the file must have exactly one
            array, one column of lists, `dim` columns of floats, or only `dim` columns, all of numbers.
        by: the column with public labels of a Parquet file, or of a CSV file with a header.
        group: the column with private groups, as integers from 0 on or by name.
        group_names: the names of the private groups, in the order of their numbers.
        unreadable: what becomes of nulls, text and rows of a wrong length: "raise", or "nan" for a row with nan.

    Raises ValueError if the file cannot hold such vectors, and ImportError if it is Parquet without the [data] extra.
    """
    name = os.fspath(path)
    with open(name, "rb") as file:
        start = file.read(6)
    zipped, parquet = start.startswith(b"PK\x03\x04"), start.startswith(b"PAR1")
    if column is not None and not (parquet or zipped):
        raise ValueError(f"{name}: column must be left out unless the file is Parquet or .npz, got {column!r}")
    beside = [named for named in (by, group) if named is not None]
    if beside and (zipped or start == _NPY):
        raise ValueError(
            f"{name} has no column {beside[0]!r}: only Parquet files and CSV files with a header have columns"
        )
    if len(set(beside)) < len(beside):
        raise ValueError(f"{name}: column {by!r} cannot be public labels and private groups at once")
    if start == _NPY:
        return _open_npy(name, dim)
    if zipped:
        return _open_npz(name, dim, column)
    opened = (
        _open_parquet(name, dim, column, beside, unreadable) if parquet else _open_csv(name, dim, beside, unreadable)
    )
    return replace(opened, by=by, group=group, group_names=group_names)


def refuse_repeated(paths: Iterable[Path]) -> None:
    """Raise ValueError for a file given twice, even by a link: encoding it again would spend ε again."""
    seen: dict[tuple[int, int], Path] = {}
    for path in paths:
        file = path.stat().st_dev, path.stat().st_ino
        if file in seen:
            raise ValueError(
                f"{path} is the same file as {seen[file]}: give each file once, so that nobody is encoded twice"
            )
        seen[file] = path


def _open_npy(name: str, dim: int) -> VectorFile:
    """Open a .npy file, mapped into memory."""
    with open(name, "rb") as file, _numpy_errors(name):
        shape, _, dtype = npy.read_header(file)
    count = _check_array(name, shape, dtype, dim)

    def read(size: int) -> Read:
        if count:
            with _numpy_errors(name):
                rows = np.load(name, mmap_mode="r", allow_pickle=False).reshape(count, dim)
            yield from ((np.asarray(rows[start : start + size]), ()) for start in range(0, count, size))

    return VectorFile(name, dim, count, read)


def _open_npz(name: str, dim: int, column: str | None) -> VectorFile:
    """Open one array of an .npz file, unpacked while it is read."""
    with _numpy_errors(name), zipfile.ZipFile(name) as archive:
        members = [member.removesuffix(".npy") for member in archive.namelist() if member.endswith(".npy")]
        if column is None and len(members) != 1:
            raise ValueError(f"{name} has {len(members)} arrays ({_shorten(members)}): pass a column")
        chosen = members[0] if column is None else column
        if chosen not in members:
            raise ValueError(f"{name} has no array {chosen!r}; it has {_shorten(members)}")
        packed = archive.getinfo(f"{chosen}.npy")
        with archive.open(packed) as file:
            shape, fortran, dtype = npy.read_header(file)
    if fortran and packed.file_size > max(_WHOLE_BYTES, _WHOLE_RATIO * packed.compress_size):
        problem = f"the array is in Fortran order and would be unpacked as a whole, to {packed.file_size:,} bytes"
        remedy = "save it in C order: np.savez_compressed(name, np.ascontiguousarray(array))"
        raise ValueError(f"{name}: {problem}; {remedy}")
    count = _check_array(f"{name}[{chosen}]", shape, dtype, dim)

    def read(size: int) -> Read:
        with _numpy_errors(name), zipfile.ZipFile(name) as archive, archive.open(f"{chosen}.npy") as file:
            if fortran:  # its rows are spread over the whole array
                rows = npy.read_array(file, packed.file_size).reshape(count, dim)
                yield from ((rows[start : start + size], ()) for start in range(0, count, size))
                return
            npy.read_header(file)
            row_bytes = dim * dtype.itemsize
            for start in range(0, count, size):
                wanted = min(size, count - start)
                raw = file.read(wanted * row_bytes)
                if len(raw) < wanted * row_bytes:
                    raise ValueError(f"the array ends in row {start + len(raw) // row_bytes} of {count}")
                yield np.frombuffer(raw, dtype=dtype).reshape(wanted, dim), ()
            # The archive's checksum is compared when the end has been reached, and not before.
            if file.read(1):
                raise ValueError("the array is longer than its header says")

    return VectorFile(name, dim, count, read)


def _open_parquet(name: str, dim: int, column: str | None, beside: list[str], unreadable: Unreadable) -> VectorFile:
    """Open a Parquet file with a column of lists, or with one column per coordinate."""
    with open(name, "rb") as file, open_parquet(file) as table:
        count = int(table.metadata.num_rows)
        schema = table.schema_arrow
        columns = _choose_columns(name, schema, dim, column, beside)

    def read(size: int) -> Read:
        row = 0
        with open(name, "rb") as file, open_parquet(file) as table:
            for batch in table.iter_batches(batch_size=size, columns=[*columns, *beside]):
                labels = [Labels.of_arrow(batch.column(named), named, name, row) for named in beside]
                numbers = [batch.column(column) for column in columns]
                if unreadable == "nan":
                    yield arrays.arrow_numbers(numbers, dim), labels
                else:
                    yield arrays.arrow_vectors(numbers, dim, f"{name}: vectors", row), labels
                row += batch.num_rows

    return VectorFile(name, dim, count, read)


def _choose_columns(name: str, schema: Any, dim: int, column: str | None, beside: list[str]) -> list[str]:
    """Return the column of lists to read, or the columns of coordinates, without labels and groups."""
    _check_columns_beside(name, beside, schema.names)
    if column in beside:
        raise ValueError(f"{name}: column {column!r} cannot hold both the vectors and the groups")
    for named in beside:
        check_arrow_type(schema.field(named).type, named, name)
        schema = schema.remove(schema.names.index(named))
    lists = [field.name for field in schema if arrays.is_arrow_list(field.type)]
    if column is not None:
        if column not in schema.names:
            raise ValueError(f"{name} has no column {column!r}; it has {_shorten(schema.names)}")
        if column not in lists:
            raise ValueError(f"{name}: column {column!r} must hold lists of numbers, got {schema.field(column).type}")
        return [column]
    numbers = [field for field in schema if arrays.is_arrow_number(field.type)]
    floats = [field.name for field in numbers if import_pyarrow().types.is_floating(field.type)]
    if len(lists) == 1 and len(floats) != dim:
        return lists
    if not lists and len(floats) == dim:
        return floats
    # A column of integers might be a client's number, so integers count only if there are no other columns.
    if len(schema) == len(numbers) == dim:
        return list(schema.names)
    raise ValueError(
        f"{name} must have one column of lists of numbers, or {dim} columns of floats; it has {len(lists)} and "
        f"{len(floats)} such columns ({_shorten(schema.names)})" + ("; pass a column" if lists else "")
    )


def _check_columns_beside(name: str, beside: list[str], columns: list[str]) -> None:
    """Raise ValueError unless each extra column exists exactly once."""
    for named in beside:
        if named not in columns:
            close = did_you_mean(named, columns)
            raise ValueError(f"{name} has no column {named!r}; it has {_shorten(columns)}{close}")
        if columns.count(named) > 1:
            raise ValueError(f"{name} has {columns.count(named)} columns {named!r}; give them different names")


def _open_csv(name: str, dim: int, beside: list[str], unreadable: Unreadable) -> VectorFile:
    """Open a CSV file with one vector per line; a first line without any number is a header."""

    def read(size: int) -> Read:
        lines = _csv_lines(name, dim, beside, unreadable)
        while part := list(islice(lines, size)):
            rows = [[_number(field) for field in fields] for _, fields, _ in part]
            for (line, fields, _), row in zip(part, rows, strict=True):
                if None in row and unreadable == "raise":
                    what = repr(fields[row.index(None)][:20])
                    raise ValueError(f"{name}: vectors must be numbers, got {what} in line {line}; fill or drop it")
            labels = [Labels.of([texts[at] for *_, texts in part], named) for at, named in enumerate(beside)]
            yield np.array(rows, dtype=np.float64), labels

    return VectorFile(name, dim, sum(1 for _ in _csv_lines(name, dim, beside, unreadable)), read)


def _csv_lines(name: str, dim: int, beside: list[str], unreadable: Unreadable) -> CsvLines:
    """Yield the line number, the fields of the vector and the extra columns of each line; these need a header."""
    records, places = _csv_records(name), list[int]()
    if beside:
        _, header = next(records, (1, []))
        _check_columns_beside(name, beside, header)
        places = [header.index(named) for named in beside]
        records = chain([(1, header)], records)
    for line, every in records:
        if len(every) != dim + len(beside) and unreadable == "nan" and line > 1 and not beside:
            yield line, [""] * dim, []
            continue
        if len(every) != dim + len(beside):
            columns = "".join(f" and {named}" for named in beside)
            problem = f"line {line} has {len(every)} values, vectors have {dim}{columns}"
            if len(every) == 1 and any(mark in every[0] for mark in ";\t"):
                problem += "; it seems to be separated by semicolons or tabs: write it with commas"
            elif len(every) == dim + len(beside) + 1:
                problem += "; leave out a column such as an identifier"
            raise ValueError(f"{name} {_UNKNOWN}: {problem}")
        labels = [every[place] for place in places]
        fields = [field for place, field in enumerate(every) if place not in places] if places else every
        if line == 1 and (beside or (any(fields) and all(_number(field) is None for field in fields))):
            continue
        for named, label in zip(beside, labels, strict=True):
            check_name(label, f"{name}: column {named!r}", f"line {line}")
        if line == 1 and dim > 2 and fields == [str(place) for place in range(dim)]:
            problem = "line 1 may be a header or a vector, 0,1,2,…; give the columns names"
            raise ValueError(f"{name} {_UNKNOWN}: {problem}")
        yield line, fields, labels


def _csv_records(name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields of each non-empty line, with its number."""
    try:
        with open(name, encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, strict=True)
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


@contextmanager
def _numpy_errors(name: str) -> Iterator[None]:
    """Turn what NumPy and zipfile raise for a damaged file into a ValueError that names it."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except npy.DAMAGED_ARCHIVE as error:
        if str(error).startswith(name):
            raise
        raise ValueError(f"{name} is truncated or damaged: {error}") from error


def _check_array(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], dim: int) -> int:
    """Return the number of vectors in an array of this shape."""
    if dtype.kind not in "biuf":
        raise ValueError(f"{name}: vectors must be floats, integers or booleans, got dtype {dtype}")
    if shape == (dim,):
        return 1
    if len(shape) != 2 or shape[1] != dim:
        raise ValueError(f"{name}: the array must have shape ({dim},) or (n, {dim}), got {shape}")
    return shape[0]


def _shorten(names: list[str]) -> str:
    return ", ".join(names if len(names) <= 8 else [*names[:6], "…", names[-1]]) or "none"
