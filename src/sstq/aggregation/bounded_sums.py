"""Sums of whole decoded vectors without privacy noise, whose coordinates may differ by many orders of magnitude."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation.dense_sums import DenseAggregator, DenseDecoding
from sstq.aggregation.fixed_point import from_limbs

__all__ = ["BoundedAggregator", "BoundedDecoding"]


class BoundedDecoding(DenseDecoding, Protocol):
    """What the aggregator needs of the mechanism."""

    @property
    def decoding_bound(self) -> float:
        """What no decoded coordinate exceeds in magnitude."""
        ...


class BoundedAggregator(DenseAggregator[BoundedDecoding]):
    """One row of integers a coordinate: the sum of the decoded values and of their squares, in two limbs each.

    `VectorAggregator` keeps squares to 2^-14 of a public scale. That is enough where noise sets the scale; without
    noise a coordinate may be as small as the data, and its standard error with it.
    """

    private_file = True

    # Values are kept to 2^-59 of the bound and squares to 2^-59 of its square: two limbs each.
    columns, value_bits, square_bits, limit = 4, 59, 59, 1.0

    @property
    def unit(self) -> float:
        """The bound."""
        return self._mechanism.decoding_bound

    def _mean_and_second_moment(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        total = np.ldexp(from_limbs(self._state[:, 0], self._state[:, 1]), -self.value_bits)
        squares = np.ldexp(from_limbs(self._state[:, 2], self._state[:, 3]), -self.square_bits)
        return total * (self.unit / self._count), squares * (self.unit**2 / self._count)
