"""Sums of whole decoded vectors, O(d) per message: for mechanisms whose messages are, or stand for, dense vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq import kernels
from sstq.aggregation.base import Aggregator, from_limbs
from sstq.messages.batch import Messages

# Decoded numbers at a time: enough for the calls not to matter, few enough for the second-level cache.
_NUMBERS_AT_A_TIME = 1 << 18


class VectorAggregator(Aggregator[Any]):
    """One row of integers per coordinate: the sum of the decoded values (two limbs) and of their squares (one).

    The fixed point has a public unit, the mechanism's `decoding_scale`: about the root mean square of a decoded
    coordinate. One beyond 2^8 units cannot come from an honest client and is refused.
    """

    # Values are kept to 2^-44 of the unit, and their squares to 2^-14 of its square.
    _columns, _value_bits, _square_bits, _limit = 3, 44, 14, 2.0**8

    @property
    def _unit(self) -> float:
        return float(self._mechanism.decoding_scale)

    def _empty_state(self) -> NDArray[np.int64]:
        return np.zeros((self._mechanism.dim, self._columns), dtype=np.int64)

    def _add(self, messages: Messages) -> None:
        # Beside the state, which must stay as it is if a later vector is refused.
        added = self._empty_state()
        size = max(1, _NUMBERS_AT_A_TIME // self._mechanism.dim)
        for start in range(0, len(messages), size):
            if not kernels.accumulate_vectors(
                added,
                np.ascontiguousarray(self._mechanism.decode(messages[start : start + size])),
                unit=self._unit,
                limit=self._limit,
                value_bits=self._value_bits,
                square_bits=self._square_bits,
            ):
                raise ValueError(
                    f"a decoded coordinate is beyond {self._limit * self._unit:g}: no honest client sends it"
                )
        self._state += added

    def _mean_and_second_moment(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        value = np.ldexp(from_limbs(self._state[:, :2]), -self._value_bits)
        squares = np.ldexp(from_limbs(self._state[:, 2:]), -self._square_bits)
        return value * (self._unit / self._count), squares * (self._unit**2 / self._count)


class BoundedAggregator(VectorAggregator):
    """Sums of decoded vectors without privacy noise, whose coordinates may differ by many orders of magnitude.

    Without noise a coordinate may be as small as the data, and its standard error with it: squares take two limbs. The
    unit is the mechanism's `decoding_bound`, which no decoded coordinate exceeds.
    """

    private_file = True

    # Values are kept to 2^-59 of the bound and squares to 2^-59 of its square.
    _columns, _value_bits, _square_bits, _limit = 4, 59, 59, 1.0

    @property
    def _unit(self) -> float:
        return float(self._mechanism.decoding_bound)
