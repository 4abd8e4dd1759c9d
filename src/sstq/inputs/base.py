"""What a person holds, as a part of a mechanism: data are read, mended, opened from files, and made up for trials."""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from sstq.array_types import Floats, Rows
from sstq.checks import ArgumentError
from sstq.inputs.people import Path, People, PeopleFile, read_integers
from sstq.inputs.reports import LocalReport
from sstq.inputs.vector_tables import VectorColumns, open_vectors
from sstq.randomness.secret import BitSource

Held = dict[str, Any]
"""What people hold, as the arguments X and groups of `Mechanism.encode`."""


class Input(ABC):
    """What a person holds.

    A row is what one person holds, as the numbers that the mechanism encodes.

    Attributes:
        takes: what people hold, in words.
        file_options: the options of `open` that its files may need.
        has_clip: whether it is vectors that are scaled down to clip, which is then the unit of errors.
        dim: the numbers per person of a file of vectors or categories.
    """

    takes: ClassVar[str]
    file_options: ClassVar[tuple[str, ...]] = ()
    has_clip: ClassVar[bool] = False
    dim: int

    def read(
        self, X: Any, groups: ArrayLike | None = None, report: LocalReport | None = None
    ) -> Rows:
        """Read the data of people whose owner calls: ValueError for whatever cannot be encoded.

        Args:
            X: what people hold, as `Mechanism.encode` takes it.
            groups: their private groups, if they have any.
            report: counts what the owner should know; it depends on the data.
        """
        self.check_groups(groups)
        return self.strict_rows(X, groups, report)

    @abstractmethod
    def strict_rows(self, X: Any, groups: Any, report: LocalReport | None) -> Rows:
        """The rows of `read`."""

    def substitute(
        self,
        X: Any,
        groups: ArrayLike | None = None,
        *,
        source: BitSource,
        report: LocalReport | None = None,
    ) -> Rows:
        """Read the data on a device, which never refuses a value: something harmless takes the place of bad ones.

        Only shapes are refused. The same number of random words is taken for every row, whatever its values are.
        """
        self.check_groups(groups)
        return self.mended_rows(X, groups, source, report)

    @abstractmethod
    def mended_rows(
        self, X: Any, groups: Any, source: BitSource, report: LocalReport | None
    ) -> Rows:
        """The rows of `substitute`."""

    def check_groups(self, groups: ArrayLike | None) -> None:
        """ValueError for groups where nobody has one, or for none where everybody has."""
        if groups is not None:
            raise ValueError(
                "groups must be left out: this mechanism has no private groups; use GroupUnit"
            )

    def together(self, values: Sequence[Any]) -> Any:
        """What single people hold as one X; what nobody can hold is something harmless, as on a device."""
        return list(values)

    def open(
        self,
        paths: Path | Sequence[Path],
        *,
        columns: Sequence[str] | None = None,
        by: str | None = None,
        groups: Path | None = None,
        answering: bool = False,
    ) -> People:
        """Open files with what people hold, one person per row: .npy, Parquet or CSV.

        Args:
            paths: one file or several, which must be different.
            columns: the columns of CSV or Parquet files, or one column of lists of Parquet files. By default the only
                column of lists, those with the names of bounds, or all columns. Empty for a CSV file without a header.
            by: the column with public labels of Parquet files, or of CSV files with a header.
            groups: a .npy file with the private group of each person.
            answering: a device reads the files: every line is a person, whatever is in it.
        """
        for name, value in {"columns": columns, "by": by, "groups": groups}.items():
            if value is not None and name not in self.file_options:
                raise ArgumentError(
                    name, f"must be left out: this mechanism takes {self.takes}"
                )
        if groups is None and "groups" in self.file_options:
            raise ArgumentError(
                "groups", "must be a .npy file with one integer per person, got None"
            )
        files = [
            self.open_file(path, columns, by, answering=answering)
            for path in _listed(paths)
        ]
        people = People(files)
        if not people.count:
            raise ValueError(
                f"there are no vectors in {', '.join(file.name for file in files)}"
            )
        if groups is None:
            return people
        return People(files, read_integers(groups, people.count))

    def open_file(
        self,
        path: Path,
        columns: Sequence[str] | None,
        by: str | None,
        *,
        answering: bool = False,
    ) -> PeopleFile:
        """Open one file. Columns that have names are found by these."""
        wanted = VectorColumns(self.dim, columns, by, self.names, answering)
        return open_vectors(path, wanted)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of files; empty if any will do."""
        return ()

    @abstractmethod
    def trial(self, rng: np.random.Generator, count: int) -> Held:
        """Make up what so many people hold, as the arguments of `Mechanism.encode`."""

    @abstractmethod
    def extremes(self, rng: np.random.Generator) -> dict[str, Held]:
        """What single people may hold that differs as much as it can, by name."""

    def refused(self) -> list[Held]:
        """What nobody can hold, which `read` refuses; for tests."""
        return []

    def variations(self, rows: Rows) -> Rows:
        """Rows made of others, for tests of encoders, such as opposites; may be none."""
        return rows[:0]

    def pairs(
        self,
        rng: np.random.Generator,
        directions: Rows,
    ) -> dict[str, tuple[Any, Any]]:
        """Pairs of what single people may hold, for audits: neighbours among the extremes."""
        named = [(name, held["X"]) for name, held in self.extremes(rng).items()]
        following = named[1:] + named[:1]
        return {
            f"{name} and {other}": (x, y)
            for (name, x), (other, y) in zip(named, following, strict=True)
        }

    def apart(self, pair: tuple[Any, Any]) -> Rows:
        """The two rows of a pair, which differ in whatever else a person holds as well."""
        return np.concatenate([self.read(x) for x in pair])

    def unbounded(self, X: Any, groups: ArrayLike | None = None) -> Rows:
        """The rows of `read` as they were before values beyond bounds were moved to these, for a simulation."""
        return self.read(X, groups)

    def outward(self, values: Rows) -> Rows:
        """Numbers as estimates have them, in the units of what people hold."""
        return values

    def vectors_only(self) -> None:
        """ValueError unless people hold a vector and nothing else."""
        raise ValueError(
            f"mechanism must take vectors and nothing else, got one that takes {self.takes}; use frameunit"
        )

    def warnings(self, rows: Rows) -> list[UserWarning]:
        """What the owner of these rows should know of them, beside the counts of a report."""
        return []

    def advice(self, value: Floats, stderr: Floats) -> str:
        """What whoever has an estimate should change, such as the clip; may be empty."""
        return ""

    @abstractmethod
    def truth(self, rows: Rows) -> Rows:
        """The numbers that the estimates of these rows should have, (n, estimate_dim)."""

    def true_items(self, rows: Rows) -> dict[tuple[str, str], float]:
        """The true value of each item of each question, by the names of both; empty where there are no questions."""
        return {}


def _listed(paths: Path | Sequence[Path]) -> list[Path]:
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
