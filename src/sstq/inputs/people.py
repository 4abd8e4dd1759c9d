"""The people in files, a bounded piece at a time."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

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
