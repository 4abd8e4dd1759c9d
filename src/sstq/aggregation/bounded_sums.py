"""Sums of whole decoded vectors without privacy noise, whose coordinates may differ by many orders of magnitude."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation.base import Aggregator
from sstq.aggregation.dense_sums import DenseDecoding, add_decoded
from sstq.aggregation.fixed_point import from_limbs
from sstq.message_files import MessageReader
from sstq.messages import Messages

__all__ = ["BoundedAggregator", "BoundedDecoding"]

# Values are kept to 2^-59 of the bound and squares to 2^-59 of its square: two limbs each.
_FRACTION_BITS = 59


class BoundedDecoding(DenseDecoding, MessageReader, Protocol):
    """What the aggregator needs of the mechanism."""

    @property
    def decoding_bound(self) -> float:
        """What no decoded coordinate exceeds in magnitude."""
        ...


class BoundedAggregator(Aggregator[BoundedDecoding]):
    """One row of integers a coordinate: the sum of the decoded values and of their squares, in two limbs each.

    `VectorAggregator` keeps squares to 2^-14 of a public scale. That is enough where noise sets the scale; without
    noise a coordinate may be as small as the data, and its standard error with it.
    """

    def _empty_state(self) -> NDArray[np.int64]:
        return np.zeros((self._mechanism.dim, 4), dtype=np.int64)

    def _add(self, messages: Messages) -> None:
        added = self._empty_state()
        if not add_decoded(
            added,
            self._mechanism,
            messages,
            unit=self._mechanism.decoding_bound,
            limit=1.0,
            value_bits=_FRACTION_BITS,
            square_bits=_FRACTION_BITS,
        ):
            raise ValueError(f"a decoded coordinate is beyond the bound {self._mechanism.decoding_bound:g}")
        self._state += added

    def _mean_and_second_moment(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        bound = self._mechanism.decoding_bound
        total, squares = (
            np.ldexp(from_limbs(self._state[:, column], self._state[:, column + 1]), -_FRACTION_BITS)
            for column in (0, 2)
        )
        return total * (bound / self._count), squares * (bound**2 / self._count)
