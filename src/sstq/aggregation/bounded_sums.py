"""Sums of whole decoded vectors without privacy noise, whose coordinates may differ by many orders of magnitude."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sstq import kernels
from sstq.aggregation.base import Aggregator
from sstq.aggregation.fixed_point import from_limbs
from sstq.message_files import MessageReader
from sstq.messages import Messages

__all__ = ["BoundedAggregator", "BoundedDecoding"]

# Values are kept to 2^-59 of the bound and squares to 2^-59 of its square: two limbs each.
_FRACTION_BITS = 59
_NUMBERS_AT_A_TIME = 1 << 18


class BoundedDecoding(MessageReader, Protocol):
    """What the aggregator needs of the mechanism."""

    @property
    def dim(self) -> int:
        """The length of the vectors."""
        ...

    @property
    def decoding_bound(self) -> float:
        """What no decoded coordinate exceeds in magnitude."""
        ...

    def decode(self, messages: Messages) -> NDArray[np.float64]:
        """The estimate of each message alone, (n, d)."""
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
        size = max(1, _NUMBERS_AT_A_TIME // self._mechanism.dim)
        for start in range(0, len(messages), size):
            within = kernels.accumulate_vectors(
                added,
                np.ascontiguousarray(self._mechanism.decode(messages[start : start + size])),
                unit=self._mechanism.decoding_bound,
                limit=1.0,
                value_bits=_FRACTION_BITS,
                square_bits=_FRACTION_BITS,
            )
            if not within:
                raise ValueError(f"a decoded coordinate is beyond the bound {self._mechanism.decoding_bound:g}")
        self._state += added

    def _mean_and_second_moment(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        bound = self._mechanism.decoding_bound
        total, squares = (
            np.ldexp(from_limbs(self._state[:, column], self._state[:, column + 1]), -_FRACTION_BITS)
            for column in (0, 2)
        )
        return total * (bound / self._count), squares * (bound**2 / self._count)
