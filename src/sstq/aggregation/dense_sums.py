"""Sums of decoded vectors in fixed point: what the dense aggregators share."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sstq import kernels
from sstq.aggregation.base import Aggregator
from sstq.messages.batch import MessageReader, Messages

__all__ = ["DenseAggregator", "DenseDecoding"]

# Decoded numbers at a time: enough for the calls not to matter, few enough for the second-level cache.
_NUMBERS_AT_A_TIME = 1 << 18


class DenseDecoding(MessageReader, Protocol):
    """What is needed of the mechanism."""

    @property
    def dim(self) -> int:
        """The length of the vectors."""
        ...

    def decode(self, messages: Messages) -> NDArray[np.float64]:
        """The estimate of each message alone, (n, d)."""
        ...


Dense = TypeVar("Dense", bound=DenseDecoding)


class DenseAggregator(Aggregator[Dense]):
    """One row of integers a coordinate: the sums that `kernels.accumulate_vectors` keeps of decoded values and squares.

    Vectors are decoded a bounded piece at a time.
    """

    columns: ClassVar[int]
    """The integers of a row: 3 for squares in one limb, 4 for squares in two."""
    value_bits: ClassVar[int]
    """The bits of a value's fraction, in units."""
    square_bits: ClassVar[int]
    """The bits of a square's fraction, in units squared."""
    limit: ClassVar[float]
    """What no coordinate may exceed, in units."""

    @property
    @abstractmethod
    def unit(self) -> float:
        """The public unit of the fixed point."""

    def _empty_state(self) -> NDArray[np.int64]:
        return np.zeros((self._mechanism.dim, self.columns), dtype=np.int64)

    def _add(self, messages: Messages) -> None:
        # Beside the state, which must stay as it is if a later vector is refused.
        added = self._empty_state()
        size = max(1, _NUMBERS_AT_A_TIME // self._mechanism.dim)
        for start in range(0, len(messages), size):
            if not kernels.accumulate_vectors(
                added,
                np.ascontiguousarray(self._mechanism.decode(messages[start : start + size])),
                unit=self.unit,
                limit=self.limit,
                value_bits=self.value_bits,
                square_bits=self.square_bits,
            ):
                raise ValueError(
                    f"a decoded coordinate is beyond {self.limit * self.unit:g}: no honest client sends it"
                )
        self._state += added
