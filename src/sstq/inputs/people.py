"""The people in files, a bounded piece at a time."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from sstq.checks import ArgumentError

Path = str | os.PathLike[str]


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


class PeopleFile(Protocol):
    """A file with one person per row."""

    @property
    def name(self) -> str:
        """The name of the file."""
        ...

    @property
    def count(self) -> int:
        """The number of people."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, if the file has any."""
        ...

    def pieces(self) -> Iterator[Piece]:
        """Yield the people in order; may be called repeatedly."""
        ...


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
                groups = None if self.groups is None else self.groups[start:stop]
                yield Piece(piece.X, piece.count, piece.place, piece.labels, groups)
                start = stop


def listed(paths: Path | Sequence[Path]) -> list[Path]:
    """The paths as a list; ValueError if two are the same file, even by a link: it would spend ε twice."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    seen: dict[tuple[int, int], str] = {}
    for path in given:
        name = os.fspath(path)
        if re.match("[a-z][a-z0-9+.-]+:/", name):
            address = re.sub(":/+", "://", name, count=1)  # a Path keeps one slash only
            raise ArgumentError(
                "vectors",
                f"must be files on this machine, got {address}; download it first",
            )
        status = os.stat(path)
        place = (status.st_dev, status.st_ino)
        if place in seen:
            problem = (
                "must be different files, so that nobody is encoded twice: "
                f"{name} is the same file as {seen[place]}"
            )
            raise ArgumentError("vectors", problem)
        seen[place] = name
    return given
