"""Files of vectors (.npy, Parquet and CSV) in bounded memory, read repeatedly if needed.

A file's kind is recognised by its first bytes, not its name; text is CSV. Nulls, text and rows of another length are
read as nan. `vector_file` refuses that with the file's name and the row, unless a device reads the file.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.checks import ArgumentError
from sstq.files.npy import DAMAGED_ARCHIVE
from sstq.inputs import arrays
from sstq.inputs.people import Path, PeopleFile
from sstq.inputs.people import Read as PeopleRead

Read = Iterator[tuple[NDArray[Any], NDArray[Any] | None]]
"""Numbers of any kind, (rows, dim), with nan for what is none; and their public labels, if there are any."""


def vector_file(
    name: str,
    dim: int,
    count: int,
    read: Callable[[int], Read],
    columns: tuple[str, ...] = (),
    *,
    answering: bool = False,
) -> PeopleFile:
    """A file whose numbers are read as float32 or float64; what is not finite is an error unless a device answers."""

    def checked(size: int) -> PeopleRead:
        row = 0
        for rows, labels in read(size):
            if not answering:
                rows = _finite(rows, name, columns, row)
            yield rows, len(rows), labels
            row += len(rows)

    return PeopleFile(name, dim, count, checked, columns)


def _finite(
    read: NDArray[Any], name: str, columns: tuple[str, ...], row: int
) -> NDArray[Any]:
    """The numbers as float32 or float64; ValueError, with the row, unless all are finite."""
    rows = arrays.as_floats(read, f"{name}: vectors", row)
    finite = np.isfinite(rows)
    if not finite.all():
        at, place = np.argwhere(~finite)[0]
        got = "no number" if np.isnan(rows[at, place]) else rows[at, place]
        column = columns[place] if columns else place
        wanted = f"{name}: vectors must be {rows.shape[1]} finite numbers"
        raise ValueError(
            f"{wanted}, got {got} in row {row + at}, column {column}; fill or drop it"
        )
    return rows


def open_npy(name: str, dim: int | None, *, answering: bool = False) -> PeopleFile:
    """Open a .npy file, mapped into memory. Vectors of one number may be (n,)."""
    array = load_array(name)
    rows = array
    if dim == 1 and array.ndim == 1:
        rows = array[:, None]
    elif dim is not None and array.shape == (dim,):
        rows = array[None]
    if rows.ndim != 2 or dim not in (None, rows.shape[1]):
        wanted = "(n, d)" if dim is None else f"({dim},) or (n, {dim})"
        raise ValueError(
            f"{name}: the array must have shape {wanted}, got {array.shape}"
        )

    def read(size: int) -> Read:
        return (
            (np.asarray(rows[start : start + size]), None)
            for start in range(0, len(rows), size)
        )

    return vector_file(name, rows.shape[1], len(rows), read, answering=answering)


def load_array(path: Path) -> NDArray[Any]:
    """Map a .npy file into memory; ValueError if it is damaged or something else."""
    name = os.fspath(path)
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (FileNotFoundError, PermissionError):
        raise
    except DAMAGED_ARCHIVE as error:
        if "Python objects in dtype" in str(error):
            problem = "holds Python objects (dtype object), not numbers"
            raise ValueError(
                f"{name} {problem}; save it with np.save(path, array.astype(float))"
            ) from error
        raise ValueError(
            f"{name} is truncated, damaged or not a .npy file: {error}"
        ) from error


def read_integers(path: Path, count: int) -> NDArray[Any]:
    """Read one integer per person from a .npy file; who takes them checks their range."""
    numbers = load_array(path)
    if numbers.shape != (count,) or numbers.dtype.kind not in "iu":
        got = f"shape {numbers.shape} and dtype {numbers.dtype}"
        raise ValueError(
            f"{os.fspath(path)} must hold {count} integers, one per vector, got {got}"
        )
    return numbers


def refuse_columns(name: str, columns: Any, by: str | None) -> None:
    """ValueError for names of columns where the file has none."""
    if columns is not None:
        raise ArgumentError(
            "columns",
            f"must be left out for the .npy file {name}, got {','.join(columns)}",
        )
    if by is not None:
        raise ArgumentError(
            "by",
            f"must be left out for {name}: only Parquet and CSV files have columns",
        )
