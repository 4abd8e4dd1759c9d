"""Sums of whole decoded vectors, O(d) a message: for mechanisms whose messages are, or stand for, dense vectors."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation.base import Aggregator
from sstq.aggregation.dense_sums import DenseDecoding, add_decoded
from sstq.aggregation.fixed_point import from_limbs
from sstq.message_files import MessageReader
from sstq.messages import Messages

__all__ = ["VectorAggregator", "VectorDecoding"]

# Decoded coordinates are kept to 2^-44 of the mechanism's scale, and their squares to 2^-14.
_VALUE_BITS, _SQUARE_BITS = 44, 14
_LARGEST = 2.0**8


class VectorDecoding(DenseDecoding, MessageReader, Protocol):
    """What the aggregator needs of the mechanism."""

    @property
    def decoding_scale(self) -> float:
        """The root mean square of a decoded coordinate, or about that: a public unit for the fixed point."""
        ...


class VectorAggregator(Aggregator[VectorDecoding]):
    """One row of integers a coordinate: the sum of the decoded values (two limbs) and of their squares, in fixed point.

    A decoded coordinate beyond 2^8 times the scale cannot come from an honest client and is refused.
    """

    def _empty_state(self) -> NDArray[np.int64]:
        return np.zeros((self._mechanism.dim, 3), dtype=np.int64)

    def _add(self, messages: Messages) -> None:
        added = self._empty_state()
        if not add_decoded(
            added,
            self._mechanism,
            messages,
            unit=self._mechanism.decoding_scale,
            limit=_LARGEST,
            value_bits=_VALUE_BITS,
            square_bits=_SQUARE_BITS,
        ):
            raise ValueError(f"a decoded coordinate is beyond {_LARGEST:g} times the mechanism's scale")
        self._state += added

    def _mean_and_second_moment(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        scale = self._mechanism.decoding_scale
        total = np.ldexp(from_limbs(self._state[:, 0], self._state[:, 1]), -_VALUE_BITS) * scale
        squares = np.ldexp(self._state[:, 2].astype(np.float64), -_SQUARE_BITS) * scale**2
        return total / self._count, squares / self._count
