"""Sums in the frame domain, O(1) per message: for mechanisms whose estimate from one message is d·w·u_j."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq import kernels
from sstq.aggregation.base import Aggregator, from_limbs
from sstq.kernels import LIMB_BITS
from sstq.messages.batch import Messages


class FrameAggregator(Aggregator[Any]):
    """One row of integers per frame coordinate: the messages, the sum of their values (two limbs) and of their squares.

    One synthesis gives the mean. The mechanism has `frame`, whose rows are the u_j; `decoding_values`, the w of every
    code in units of `decoding_scale`; and `indices_and_codes(messages)`, the coordinate and the code of every message.
    """

    def _empty_state(self) -> NDArray[np.int64]:
        self._table, self._exponent = _fixed_point_table(self._mechanism.decoding_values)
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
        totals = from_limbs(self._state[:, 1:3])
        totals *= 2.0 ** (self._exponent - 2 * LIMB_BITS)
        return totals

    def _coordinate_squares(self) -> NDArray[np.float64]:
        """The sum of the squares of the decoded values of every coordinate, in units of the decoding scale squared."""
        squares = from_limbs(self._state[:, 3:])
        squares *= 2.0 ** (2 * self._exponent - LIMB_BITS)
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


def _fixed_point_table(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """A few decoding values as integers: (M, 3) rows of high limb, low limb, square, and the exponent of their bound.

    With |w| ≤ 2^e: high·2^30 + low = w·2^(60−e) and square = w²·2^(30−2e), both to the nearest integer. The unit is
    finer than the rounding of the values themselves.
    """
    exponent = math.frexp(float(np.max(np.abs(values))))[1]
    rows = []
    for value in values.tolist():
        scaled = round(Fraction(value) * Fraction(2) ** (2 * LIMB_BITS - exponent))
        square = round(Fraction(value) ** 2 * Fraction(2) ** (LIMB_BITS - 2 * exponent))
        rows.append((*divmod(scaled, 1 << LIMB_BITS), square))
    return np.array(rows, dtype=np.int64), exponent
