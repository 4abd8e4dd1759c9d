"""Arrays in .npy files: vectors in bounded memory, and one integer per person."""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.checks import ArgumentError
from sstq.files.npy import DAMAGED_ARCHIVE
from sstq.inputs.people import Path, PeopleFile, Read


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
        for start in range(0, len(rows), size):
            some = np.asarray(rows[start : start + size])
            yield some, len(some), None

    return PeopleFile(name, rows.shape[1], len(rows), read, finite=not answering)


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
