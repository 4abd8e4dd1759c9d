"""The people in files, a bounded piece at a time; and arrays in .npy files, which need no more than this."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.checks import ArgumentError
from sstq.files.npy import DAMAGED_ARCHIVE
from sstq.files.parquet import MAGIC
from sstq.inputs.arrays import finite_rows

# So many numbers are read at a time, so that memory grows neither with the clients nor with the files.
_NUMBERS_AT_A_TIME = 1 << 21

Path = str | os.PathLike[str]
_NPY = b"\x93NUMPY"


def file_kind(name: str) -> str:
    """Return "npy", "parquet" or "csv": by its first bytes, not its name; any other is text."""
    with open(name, "rb") as file:
        start = file.read(len(_NPY))
    if start == _NPY:
        return "npy"
    return "parquet" if start.startswith(MAGIC) else "csv"


@dataclass(frozen=True)
class Piece:
    """Some people of a file.

    Attributes:
        X: what they hold, as `Input.read` and `Input.substitute` take it.
        count: how many they are.
        place: where they are, for errors.
        labels: their public labels, if the file was opened with a column of these.
        groups: their private groups, if the files were opened with any.
    """

    X: Any
    count: int
    place: str
    labels: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None


Read = Iterator[tuple[Any, int, NDArray[Any] | None]]
"""What some people hold, how many they are, and their public labels, if there are any."""


@dataclass(frozen=True)
class PeopleFile:
    """A file with one person per row.

    Attributes:
        name: the name of the file.
        dim: the numbers or values per person.
        count: the number of people.
        read: yields so many people at a time.
        columns: the names of the columns, if the file has any.
        finite: whether people hold vectors, of which every number must be finite.
    """

    name: str
    dim: int
    count: int
    read: Callable[[int], Read]
    columns: tuple[str, ...] = ()
    finite: bool = False

    def pieces(self) -> Iterator[Piece]:
        """Yield the people in order, a bounded piece at a time; may be called repeatedly.

        Raises ValueError for a damaged file.
        """
        row = 0
        for values, count, labels in self.read(max(1, _NUMBERS_AT_A_TIME // self.dim)):
            if self.finite:
                values = finite_rows(values, self.name, self.columns, row)
            place = f"{self.name}, counted from row {row}" if row else self.name
            yield Piece(values, count, place, labels)
            row += count
        if row != self.count:
            raise ValueError(f"{self.name} must have {self.count} people, got {row}")


@dataclass(frozen=True)
class People:
    """The people in one file or several, with their private groups if they have any.

    Examples:
        >>> import tempfile, numpy as np, sstq
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/vectors.npy", np.ones((5, 3)))
        ...     people = sstq.FrameUnit(3, 2.0).input.open(f"{folder}/vectors.npy")
        ...     people.count, [piece.X.shape for piece in people.pieces()]
        (5, [(5, 3)])
    """

    files: Sequence[PeopleFile]
    groups: NDArray[Any] | None = None

    @property
    def count(self) -> int:
        """The number of people."""
        return sum(file.count for file in self.files)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, if the files have any."""
        return self.files[0].columns

    def pieces(self) -> Iterator[Piece]:
        """Yield the people in order; may be called repeatedly."""
        start = 0
        for file in self.files:
            for piece in file.pieces():
                stop = start + piece.count
                if self.groups is not None:
                    piece = replace(piece, groups=self.groups[start:stop])
                yield piece
                start = stop


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
