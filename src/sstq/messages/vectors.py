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
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sstq.checks import ArgumentError, did_you_mean
from sstq.files import npy
from sstq.files.stores import is_remote, open_file
from sstq.messages import arrays
from sstq.messages.parquet import import_pyarrow, open_parquet

# Rows are read this many numbers at a time, so that memory grows neither with the clients nor with the files.
_NUMBERS_AT_A_TIME = 1 << 21
# An array in Fortran order is unpacked as a whole: at most this many bytes, or this many times the compressed size.
_WHOLE_BYTES, _WHOLE_RATIO = 1 << 26, 16
_NPY = b"\x93NUMPY"
IDENTIFIERS = ("id", "uuid", "user", "name")
_UNKNOWN = "is not a .npy, .npz, Parquet or CSV file of vectors"

Unreadable = Literal["raise", "nan"]
Chunks = Iterator[NDArray[Any]]
Read = Iterator[tuple[NDArray[Any], Sequence[NDArray[Any]]]]
CsvLines = Iterator[tuple[int, list[str], list[str]]]


class Piece(NamedTuple):
    """Some vectors of a file, (rows, dim), with their public labels and private groups."""

    rows: NDArray[Any]
    labels: NDArray[Any] | None = None
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
    columns: tuple[str, ...] = ()
    """The names of the columns of numbers, if the file has any."""

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
            secret = None
            if self.group is not None:
                place = f"{self.name}: column {self.group!r}"
                secret = arrays.group_numbers(beside[-1], self.group_names, place, row)
            row += len(rows)
            yield Piece(rows, labels, secret)
        if row != self.count:
            raise ValueError(f"{self.name} must have {self.count} vectors, got {row}")


def open_vectors(
    path: str | os.PathLike[str],
    dim: int | None,
    columns: Sequence[str] | None = None,
    delimiter: str = ",",
    by: str | None = None,
    group: str | None = None,
    group_names: Sequence[str] | None = None,
    unreadable: Unreadable = "raise",
) -> VectorFile:
    """Open the vectors of a .npy, .npz, Parquet or CSV file (one vector per line, with or without a header).

    Arguments:
        path: the file; its kind is recognised by its content.
        dim: the length that the vectors must have; None for whatever the file has.
        columns: the columns of numbers of a CSV or Parquet file; or one column of lists of a Parquet file, or one array
            of an .npz. By default the only ones: a CSV file must have no other columns, and a Parquet file exactly one
            column of lists, exactly `dim` columns of floats, or only `dim` columns, all of numbers.
        delimiter: the character between the values of a CSV file.
        by: the column with public labels of a Parquet file, or of a CSV file with a header.
        group: the column with private groups, as integers from 0 on or by name.
        group_names: the names of the private groups, in the order of their numbers.
        unreadable: what becomes of nulls, text and rows of a wrong length: "raise", or "nan" for a row with nan.

    Raises ValueError if the file cannot hold such vectors, and ImportError if it is Parquet without the [data] extra.
    """
    name = os.fspath(path)
    with open_file(name) as file:
        start = file.read(6)
    zipped, parquet = start.startswith(b"PK\x03\x04"), start.startswith(b"PAR1")
    if is_remote(name) and not parquet:
        raise ValueError(f"{name} must be Parquet to be read from an object store; copy it to this machine first")
    beside = [named for named in (by, group) if named is not None]
    if beside and (zipped or start == _NPY):
        raise ValueError(
            f"{name} has no column {beside[0]!r}: only Parquet files and CSV files with a header have columns"
        )
    if len(set(beside)) < len(beside):
        raise ValueError(f"{name}: column {by!r} cannot be public labels and private groups at once")
    if both := [named for named in beside if named in (columns or ())]:
        raise ValueError(f"{name}: column {both[0]!r} cannot hold both the vectors and the groups")
    if start == _NPY:
        if columns is not None:
            raise ArgumentError("columns", f"must be left out for the .npy file {name}, got {','.join(columns)}")
        return _open_npy(name, dim)
    if zipped:
        return _open_npz(name, dim, columns)
    if parquet:
        opened = _open_parquet(name, dim, columns, beside, unreadable)
    else:
        opened = _open_csv(name, _CsvLayout.of(name, dim, columns, beside, delimiter), unreadable)
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


def _open_npy(name: str, dim: int | None) -> VectorFile:
    """Open a .npy file, mapped into memory."""
    with open(name, "rb") as file, _numpy_errors(name):
        shape, _, dtype = npy.read_header(file)
    count, dim = _check_array(name, shape, dtype, dim)

    def read(size: int) -> Read:
        if count:
            with _numpy_errors(name):
                rows = np.load(name, mmap_mode="r", allow_pickle=False).reshape(count, dim)
            yield from ((np.asarray(rows[start : start + size]), ()) for start in range(0, count, size))

    return VectorFile(name, dim, count, read)


def _open_npz(name: str, dim: int | None, columns: Sequence[str] | None) -> VectorFile:
    """Open one array of an .npz file, unpacked while it is read."""
    with _numpy_errors(name), zipfile.ZipFile(name) as archive:
        members = [member.removesuffix(".npy") for member in archive.namelist() if member.endswith(".npy")]
        chosen, *others = members if columns is None else columns or [""]
        if others or chosen not in members:
            given = f"got {','.join(columns)}" if columns else f"it has {len(members)}"
            raise ArgumentError("columns", f"must be one of the arrays of {name} ({_shorten(members)}); {given}")
        packed = archive.getinfo(f"{chosen}.npy")
        with archive.open(packed) as file:
            shape, fortran, dtype = npy.read_header(file)
    if fortran and packed.file_size > max(_WHOLE_BYTES, _WHOLE_RATIO * packed.compress_size):
        problem = f"the array is in Fortran order and would be unpacked as a whole, to {packed.file_size:,} bytes"
        remedy = "save it in C order: np.savez_compressed(name, np.ascontiguousarray(array))"
        raise ValueError(f"{name}: {problem}; {remedy}")
    count, dim = _check_array(f"{name}[{chosen}]", shape, dtype, dim)

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


def _open_parquet(
    name: str, dim: int | None, wanted: Sequence[str] | None, beside: list[str], unreadable: Unreadable
) -> VectorFile:
    """Open a Parquet file with a column of lists, or with one column per coordinate."""
    with open_file(name) as file, open_parquet(file) as table:
        count = int(table.metadata.num_rows)
        schema = table.schema_arrow
        columns, lists = _choose_columns(name, schema, dim, wanted, beside)
        length = len(columns)
        if lists and dim is None:
            first = next(table.iter_batches(batch_size=1, columns=columns), None)
            length = len(first.column(0)[0] or ()) if first is not None and first.num_rows else 1
    length = length if dim is None else dim

    def read(size: int) -> Read:
        row = 0
        with open_file(name) as file, open_parquet(file) as table:
            for batch in table.iter_batches(batch_size=size, columns=[*columns, *beside]):
                labels = [arrays.arrow_labels(batch.column(named), named, name, row) for named in beside]
                numbers = [batch.column(column) for column in columns]
                if unreadable == "nan":
                    yield arrays.arrow_numbers(numbers, length), labels
                else:
                    yield arrays.arrow_vectors(numbers, length, f"{name}: vectors", row), labels
                row += batch.num_rows

    return VectorFile(name, length, count, read, columns=() if lists else tuple(columns))


def _choose_columns(
    name: str, schema: Any, dim: int | None, wanted: Sequence[str] | None, beside: list[str]
) -> tuple[list[str], bool]:
    """Return the columns to read, without labels and groups, and whether it is one column of lists."""
    _check_columns_beside(name, beside, schema.names)
    for named in beside:
        arrays.check_label_type(schema.field(named).type, named, name)
        schema = schema.remove(schema.names.index(named))
    lists = [field.name for field in schema if arrays.is_arrow_list(field.type)]
    numbers = [field for field in schema if arrays.is_arrow_number(field.type)]
    if wanted is not None:
        for column in wanted:
            if column not in schema.names:
                raise ArgumentError("columns", f"must be columns of {name} ({_shorten(schema.names)}), got {column!r}")
        if list(wanted) == lists[:1] or (len(wanted) == 1 and wanted[0] in lists):
            return list(wanted), True
        if not set(wanted) <= {field.name for field in numbers} or dim not in (None, len(wanted)):
            kinds = ", ".join(f"{column}: {schema.field(column).type}" for column in wanted)
            many = "" if dim is None else f"{dim} "
            raise ArgumentError("columns", f"must be one column of lists or {many}columns of numbers, got {kinds}")
        return list(wanted), False
    floats = [field.name for field in numbers if import_pyarrow().types.is_floating(field.type)]
    size = len(floats) if dim is None else dim
    if len(lists) == 1 and (dim is None or len(floats) != dim):
        return lists, True
    if not lists and floats and len(floats) == size:
        return floats, False
    # A column of integers might be a client's number, so integers count only if there are no other columns.
    if dim is not None and len(schema) == len(numbers) == dim:
        return list(schema.names), False
    raise ArgumentError(
        "columns",
        f"must be given for {name}, which has {len(lists)} columns of lists and {len(floats)} of floats "
        f"({_shorten(schema.names)}), not one of lists or {'some' if dim is None else dim} of floats",
    )


def _check_columns_beside(name: str, beside: list[str], columns: list[str]) -> None:
    """Raise ValueError unless each extra column exists exactly once."""
    for named in beside:
        if named not in columns:
            close = did_you_mean(named, columns)
            raise ValueError(f"{name} has no column {named!r}; it has {_shorten(columns)}{close}")
        if columns.count(named) > 1:
            raise ValueError(f"{name} has {columns.count(named)} columns {named!r}; give them different names")


@dataclass(frozen=True)
class _CsvLayout:
    """Which fields of a CSV file are read: those of the vectors and, with a header, those beside them."""

    dim: int
    delimiter: str
    header: tuple[str, ...]
    places: tuple[int, ...]
    beside: tuple[int, ...]
    width: int

    @classmethod
    def of(
        cls, name: str, dim: int | None, wanted: Sequence[str] | None, beside: list[str], delimiter: str
    ) -> "_CsvLayout":
        """Read the first line: without any number among its vector's fields, or with columns beside, it is a header."""
        if len(delimiter) != 1:
            raise ArgumentError("delimiter", f"must be one character, got {delimiter!r}")
        _, first = next(_csv_records(name, delimiter), (1, []))
        first = [field.strip() for field in first]
        for mark in ";\t|,":
            if len(first) == 1 and mark in first[0] and (dim or 2) > 1:
                raise ArgumentError(
                    "delimiter", f"must be {mark!r} for {name}, whose line 1 has {mark!r} between values"
                )
        named = bool(beside or wanted or (any(first) and all(_number(field) is None for field in first)))
        header = tuple(first) if named else ()
        _check_columns_beside(name, beside, first)
        if missing := [column for column in wanted or () if first.count(column) != 1]:
            raise ArgumentError("columns", f"must be columns of {name} ({_shorten(first)}), got {missing[0]!r}")
        rest = [place for place, column in enumerate(first) if column not in beside]
        places = [first.index(column) for column in wanted] if wanted else rest
        size = len(places) if dim is None else dim
        people = [first[place] for place in rest if named and first[place].lower() in IDENTIFIERS]
        others = [first[place] for place in rest if first[place] not in people]
        if dim is None and people and not wanted:
            problem = f"must be given for {name}, whose column {people[0]!r} identifies people"
            raise ArgumentError("columns", f"{problem}, such as {','.join(others)}")
        if len(places) != size:
            if not named or (not wanted and len(rest) < size):
                raise ValueError(f"{name} {_UNKNOWN}: line 1 has {len(places)} values, vectors have {size}")
            given = f"got {len(places)}" if wanted else f"such as {','.join(others[:size])}"
            raise ArgumentError("columns", f"must be {size} columns of {name} ({_shorten(first)}), {given}")
        return cls(size, delimiter, header, tuple(places), tuple(map(first.index, beside)), len(first))

    def lines(self, name: str, unreadable: Unreadable) -> CsvLines:
        """Yield the line number, the fields of the vector and the columns beside it, of each line."""
        for line, fields in _csv_records(name, self.delimiter):
            if len(fields) != self.width and unreadable == "nan" and not self.beside:
                yield line, [""] * self.dim, []
                continue
            if len(fields) != self.width:
                problem = f"line {line} has {len(fields)} values, line 1 has {self.width}"
                raise ValueError(f"{name} {_UNKNOWN}: {problem}")
            if line == 1 and self.header:
                continue
            vector, labels = [fields[place] for place in self.places], [fields[place] for place in self.beside]
            if "" in labels:
                column = self.header[self.beside[labels.index("")]]
                problem = f"column {column!r} must not have empty labels, got one in line {line}"
                raise ValueError(f"{name}: {problem}; fill or drop it first")
            if line == 1 and self.dim > 2 and vector == [str(place) for place in range(self.dim)]:
                problem = "line 1 may be a header or a vector, 0,1,2,…; give the columns names"
                raise ValueError(f"{name} {_UNKNOWN}: {problem}")
            yield line, vector, labels


def _open_csv(name: str, layout: _CsvLayout, unreadable: Unreadable) -> VectorFile:
    """Open a CSV file with one vector per line."""
    columns = tuple(layout.header[place] for place in layout.places) if layout.header else ()

    def read(size: int) -> Read:
        lines = layout.lines(name, unreadable)
        while part := list(islice(lines, size)):
            rows = [[_number(field) for field in fields] for _, fields, _ in part]
            for (line, fields, _), row in zip(part, rows, strict=True):
                if None in row and unreadable == "raise":
                    at = row.index(None)
                    others = ",".join(columns[:at] + columns[at + 1 :])
                    remedy = f", or keep the columns {others}" if others else ""
                    what = f"got {fields[at][:20]!r} in line {line}; fill or drop it{remedy}"
                    raise ValueError(f"{name}: vectors must be numbers, {what}")
            labels = [np.array([texts[at] for *_, texts in part], dtype=object) for at in range(len(layout.beside))]
            yield np.array(rows, dtype=np.float64).reshape(-1, layout.dim), labels

    return VectorFile(name, layout.dim, sum(1 for _ in layout.lines(name, unreadable)), read, columns=columns)


def _csv_records(name: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields of each non-empty line, with its number."""
    try:
        with open(name, encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, delimiter=delimiter, strict=True)
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
    except (FileNotFoundError, PermissionError, ArgumentError):
        raise
    except npy.DAMAGED_ARCHIVE as error:
        if str(error).startswith(name):
            raise
        raise ValueError(f"{name} is truncated or damaged: {error}") from error


def _check_array(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], dim: int | None) -> tuple[int, int]:
    """Return the number of vectors in an array of this shape, and their length."""
    if dtype.kind not in "biuf":
        raise ValueError(f"{name}: vectors must be floats, integers or booleans, got dtype {dtype}")
    if dim is not None and shape == (dim,):
        return 1, dim
    if len(shape) != 2 or dim not in (None, shape[1]):
        wanted = "(n, d)" if dim is None else f"({dim},) or (n, {dim})"
        raise ValueError(f"{name}: the array must have shape {wanted}, got {shape}")
    return shape[0], shape[1]


def _shorten(names: list[str]) -> str:
    return ", ".join(names if len(names) <= 8 else [*names[:6], "…", names[-1]]) or "none"
