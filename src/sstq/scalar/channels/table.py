"""A channel given by its whole matrix."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.exactness import TOTAL, check_epsilon, largest_ratio, rows_sum_to_total
from sstq.scalar.channels.base import SIZE_MAX, Channel
from sstq.scalar.channels.flat import FlatChannel


@dataclass(frozen=True, eq=False)
class TableChannel(Channel):
    """A channel given by its matrix of integer weights.

    Args:
        name: the construction it comes from, such as "metric-aware".
        epsilon: the privacy budget.
        weights: the matrix, (inputs, outputs) non-negative int64 weights, each row summing to 2^62.

    Examples:
        >>> half = 2**61
        >>> TableChannel("table", 1.0, [[half, half], [half, half]]).privacy_loss()
        0.0
        >>> TableChannel("table", 1.0, [[half, half], [2 * half, 0]])
        Traceback (most recent call last):
        ...
        ValueError: column 1 of matrix is zero in some rows and positive in others: seeing it would reveal the token

    """

    name: str
    epsilon: float
    weights: NDArray[np.int64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        object.__setattr__(self, "weights", _read_matrix(self.weights))
        if not self.name or not isinstance(self.name, str) or self.name == FlatChannel.name:
            raise ValueError(f"name = {self.name!r} is not a non-empty string other than {FlatChannel.name!r}")
        if self.weights.min() < 0:
            raise ValueError(f"matrix has a negative weight, {self.weights.min()}")
        wrong = np.flatnonzero(~rows_sum_to_total(self.weights))
        if wrong.size:
            raise ValueError(f"row {wrong[0]} of matrix does not sum to exactly 2^62")
        tops, bottoms = self._extremes
        mixed = np.flatnonzero((bottoms == 0) & (tops > 0))
        if mixed.size:
            raise ValueError(
                f"column {mixed[0]} of matrix is zero in some rows and positive in others: "
                "seeing it would reveal the token"
            )
        self._check_ratio()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TableChannel)
            and (self.name, self.epsilon) == (other.name, other.epsilon)
            and np.array_equal(self.weights, other.weights)
        )

    def __hash__(self) -> int:
        return hash((self.name, self.epsilon, self.weights.tobytes()))

    @property
    def matrix(self) -> NDArray[np.int64]:
        """The integer weights."""
        return self.weights

    @property
    def inputs(self) -> int:
        """The number of tokens."""
        return len(self.weights)

    @property
    def outputs(self) -> int:
        """The number of codes, those that never occur included."""
        return int(self.weights.shape[1])

    @property
    def used(self) -> NDArray[np.bool_]:
        """Which codes can occur."""
        return self._extremes[0] > 0

    def probabilities(self) -> NDArray[np.float64]:
        """Return the weights divided by 2^62."""
        return self.weights / TOTAL

    def _draw(self, tokens: NDArray[np.int64], words: NDArray[np.uint64]) -> NDArray[np.int64]:
        from sstq.kernels import sample_table

        codes: NDArray[np.int64] = sample_table(tokens, words, self._cumulative)
        return codes

    def moments(self, values: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return E[w|token] and E[w²|token] of decoding values w, from the integer weights."""
        w = self._check_values(values)
        probabilities = self.probabilities()
        return probabilities @ w, probabilities @ w**2

    def to_dict(self) -> dict[str, Any]:
        """Return the integers themselves, for JSON."""
        return {"name": self.name, "epsilon": self.epsilon, "matrix": self.weights.tolist()}

    @cached_property
    def _extremes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self.weights.max(axis=0), self.weights.min(axis=0)

    def ratio(self) -> Fraction:
        """Return the largest ratio of two weights in one column, exactly."""
        tops, bottoms = self._extremes
        return largest_ratio(tops[bottoms > 0], bottoms[bottoms > 0])

    @cached_property
    def _cumulative(self) -> NDArray[np.uint64]:
        return np.cumsum(self.weights, axis=1).astype(np.uint64)


def _read_matrix(matrix: object) -> NDArray[np.int64]:
    """Return a read-only int64 copy, or say what is wrong; floats are refused, for they are not exact."""
    try:
        weights = np.array(matrix)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"matrix is not a rectangular table of integers: {error}") from None
    if weights.ndim != 2 or weights.dtype != np.int64:
        raise ValueError(f"matrix must be a table of int64 weights, not {weights.dtype} of shape {weights.shape}")
    if not all(1 <= length <= SIZE_MAX for length in weights.shape):
        raise ValueError(f"matrix has shape {weights.shape}; each side must be in [1, {SIZE_MAX}]")
    weights.setflags(write=False)
    return weights
