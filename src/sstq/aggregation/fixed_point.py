"""Real numbers as integers in two limbs, so that sums of them are exact."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sstq.kernels import LIMB_BITS

__all__ = ["fixed_point_table", "from_limbs"]


def fixed_point_table(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """A few decoding values as integers: (M, 3) rows of high limb, low limb, square, and the exponent of their bound.

    With |w| ≤ 2^e: high·2^30 + low = w·2^(60−e) and square = w²·2^(30−2e), both to the nearest integer. The unit is
    finer than the rounding of the values themselves.

    Examples:
        >>> table, exponent = fixed_point_table(np.array([-1.0, 0.5]))
        >>> exponent, table[1].tolist() == [2**28, 0, 2**26]
        (1, True)
    """
    exponent = math.frexp(float(np.max(np.abs(values))))[1]
    rows = []
    for value in values.tolist():
        scaled = round(Fraction(value) * Fraction(2) ** (2 * LIMB_BITS - exponent))
        square = round(Fraction(value) ** 2 * Fraction(2) ** (LIMB_BITS - 2 * exponent))
        rows.append((scaled >> LIMB_BITS, scaled & ((1 << LIMB_BITS) - 1), square))
    return np.array(rows, dtype=np.int64), exponent


def from_limbs(high: NDArray[np.int64], low: NDArray[np.int64]) -> NDArray[np.float64]:
    """high·2^30 + low of sums of limbs, as doubles."""
    sums = high.astype(np.float64)
    sums *= 2.0**LIMB_BITS
    sums += low
    return sums
