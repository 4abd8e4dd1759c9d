"""Vectors, and vectors with a private group: read, mended, scaled into the ball, and opened from files."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sstq.array_types import Floats, Ints, Rows
from sstq.checks import check_integers
from sstq.inputs.arrays import finite_vectors
from sstq.inputs.base import Held, Input
from sstq.inputs.bounds import Bounds, Ranges
from sstq.inputs.cells import cells_of
from sstq.inputs.plain_numbers import any_vectors
from sstq.inputs.reports import ClippedWarning, LocalReport
from sstq.inputs.single_vectors import into_ball, read_vectors
from sstq.inputs.trial_vectors import structured_vectors
from sstq.randomness import streams
from sstq.randomness.secret import BitSource

# Batches of at least so many vectors are checked for clipping, on at most so many of them.
_LEAST_BATCH = 20
_MOST_MEASURED = 4096
_CLIPPED_SHARE = 0.05
_SHORT = 0.3
_NEAR = 1e-3
_HUGE = 1e200


@dataclass(frozen=True)
class Vectors(Input):
    """A vector of `dim` numbers; those longer than `clip` are scaled down when they are encoded.

    With `bounds` vectors are in the units of their columns, and are moved into the ball when they are read.

    Examples:
        >>> Vectors(2, clip=1.0, bounds=(("age", 0.0, 110.0), ("bmi", 10.0, 60.0))).read([[110.0, 35.0]]).round(3)
        array([[0.707, 0.   ]])
        >>> from sstq.randomness.secret import bit_source
        >>> Vectors(2, clip=1.0).substitute([[0.1, None], [0.5, 0.5]], source=bit_source(1))
        array([[0. , 0. ],
               [0.5, 0.5]])
    """

    takes = "vectors"
    file_options = ("columns", "by")
    has_clip = True
    dim: int
    clip: float
    bounds: Ranges | None = None

    @cached_property
    def scaling(self) -> Bounds | None:
        """Into the ball and back, if there are bounds."""
        return None if self.bounds is None else Bounds(self.bounds, self.clip)

    def strict_rows(self, X: Any, groups: Any, report: LocalReport | None) -> Rows:
        """The vectors, (n, dim); ValueError for a wrong shape or dtype, masks, nan or infinity."""
        if self.scaling is None:
            return finite_vectors(X, self.dim)
        return self.scaling.inward(finite_vectors(self.scaling.chosen(X), self.dim))

    def unbounded(self, X: Any, groups: ArrayLike | None = None) -> Rows:
        """The vectors in units of the ball; with bounds, values beyond them stay beyond."""
        if self.scaling is None:
            return self.read(X, groups)
        chosen = self.scaling.chosen(X)
        return self.scaling.scaled(finite_vectors(chosen, self.dim))

    def mended_rows(
        self, X: Any, groups: Any, source: BitSource, report: LocalReport | None
    ) -> Rows:
        """The vectors, with the zero vector in the place of those with nan, infinity, or anything but numbers."""
        rows = any_vectors(
            X if self.scaling is None else self.scaling.chosen(X), self.dim
        )
        bad = ~np.isfinite(rows).all(axis=1)
        inward = rows if self.scaling is None else self.scaling.inward(rows)
        return without(inward, bad, report)

    def together(self, values: Sequence[Any]) -> Rows:
        """The vectors, zero for what is none; those longer than clip are scaled down, so that nobody is warned."""
        rows = read_vectors(values, self.dim)
        return into_ball(rows, self.clip) if self.scaling is None else rows

    @property
    def names(self) -> tuple[str, ...]:
        """The names of bounds, unless these are numbers only."""
        names = () if self.scaling is None else self.scaling.names
        return () if names == tuple(map(str, range(self.dim))) else names

    def trial(self, rng: np.random.Generator, count: int) -> Held:
        """Random vectors of about half of clip, in the units of bounds."""
        rows = rng.standard_normal((count, self.dim)) * (
            self.clip / 2 / np.sqrt(self.dim)
        )
        return {"X": self.outward(rows)}

    def extremes(self, rng: np.random.Generator) -> dict[str, Held]:
        """Structured vectors of norm clip, a short one and zero."""
        vectors = {
            name: self.clip * rows[0]
            for name, rows in structured_vectors(self.dim, rng).items()
        }
        vectors |= {"short": _SHORT * vectors["gaussian"], "zero": np.zeros(self.dim)}
        return {name: {"X": self.outward(x)} for name, x in vectors.items()}

    def refused(self) -> list[Held]:
        """Vectors with nan, infinity or masks, of other shapes and types, and integers that a float would round."""
        dim = self.dim
        wrong: list[Any] = [
            np.full((2, dim), np.nan),
            np.full((2, dim), np.inf),
            np.ones(dim + 1),
            np.ones((2, 2, dim)),
            np.ones(dim, dtype=complex),
            np.ones(dim).astype(str),
            [[*[0.1] * (dim - 1), None]],
            np.full(dim, 2**53 + 1),
            np.ma.array(np.ones((2, dim)), mask=np.eye(2, dim, dtype=bool)),
        ]
        return [{"X": X} for X in wrong] + [{"X": np.zeros(dim), "groups": [0]}]

    def variations(self, rows: Rows) -> Rows:
        """The opposites, and a huge one."""
        return np.concatenate([-rows, _HUGE * rows[:1]])

    def pairs(
        self, rng: np.random.Generator, directions: Rows
    ) -> dict[str, tuple[Any, Any]]:
        """Opposites, spikes, constants, zero, near vectors, and the given directions; all of norm clip or shorter."""
        vectors = structured_vectors(self.dim, rng)
        gaussian, spike, constant = (
            vectors[name][0] for name in ("gaussian", "spike", "constant")
        )
        near = gaussian + _NEAR * rng.standard_normal(self.dim) / np.sqrt(self.dim)
        pairs = {
            "a Gaussian vector and its opposite": (gaussian, -gaussian),
            "a spike and its opposite": (spike, -spike),
            "a spike and another spike": (spike, np.roll(spike, 1)),
            "a Gaussian vector and a spike": (gaussian, spike),
            "a constant and its opposite": (constant, -constant),
            "a vector and zero": (gaussian, 0.0 * gaussian),
            "a vector and a short one": (gaussian, _SHORT * gaussian),
            "two vectors near each other": (gaussian, near / np.linalg.norm(near)),
        }
        if len(directions):
            row, other = (rows / np.linalg.norm(rows) for rows in directions[:2])
            pairs["a row of the frame and its opposite"] = (row, -row)
            pairs["two rows of the frame"] = (row, other)
        return {
            name: (self.clip * x, self.clip * y)
            for name, (x, y) in pairs.items()
            if np.any(x != y)
        }

    def outward(self, values: Rows) -> Rows:
        """Vectors of the ball in the units of bounds."""
        return values if self.scaling is None else self.scaling.outward(values)

    def truth(self, rows: Rows) -> Rows:
        """The vectors themselves."""
        return rows

    def vectors_only(self) -> None:
        """People hold a vector and nothing else."""

    def warnings(self, rows: Rows) -> list[UserWarning]:
        """A warning if many of a batch are longer than clip."""
        if len(rows) < _LEAST_BATCH or self.scaling is not None:
            return []
        some = rows[:: -(-len(rows) // _MOST_MEASURED)]
        # Without a copy of the vectors. Rounding must not count those of norm clip.
        lengths = np.sqrt(np.einsum("ij,ij->i", some, some, dtype=np.float64))
        share = float(np.mean(lengths > self.clip * (1 + 1e-6)))
        if share <= _CLIPPED_SHARE:
            return []
        return [
            ClippedWarning(
                f"{100 * share:.0f} % of the vectors are longer than clip = {self.clip:g} and were scaled down; use a "
                "larger clip, or bounds with the range of each column. This line depends on the data: keep it local"
            )
        ]

    def advice(self, value: Floats, stderr: Floats) -> str:
        """To use a larger clip, if the mean is as long as clip."""
        error = float(np.linalg.norm(stderr))
        if self.scaling is not None or not error < self.clip / 4:
            return ""
        length = math.sqrt(max(float(value @ value) - error**2, 0.0))
        if length + error < self.clip:
            return ""
        return (
            "most vectors are longer than clip, or exactly as long; unless they are normalized, use a larger clip, or "
            "bounds with the range of each column"
        )


@dataclass(frozen=True)
class GroupedVectors(Input):
    """A vector and a private group, an integer below `groups`. A row is the group and the vector.

    Examples:
        >>> GroupedVectors(2, clip=1.0, groups=3).read([[0.5, 0.5]], groups=[2])
        array([[2. , 0.5, 0.5]])
    """

    takes = "vectors and private groups"
    file_options = ("columns", "by", "groups")
    has_clip = True
    dim: int
    clip: float
    groups: int

    @cached_property
    def _vectors(self) -> Vectors:
        return Vectors(self.dim, self.clip)

    def check_groups(self, groups: ArrayLike | None) -> None:
        """ValueError for no groups."""
        if groups is None:
            raise ValueError(
                f"groups must be one integer from 0 to {self.groups - 1} per row of X, got None"
            )

    def strict_rows(self, X: Any, groups: Any, report: LocalReport | None) -> Rows:
        """The groups and the vectors, (n, 1 + dim); floats hold all groups exactly."""
        rows = finite_vectors(X, self.dim)
        labels = check_integers("groups", groups, len(rows), self.groups)
        return np.concatenate([labels[:, None].astype(rows.dtype), rows], axis=1)

    def mended_rows(
        self, X: Any, groups: Any, source: BitSource, report: LocalReport | None
    ) -> Rows:
        """The groups and the vectors. A group that does not exist is drawn uniformly, with the zero vector."""
        rows = any_vectors(X, self.dim)
        given = known_groups(groups, self.groups, len(rows))
        drawn = streams.multiply_shift(source.words(len(rows)), self.groups)
        unknown = given < 0
        mended = without(rows, unknown | ~np.isfinite(rows).all(axis=1), report)
        return np.concatenate(
            [np.where(unknown, drawn, given)[:, None].astype(rows.dtype), mended],
            axis=1,
        )

    def trial(self, rng: np.random.Generator, count: int) -> Held:
        """Random vectors, and all groups in turn."""
        return self._vectors.trial(rng, count) | {
            "groups": np.arange(count) % self.groups
        }

    def extremes(self, rng: np.random.Generator) -> dict[str, Held]:
        """The extreme vectors, in the first and the last group."""
        extremes = self._vectors.extremes(rng)
        ends = (0, self.groups - 1)
        return {
            name: one | {"groups": [ends[place % 2]]}
            for place, (name, one) in enumerate(extremes.items())
        }

    def refused(self) -> list[Held]:
        """Bad vectors, and groups that do not exist."""
        good = np.zeros((2, self.dim))
        groups: list[Any] = [None, [0], [0, self.groups], [0, -1], [0.0, 1.0]]
        vectors = [one["X"] for one in self._vectors.refused()[:-1]]
        return [{"X": X, "groups": [0, 0]} for X in vectors] + [
            {"X": good, "groups": each} for each in groups
        ]

    def variations(self, rows: Rows) -> Rows:
        """Opposite and huge vectors, in the same groups."""
        varied = self._vectors.variations(rows[:, 1:])
        groups = np.resize(rows[:, :1], (len(varied), 1))
        return np.concatenate([groups, varied], axis=1)

    def pairs(
        self, rng: np.random.Generator, directions: Rows
    ) -> dict[str, tuple[Any, Any]]:
        """The pairs of vectors; `apart` puts them in different groups."""
        return self._vectors.pairs(rng, directions)

    def apart(self, pair: tuple[Any, Any]) -> Rows:
        """One is in the first group, the other in the last."""
        return self.read(np.stack(pair), groups=[0, self.groups - 1])

    def truth(self, rows: Rows) -> Rows:
        """The vectors, each at the place of its group."""
        return placed(rows[:, 1:], rows[:, 0], self.groups)


def without(rows: Rows, bad: Any, report: LocalReport | None) -> Rows:
    """Return the rows with zeros for bad ones, which are counted."""
    if report is not None:
        report.answered += len(rows)
        report.replaced += int(bad.sum())
    return np.where(bad[:, None], np.zeros_like(rows), rows)


def known_groups(groups: ArrayLike, count: int, rows: int) -> Ints:
    """Groups below `count`, with -1 for all others; ValueError for another number of groups than rows."""
    # Some may be missing, which makes floats of the others, or too large for an integer, or anything else.
    cells = [groups] if isinstance(groups, int) else cells_of(groups)
    if len(cells) != rows:
        raise ValueError(f"groups must be {rows} integers, got {len(cells)}")
    numbers = [
        int(cell) if type(cell) in (int, float) and cell in range(count) else -1
        for cell in cells
    ]
    return np.array(numbers, dtype=np.int64)


def placed(vectors: Rows, places: Rows, count: int) -> Rows:
    """Return each vector at its place, an integer below `count`, with zeros elsewhere: (n, d) as (n, count·d)."""
    padded = np.zeros((len(vectors), count, vectors.shape[1]), dtype=vectors.dtype)
    padded[np.arange(len(vectors)), places.astype(np.int64)] = vectors
    return padded.reshape(len(vectors), -1)
