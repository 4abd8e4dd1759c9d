"""Bounds of columns: centre and scale them into the ball of a mechanism, and back."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.array_types import Floats
from sstq.checks import ArgumentError

Ranges = tuple[tuple[str, float, float], ...]
"""The name, the least and the largest value of each column."""

_LARGEST = 1e100


def read_ranges(bounds: Any, dim: int) -> Ranges:
    """Read {name: (low, high)}, {name: (low, high), …} of JSON, or an array of shape (dim, 2); ValueError otherwise.

    Examples:
        >>> read_ranges({"age": (0, 110), "bmi": (10, 60)}, 2)
        (('age', 0.0, 110.0), ('bmi', 10.0, 60.0))
    """
    if isinstance(bounds, Mapping):
        named = list(bounds.items())
    elif (
        isinstance(bounds, tuple)
        and bounds
        and isinstance(bounds[0], tuple)
        and len(bounds[0]) == 3
    ):
        named = [(name, (low, high)) for name, low, high in bounds]
    else:
        named = [(str(number), pair) for number, pair in enumerate(_pairs(bounds, dim))]
    if len(named) != dim:
        raise ArgumentError(
            "bounds", f"must have one pair per column, dim = {dim}, got {len(named)}"
        )
    ranges = []
    for name, pair in named:
        try:
            low, high = (float(end) for end in pair)
        except (TypeError, ValueError):
            raise ArgumentError(
                "bounds", f"must be a pair (low, high) for {name!r}, got {pair!r}"
            ) from None
        if not (isinstance(name, str) and name and -_LARGEST <= low < high <= _LARGEST):
            raise ArgumentError(
                "bounds",
                f"must have names and low < high, got {(low, high)} for {name!r}",
            )
        ranges.append((name, low, high))
    return tuple(ranges)


def _pairs(bounds: Any, dim: int) -> Sequence[Any]:
    try:
        pairs = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        pairs = np.empty(0)
    if pairs.shape != (dim, 2):
        raise ArgumentError(
            "bounds",
            f"must be {{name: (low, high)}} or an array of shape ({dim}, 2), got {bounds!r}",
        )
    listed: list[Any] = pairs.tolist()
    return listed


@dataclass(frozen=True)
class Bounds:
    """The ranges of all columns. x becomes clip/√d·(x − centre)/half, which is in the ball if x is within the ranges.

    Values beyond a range are moved to its end.

    Examples:
        >>> bounds = Bounds((("age", 0.0, 110.0), ("bmi", 10.0, 60.0)), clip=1.0)
        >>> bounds.inward(np.array([[110.0, 35.0]])).round(3)
        array([[0.707, 0.   ]])
        >>> bounds.outward(np.array([0.5**0.5, 0.0])).round(1)
        array([110.,  35.])
    """

    ranges: Ranges
    clip: float

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(name for name, _, _ in self.ranges)

    @property
    def _ends(self) -> Floats:
        return np.array([pair[1:] for pair in self.ranges])

    @property
    def scale(self) -> Floats:
        """By how much a unit of the ball is larger, per column."""
        low, high = self._ends.T
        return np.asarray((high - low) / 2 * (math.sqrt(len(self.ranges)) / self.clip))

    def chosen(self, X: Any) -> Any:
        """The columns of a table in the order of the bounds, if they have the bounds' names; otherwise X itself."""
        columns = getattr(X, "columns", None)
        if columns is None or self.names == tuple(map(str, range(len(self.ranges)))):
            return X
        missing = sorted(set(self.names) - set(map(str, columns)))
        if missing:
            raise ArgumentError(
                "X",
                f"must have the columns of bounds, got none called {', '.join(missing)}",
            )
        return X[list(self.names)]

    def inward(self, rows: NDArray[Any]) -> Floats:
        """Move rows into the ball; values beyond a range to its end."""
        low, high = self._ends.T
        return np.asarray((np.clip(rows, low, high) - (low + high) / 2) / self.scale)

    def scaled(self, rows: NDArray[Any]) -> Floats:
        """Rows in units of the ball; values beyond a range stay beyond it."""
        low, high = self._ends.T
        return np.asarray((rows - (low + high) / 2) / self.scale)

    def outward(self, rows: NDArray[Any]) -> Floats:
        """Rows of the ball in the units of the columns."""
        low, high = self._ends.T
        return np.asarray((low + high) / 2 + rows * self.scale)
