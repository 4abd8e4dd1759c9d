"""Sums in the frame domain, O(1) a message: for mechanisms whose estimate from one message is d·w·u_j."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sstq import kernels
from sstq.aggregation.base import Aggregator
from sstq.aggregation.fixed_point import fixed_point_table, from_limbs
from sstq.frames.tight import Frame
from sstq.messages.batch import MessageReader, Messages

__all__ = ["FrameAggregator", "FrameDecoding"]


class FrameDecoding(MessageReader, Protocol):
    """What the aggregator needs of the mechanism."""

    @property
    def frame(self) -> Frame:
        """The frame whose rows the u_j are."""
        ...

    @property
    def decoding_values(self) -> NDArray[np.float64]:
        """The decoded coordinate w of every code, in units of `decoding_scale`."""
        ...

    @property
    def decoding_scale(self) -> float:
        """The unit of the decoding values."""
        ...

    def indices_and_codes(self, messages: Messages) -> tuple[NDArray[Any], NDArray[Any]]:
        """The frame coordinate and the code of every message."""
        ...


class FrameAggregator(Aggregator[FrameDecoding]):
    """One row of integers a frame coordinate: the messages, the sum of their values (two limbs) and of their squares.

    One synthesis gives the mean.
    """

    def _empty_state(self) -> NDArray[np.int64]:
        self._table, self._exponent = fixed_point_table(self._mechanism.decoding_values)
        return np.zeros((self._mechanism.frame.size, 4), dtype=np.int64)

    def _add(self, messages: Messages) -> None:
        index, code = self._mechanism.indices_and_codes(messages)
        kernels.accumulate(self._state, index, code, self._table)

    def _check_state(self, state: NDArray[np.int64], count: int) -> None:
        super()._check_state(state, count)
        counts = state[:, 0]
        if np.any(counts < 0) or np.any(counts > count) or int(counts.sum()) != count:
            raise ValueError(f"it says {count} messages, but its sums are of another number")

    def _coordinate_totals(self) -> NDArray[np.float64]:
        """The sum of the decoded values of every coordinate, in units of the decoding scale."""
        totals = from_limbs(self._state[:, 1], self._state[:, 2])
        totals *= 2.0 ** (self._exponent - 2 * kernels.LIMB_BITS)
        return totals

    def _coordinate_squares(self) -> NDArray[np.float64]:
        """The sum of the squares of the decoded values of every coordinate, in units of the decoding scale squared."""
        squares = self._state[:, 3].astype(np.float64)
        squares *= 2.0 ** (2 * self._exponent - kernels.LIMB_BITS)
        return squares

    def _mean_and_second_moment(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        frame, scale = self._mechanism.frame, self._mechanism.decoding_scale
        # One array at a time: in ten million dimensions each takes as long to allocate as to transform.
        totals = self._coordinate_totals()
        totals *= scale * (frame.size / self._count)
        value = np.asarray(frame.synthesize(totals[None])[0], dtype=np.float64)
        del totals
        power = frame.column_power(self._coordinate_squares())
        power *= (frame.dim * scale) ** 2 / self._count
        return value, power
