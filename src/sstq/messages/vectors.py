"""Files of vectors: .npy, .npz, Parquet and CSV, read a bounded piece at a time and as often as one likes.

What a file is, its first bytes say, not its name; text is CSV. Everything that encoding would refuse is refused here
first, with the name of the file and the number of the row: what is not a number, another length, numbers that are not
finite, nulls.
"""

from __future__ import annotations

import csv
import os
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.files.npy import DAMAGED_ARCHIVE, read_array, read_header
from sstq.messages.arrays import arrow_rows, arrow_scalars, as_floats, is_arrow_list, is_arrow_number, is_number
from sstq.messages.parquet import import_pyarrow

__all__ = ["VectorFile", "open_vectors", "refuse_repeated"]

# Rows are read this many numbers at a time, so that memory grows neither with the clients nor with the files.
_NUMBERS_AT_A_TIME = 1 << 21

# An array in Fortran order has to be unpacked as a whole: so many bytes, or so many times the compressed ones, at most.
_WHOLE_BYTES, _WHOLE_RATIO = 1 << 26, 16

_NPY_MAGIC, _ZIP_MAGIC, _PARQUET_MAGIC = b"\x93NUMPY", b"PK\x03\x04", b"PAR1"


class VectorFile(ABC):
    """The vectors of one file.

    Attributes: `name`, the file's; `dim`, the length of each vector; `count`, how many there are.
    """

    name: str
    dim: int
    count: int

    def chunks(self) -> Iterator[NDArray[Any]]:
        """Yield the vectors in order, as (rows, dim) arrays of finite float32 or float64; it can be called again.

        Raises ValueError, with the row, for a number that is not finite and for a file that is damaged.
        """
        row = 0
        for read in self._read():
            rows = as_floats(read, f"{self.name}: vectors", row)
            bad = np.argwhere(~np.isfinite(rows))
            if len(bad):
                at, column = bad[0]
                raise ValueError(
                    f"{self.name}: {rows[at, column]} in row {row + at}, column {column}; it must be finite"
                )
            row += len(rows)
            yield rows
        if row != self.count:
            raise ValueError(f"{self.name}: {self.count} vectors announced, {row} found")

    @abstractmethod
    def _read(self) -> Iterator[NDArray[Any]]:
        """Yield the chunks as numbers of any kind, not yet checked for those that are not exact or not finite."""

    @property
    def _rows_at_a_time(self) -> int:
        return max(1, _NUMBERS_AT_A_TIME // self.dim)


def open_vectors(
    path: str | os.PathLike[str], dim: int, key: str | None = None, column: str | None = None
) -> VectorFile:
    """Open the vectors of a .npy, .npz, Parquet or CSV file.

    The numbers may be floats, booleans, or integers that are exact in float64. A CSV file has one vector per line, with
    or without a header.

    Arguments:
        path: the file; its kind is recognised by its content.
        dim: the length that the vectors must have.
        key: which array of an .npz; needed only if it holds several.
        column: which list column of a Parquet file; without it the file must have exactly one column of lists of
            numbers, exactly `dim` columns of floats, or only `dim` columns, all of numbers; columns are then the
            coordinates in order.

    Raises:
        ValueError: the file cannot hold such vectors.
        OSError: it cannot be read.
        ImportError: it is Parquet, and the [data] extra is not installed.

    """
    name = os.fspath(path)
    with open(name, "rb") as file:
        start = file.read(len(_NPY_MAGIC))
    if key is not None and not start.startswith(_ZIP_MAGIC):
        raise ValueError(f"{name}: a key names an array of an .npz file, which this is not (key {key!r})")
    if column is not None and not start.startswith(_PARQUET_MAGIC):
        raise ValueError(f"{name}: a column is part of a Parquet file, which this is not (column {column!r})")
    if start.startswith(_NPY_MAGIC):
        return _NpyFile(name, dim)
    if start.startswith(_ZIP_MAGIC):
        return _NpzFile(name, dim, key)
    if start.startswith(_PARQUET_MAGIC):
        return _ParquetFile(name, dim, column)
    return _CsvFile(name, dim)


def refuse_repeated(paths: Iterable[Path]) -> None:
    """Refuse a file that is named twice, be it by a link: a second message about a vector costs its owner ε again.

    Raises:
        ValueError: two paths lead to the same file.
        OSError: there is no such file.
    """
    seen: dict[tuple[int, int], Path] = {}
    for path in paths:
        status = path.stat()
        file = status.st_dev, status.st_ino
        if file in seen:
            raise ValueError(f"{path} is the same file as {seen[file]}: give each file once; nobody is encoded twice")
        seen[file] = path


class _NpyFile(VectorFile):
    """A .npy file, mapped into memory."""

    def __init__(self, name: str, dim: int) -> None:
        self.name, self.dim = name, dim
        with open(name, "rb") as file, _numpy_errors(name):
            shape, _, dtype = read_header(file)
        self.count = _check_array(name, shape, dtype, dim)

    def _read(self) -> Iterator[NDArray[Any]]:
        if not self.count:
            return
        with _numpy_errors(self.name):
            rows = np.load(self.name, mmap_mode="r", allow_pickle=False).reshape(self.count, self.dim)
        for start in range(0, self.count, self._rows_at_a_time):
            yield np.asarray(rows[start : start + self._rows_at_a_time])


class _NpzFile(VectorFile):
    """One array of an .npz file, unpacked as it is read."""

    def __init__(self, name: str, dim: int, key: str | None) -> None:
        self.name, self.dim = name, dim
        with _numpy_errors(name), zipfile.ZipFile(name) as archive:
            members = [member.removesuffix(".npy") for member in archive.namelist() if member.endswith(".npy")]
            self._member = _choose(name, members, key) + ".npy"
            with archive.open(self._member) as file:
                shape, self._fortran, self._dtype = read_header(file)
            packed = archive.getinfo(self._member)
        if self._fortran and packed.file_size > max(_WHOLE_BYTES, _WHOLE_RATIO * packed.compress_size):
            raise ValueError(
                f"{name}: the array is in Fortran order and would be unpacked as a whole, to {packed.file_size:,} "
                "bytes; save it in C order: np.savez_compressed(name, np.ascontiguousarray(array))"
            )
        self.count = _check_array(f"{name}[{self._member.removesuffix('.npy')}]", shape, self._dtype, dim)

    def _read(self) -> Iterator[NDArray[Any]]:
        with _numpy_errors(self.name), zipfile.ZipFile(self.name) as archive, archive.open(self._member) as file:
            if self._fortran:  # its rows are spread over the whole array
                rows = read_array(file, archive.getinfo(self._member).file_size).reshape(self.count, self.dim)
                yield from (
                    rows[start : start + self._rows_at_a_time] for start in range(0, self.count, self._rows_at_a_time)
                )
                return
            read_header(file)
            row_bytes = self.dim * self._dtype.itemsize
            for start in range(0, self.count, self._rows_at_a_time):
                wanted = min(self._rows_at_a_time, self.count - start)
                raw = file.read(wanted * row_bytes)
                if len(raw) < wanted * row_bytes:
                    raise ValueError(f"the array ends in row {start + len(raw) // row_bytes} of {self.count}")
                yield np.frombuffer(raw, dtype=self._dtype).reshape(wanted, self.dim)
            # The archive's checksum is compared when the end has been reached, and not before.
            if file.read(1):
                raise ValueError("the array is longer than its header says")


class _ParquetFile(VectorFile):
    """A Parquet file with a column of lists, or with one column a coordinate."""

    def __init__(self, name: str, dim: int, column: str | None) -> None:
        self.name, self.dim = name, dim
        with self._open() as file:
            schema = file.schema_arrow
            self.count = int(file.metadata.num_rows)
        self._columns, self._lists = _choose_columns(name, schema, dim, column)

    @contextmanager
    def _open(self) -> Iterator[Any]:
        pyarrow = import_pyarrow()
        try:
            with pyarrow.parquet.ParquetFile(self.name, page_checksum_verification=True) as file:
                yield file
        except (OSError, pyarrow.ArrowException) as error:
            raise ValueError(f"{self.name} is truncated, damaged or not a Parquet file: {error}") from error

    def _read(self) -> Iterator[NDArray[Any]]:
        row = 0
        with self._open() as file:
            for batch in file.iter_batches(batch_size=self._rows_at_a_time, columns=self._columns):
                columns, vectors = [batch.column(name) for name in self._columns], f"{self.name}: vectors"
                if self._lists:
                    yield arrow_rows(columns[0], self.dim, vectors, row)
                else:
                    yield np.stack([arrow_scalars(column, vectors, row) for column in columns], axis=1)
                row += batch.num_rows


class _CsvFile(VectorFile):
    """A CSV file, one vector per line; a first line without any number is a header."""

    def __init__(self, name: str, dim: int) -> None:
        self.name, self.dim = name, dim
        self.count = sum(1 for _ in self._lines())

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the fields of each vector, with the number of their line."""
        try:
            with open(self.name, encoding="utf-8-sig", newline="") as file:
                lines = csv.reader(file, strict=True)
                for fields in lines:
                    line = lines.line_num
                    if not fields:
                        continue
                    if len(fields) != self.dim:
                        raise ValueError(f"line {line} has {len(fields)} values, vectors have {self.dim}")
                    if line == 1 and any(fields) and all(_number(field) is None for field in fields):
                        continue
                    if line == 1 and self.dim > 2 and fields == [str(place) for place in range(self.dim)]:
                        raise ValueError("line 1 may be a header or a vector, 0,1,2,…; give the columns names")
                    yield line, fields
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{self.name} is not a .npy, .npz, Parquet or CSV file of vectors: {error}") from error

    def _read(self) -> Iterator[NDArray[Any]]:
        lines = self._lines()
        while part := list(islice(lines, self._rows_at_a_time)):
            rows = [[_number(field) for field in fields] for _, fields in part]
            for (line, fields), row in zip(part, rows, strict=True):
                if None in row:
                    what = repr(fields[row.index(None)][:20])
                    raise ValueError(
                        f"{self.name}: vectors must be numbers, got {what} in line {line}; fill or drop it"
                    )
            yield np.array(rows, dtype=np.float64)


@contextmanager
def _numpy_errors(name: str) -> Iterator[None]:
    """Turn what NumPy and zipfile raise for a damaged file into a ValueError that names it."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except DAMAGED_ARCHIVE as error:
        if str(error).startswith(name):
            raise
        raise ValueError(f"{name} is truncated or damaged: {error}") from error


def _check_array(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], dim: int) -> int:
    """Return the number of vectors in an array of that shape."""
    if not is_number(dtype):
        raise ValueError(f"{name}: vectors must be floats, integers or booleans, got dtype {dtype}")
    if shape == (dim,):
        return 1
    if len(shape) != 2 or shape[1] != dim:
        raise ValueError(f"{name}: the array must have shape ({dim},) or (n, {dim}), got {shape}")
    return shape[0]


def _number(text: str) -> float | None:
    """Return the number of a field of a CSV file, if it is one; 2020_1 is one to Python only."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _choose(name: str, members: list[str], key: str | None) -> str:
    if key is None and len(members) == 1:
        return members[0]
    if key in members:
        return str(key)
    held = ", ".join(members) or "none"
    if key is None:
        raise ValueError(f"{name} holds {len(members)} arrays ({held}): say which with a key")
    raise ValueError(f"{name} has no array {key!r}; it holds {held}")


def _choose_columns(name: str, schema: Any, dim: int, column: str | None) -> tuple[list[str], bool]:
    """Return the columns to read, and whether they are one column of lists rather than one column a coordinate."""
    lists = [field.name for field in schema if is_arrow_list(field.type)]
    if column is not None:
        if column not in schema.names:
            raise ValueError(f"{name} has no column {column!r}; it has {_shorten(schema.names)}")
        if column not in lists:
            raise ValueError(f"{name}: column {column!r} must hold lists of numbers, got {schema.field(column).type}")
        return [column], True
    floats = [field.name for field in schema if import_pyarrow().types.is_floating(field.type)]
    if len(lists) == 1 and len(floats) != dim:
        return lists, True
    if not lists and len(floats) == dim:
        return floats, False
    # Without such columns a column of integers could be a client's number, unless there is no other column.
    if len(schema) == dim and all(is_arrow_number(field.type) for field in schema):
        return schema.names, False
    raise ValueError(
        f"{name} must have one column of lists of numbers, or {dim} columns of floats; it has {len(lists)} and "
        f"{len(floats)} such columns ({_shorten(schema.names)})" + ("; say which with a column" if lists else "")
    )


def _shorten(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else ", ".join([*names[:6], "…", names[-1]])
