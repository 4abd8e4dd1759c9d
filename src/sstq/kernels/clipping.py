"""Lengths of rows, and clipping to the unit ball, in two sweeps over a row that is in the cache after the first.

The order of all additions is fixed, so the result is the same for every number of threads and every vector width.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from sstq.kernels.vectors import add_squares

# Norms between these come from squares that neither overflowed nor lost digits to underflow.
_SAFE_LOW, _SAFE_HIGH = 1e-140, 1e150


@njit
def largest_bits(bits: Any, magnitude: Any) -> Any:
    """Return the largest of the numbers read as integers, their sign bits masked away: they grow with the magnitude.

    A maximum of integers is found by vectors; that of floating-point numbers is not, because of NaN.
    """
    # Of its own type at every step: Numba computes with 64 bits otherwise, of which a vector holds half as many.
    kind = bits.dtype.type
    largest = kind(0)
    for i in range(bits.size):
        largest = max(largest, kind(bits[i] & magnitude))
    return largest


@njit
def norm(row: Any, scale: float) -> float:
    """Return the Euclidean norm of scale·row, in double precision."""
    s, whole = np.zeros(8), row.size // 8
    add_squares(row, np.int64(whole), scale, s)
    for i in range(whole * 8, row.size):
        s[0] += (scale * np.float64(row[i])) ** 2
    return math.sqrt(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])))


@njit
def measure(row: Any, bits: Any, magnitude: Any, fraction_bits: int, clip: float) -> Any:
    """Return (scale, length, natural): length = ‖scale·row‖, and natural·length = ‖row‖/clip.

    bits is the row read as integers, `magnitude` the mask of all but their sign bit, and fraction_bits those of a
    number's fraction. The scale is 1, or the power of two, which multiplies exactly, that brings the largest magnitude
    into [1/2, 1), or nearly so if all of the row is subnormal: where squares might overflow or underflow without it.
    """
    length = norm(row, 1.0)
    if _SAFE_LOW < length < _SAFE_HIGH:
        return 1.0, length, 1 / clip
    bias = (magnitude >> fraction_bits) // 2 - 1
    exponent: Any = np.int64((largest_bits(bits, magnitude) >> fraction_bits) - bias)
    scale = math.ldexp(1.0, -exponent)
    # Half of 2^exponent, which may be one more than the largest number. Infinite still, if the row is longer than clip.
    return scale, norm(row, scale), 2 * (math.ldexp(1.0, exponent - 1) / clip)


def clip_rows(x: Any, bits: Any, magnitude: Any, fraction_bits: int, clip: float, unit: Any, longer: Any) -> None:
    """Write every row of x, clipped to norm `clip` and divided by it, to unit; longer tells which were clipped.

    The arguments between x and unit are those of `measure`.
    """
    for row in range(x.shape[0]):
        scale, length, natural = measure(x[row], bits[row], magnitude, fraction_bits, clip)
        longer[row] = natural * length > 1
        factor = 1 / length if longer[row] else natural
        for i in range(x.shape[1]):
            unit[row, i] = np.float32(scale * np.float64(x[row, i]) * factor)
