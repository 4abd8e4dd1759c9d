"""Sums of whole decoded vectors, O(d) a message: for mechanisms whose messages are, or stand for, dense vectors."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation.dense_sums import DenseAggregator, DenseDecoding
from sstq.aggregation.fixed_point import from_limbs

__all__ = ["VectorAggregator", "VectorDecoding"]


class VectorDecoding(DenseDecoding, Protocol):
    """What the aggregator needs of the mechanism."""

    @property
    def decoding_scale(self) -> float:
        """The root mean square of a decoded coordinate, or about that: a public unit for the fixed point."""
        ...


class VectorAggregator(DenseAggregator[VectorDecoding]):
    """One row of integers a coordinate: the sum of the decoded values (two limbs) and of their squares, in fixed point.

    A decoded coordinate beyond 2^8 times the scale cannot come from an honest client and is refused.
    """

    # Decoded coordinates are kept to 2^-44 of the mechanism's scale, and their squares to 2^-14.
    columns, value_bits, square_bits, limit = 3, 44, 14, 2.0**8

    @property
    def unit(self) -> float:
        """The scale."""
        return self._mechanism.decoding_scale

    def _mean_and_second_moment(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        total = np.ldexp(from_limbs(self._state[:, 0], self._state[:, 1]), -self.value_bits) * self.unit
        squares = np.ldexp(self._state[:, 2].astype(np.float64), -self.square_bits) * self.unit**2
        return total / self._count, squares / self._count
