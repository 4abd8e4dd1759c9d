"""Files of vectors (.npy, Parquet and CSV) in bounded memory, read repeatedly if needed.

A file's kind is recognised by its first bytes, not its name; text is CSV. Nulls, text and rows of another length are
read as nan. `VectorFile.pieces` refuses that with the file's name and the row, unless a device reads the file.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.checks import ArgumentError
from sstq.files.npy import DAMAGED_ARCHIVE
from sstq.inputs import arrays
from sstq.inputs.people import Path, Piece

# Rows are read this many numbers at a time, so that memory grows neither with the clients nor with the files.
_NUMBERS_AT_A_TIME = 1 << 21

Read = Iterator[tuple[NDArray[Any], NDArray[Any] | None]]
"""Numbers of any kind, (rows, dim), with their public labels, if there are any."""


@dataclass(frozen=True)
class VectorFile:
    """The vectors of one file.

    Attributes:
        name: the name of the file.
        dim: the length of each vector.
        count: the number of vectors.
        read: yields numbers of any kind, this many rows at a time, with nan for what is none; and labels.
        columns: the names of the columns of numbers, if the file has any.
        answering: whether a device reads it, which never refuses a value.
    """

    name: str
    dim: int
    count: int
    read: Callable[[int], Read]
    columns: tuple[str, ...] = ()
    answering: bool = False

    def pieces(self) -> Iterator[Piece]:
        """Yield the vectors in order, (rows, dim), a bounded piece at a time; may be called repeatedly.

        Raises ValueError, with the row, for what is not a finite number, and for a damaged file. If a device answers,
        such numbers are passed on.
        """
        row = 0
        for read, labels in self.read(max(1, _NUMBERS_AT_A_TIME // self.dim)):
            rows = read if self.answering else self._checked(read, row)
            yield Piece(rows, len(rows), f"{self.name}, from row {row} on", labels)
            row += len(rows)
        if row != self.count:
            raise ValueError(f"{self.name} must have {self.count} vectors, got {row}")

    def _checked(self, read: NDArray[Any], row: int) -> NDArray[Any]:
        """The numbers as float32 or float64; ValueError unless all are finite."""
        rows = arrays.as_floats(read, f"{self.name}: vectors", row)
        finite = np.isfinite(rows)
        if not finite.all():
            at, place = np.argwhere(~finite)[0]
            got = "no number" if np.isnan(rows[at, place]) else rows[at, place]
            column = self.columns[place] if self.columns else place
            wanted = f"{self.name}: vectors must be {self.dim} finite numbers"
            raise ValueError(
                f"{wanted}, got {got} in row {row + at}, column {column}; fill or drop it"
            )
        return rows


def open_npy(name: str, dim: int | None, *, answering: bool = False) -> VectorFile:
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

    return VectorFile(name, rows.shape[1], len(rows), read, answering=answering)


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
