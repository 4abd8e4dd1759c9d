"""Exact sums of whole decoded vectors as integers in fixed point."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sstq import kernels
from sstq.aggregation.estimates import Estimate
from sstq.aggregation.estimator import Sums
from sstq.aggregation.sums import DenseEstimator, from_limbs
from sstq.array_types import Floats, Ints
from sstq.messages.batch import Messages

# Decoded numbers at a time: enough that calls do not matter, few enough for the second-level cache.
_NUMBERS_AT_A_TIME = 1 << 18


@dataclass(frozen=True, eq=False)
class VectorEstimator(DenseEstimator):
    """Sums of whole decoded vectors, O(d) per message, for messages that decode to dense vectors.

    One row of integers per coordinate holds the sum of the decoded values (two limbs) and of their squares (one).
    One beyond 2^8 units cannot come from an honest client and is refused.

    Attributes:
        dim: d.
        unit: the public unit of the fixed point, about the root mean square of a decoded coordinate.
        vectors: the vectors of messages, (n, d).
    """

    adds_vectors: ClassVar[bool] = True
    # Values are kept to 2^-44 of the unit, and their squares to 2^-14 of its square.
    columns: ClassVar[int] = 3
    value_bits: ClassVar[int] = 44
    square_bits: ClassVar[int] = 14
    most_units: ClassVar[float] = 2.0**8

    dim: int
    unit: float
    vectors: Callable[[Messages], Floats]

    @property
    def shape(self) -> tuple[int, int]:
        """One row per coordinate."""
        return self.dim, self.columns

    def decode(self, messages: Messages) -> Floats:
        """The vectors that messages decode to."""
        return self.vectors(messages)

    def add(self, state: Ints, messages: Messages, times: Ints | None) -> None:  # noqa: ARG002 (never counts)
        """Add the decoded vectors."""
        # Beside the state, which must stay as it is if a later vector is refused.
        added = np.zeros_like(state)
        bits = self.value_bits, self.square_bits
        size = max(1, _NUMBERS_AT_A_TIME // self.dim)
        for start in range(0, len(messages), size):
            vectors = self.vectors(messages[start : start + size])
            if not kernels.accumulate_vectors(
                added, vectors, self.unit, self.most_units, *bits
            ):
                raise ValueError(
                    f"decoded coordinates must be at most {self.most_units * self.unit:g}: no honest client sends "
                    "larger ones"
                )
        state += added

    def estimate(self, sums: Sums) -> Estimate:
        """The mean of the vectors."""
        value = from_limbs(sums.state[:, :2], -self.value_bits)
        squares = from_limbs(sums.state[:, 2:], -self.square_bits)
        return self.averaged(
            sums,
            value * (self.unit / sums.count),
            squares * (self.unit**2 / sums.count),
        )
